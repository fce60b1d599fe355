//! Calls of another process that its processor records: a real process, real breakpoints and a real guardian, behind whose
//! door stand packets of the path that the process told of before.
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use scalpel_scope::outside::guard_by;
use scalpel_scope::outside::message::{Arm, Call, End, Gate, Hardware, Order, Report};
use scalpel_scope::perf::{Channel, Door, Refusal, Step, Taken, Wish};
use scalpel_scope::trace::{Fact, Link, Tier};
use scalpel_scope::{Reasons, Trace};

use crate::code::Routine;
use crate::live::{Replay, aux_record, path, pmu, program, sample};
use crate::{code, programs, tests};

tests! {
    Library:
    calls_of_another_process_are_decoded_as_they_were_stepped,
    instructions_that_are_not_followed_are_callees_at_full_speed,
    what_is_missing_is_told,
    branches_of_another_process_are_a_survey,
    refusals_name_their_gate_and_harm_nothing,
    a_thread_that_ends_in_its_call_is_told,
    a_call_that_is_left_by_a_jump_ends_when_its_frame_is_gone,
}

/// What this process is for, if not for the tests.
const ROLE: &str = "SCALPEL_TEST_ROLE";
const FOLDER: &str = "SCALPEL_TEST_GUARDED";

pub(crate) fn is_another_process() -> bool {
    std::env::var_os(ROLE).is_some()
}

pub(crate) fn another_process() -> ExitCode {
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    match std::env::var(ROLE).unwrap().as_str() {
        "guardian" => guard_by(&Recorded(folder)).unwrap(),
        "ends" => ends(),
        "jumps" => jumps(),
        seed => target(&folder, seed.parse().unwrap()),
    }
    ExitCode::SUCCESS
}

/// Steps its program once, tells the path, and calls it until its input ends. Each call must do what the first one did.
fn target(folder: &Path, seed: u64) {
    let (routine, truth, packets) = program(seed);
    fs::write(folder.join("packets"), packets).unwrap();
    fs::write(folder.join("samples"), sample(&truth).1).unwrap();
    fs::write(folder.join("truth"), serde_json::to_string(&truth).unwrap()).unwrap();
    let args = [code::memory() as u64, 5, 0, 0, 0, 0];
    let run = || {
        programs::clean(&args);
        routine.run(args)
    };
    let first = run();
    println!("{}", routine.at);
    until_input_ends(|| assert_eq!(run(), first));
}

/// A thread after the other ends in its call.
fn ends() {
    let routine = Routine::of(&[0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05]);
    println!("{}", routine.at);
    until_input_ends(|| {
        extern "C" fn call(at: *mut libc::c_void) -> *mut libc::c_void {
            let routine = Routine {
                at: at as usize,
                len: 0,
            };
            routine.run([0; 6]);
            std::ptr::null_mut()
        }
        let mut thread = 0;
        let (thread, at) = (&raw mut thread, routine.at as *mut libc::c_void);
        assert_eq!(
            unsafe { libc::pthread_create(thread, std::ptr::null(), call, at) },
            0
        );
        // It cannot be joined: its end is not the library's.
        std::thread::sleep(std::time::Duration::from_millis(2));
    });
}

/// A function that never returns: it puts the stack back to where its caller's was, and goes on there, as longjmp does.
fn jumps() {
    let routine = Routine::of(&[
        0x53, // push rbx
        0x41, 0x54, // 1: push r12
        0x41, 0xbc, 3, 0, 0, 0, // 3: mov r12d, 3
        0x48, 0x89, 0xe3, // 9: mov rbx, rsp
        0xe8, 0x0b, 0, 0, 0, // 12: call 28
        0x0f, 0x0b, // 17: ud2
        0x41, 0xff, 0xcc, // 19: dec r12d
        0x75, 0xf1, // 22: jnz 9
        0x41, 0x5c, // 24: pop r12
        0x5b, // 26: pop rbx
        0xc3, // 27: ret
        0x90, // 28: nop
        0x48, 0x89, 0xdc, // 29: mov rsp, rbx
        0xeb, 0xf1, // 32: jmp 19
    ]);
    println!("{}", routine.at + 28);
    until_input_ends(|| _ = routine.run([0; 6]));
}

fn until_input_ends(mut work: impl FnMut()) {
    static OVER: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    std::thread::spawn(|| {
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        OVER.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let begin = std::time::Instant::now();
    while !OVER.load(std::sync::atomic::Ordering::Relaxed) {
        assert!(begin.elapsed().as_secs() < 120, "nobody ends it");
        work();
    }
    println!("unharmed");
}

/// Replays what the folder holds.
#[derive(Debug)]
struct Recorded(PathBuf);

impl Door for Recorded {
    fn open(&self, wish: &Wish) -> Result<Box<dyn Channel>, Refusal> {
        fs::write(self.0.join("thread"), wish.thread.to_string()).unwrap();
        if let Ok(errno) = fs::read_to_string(self.0.join("refusal")) {
            return Err(Refusal {
                step: Step::Open,
                errno: errno.parse().unwrap(),
            });
        }
        let file = |name: &str| fs::read(self.0.join(name)).unwrap_or_default();
        let taken = match wish.area {
            Some(_) => Taken {
                records: file("aux"),
                traced: file("packets"),
            },
            None => Taken {
                records: file("samples"),
                traced: Vec::new(),
            },
        };
        Ok(Box::new(Replay {
            taken,
            ..Replay::default()
        }))
    }
}

/// A process of its own of this very program.
struct Other {
    child: Child,
    said: BufReader<ChildStdout>,
    to: Option<ChildStdin>,
}

impl Other {
    fn start(role: &str, folder: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(ROLE, role)
            .env(FOLDER, folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            said: BufReader::new(child.stdout.take().unwrap()),
            to: child.stdin.take(),
            child,
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// It must end well.
    fn unharmed(mut self) {
        self.to = None;
        assert_eq!(self.line(), "unharmed");
        assert!(self.child.wait().unwrap().success());
    }
}

struct Scene {
    folder: tempfile::TempDir,
    target: Other,
    entry: u64,
}

impl Scene {
    fn start(role: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut target = Other::start(role, folder.path());
        let entry = target.line().parse().unwrap();
        Self {
            folder,
            target,
            entry,
        }
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.folder.path().join(name), bytes).unwrap();
    }

    fn truth(&self) -> Trace {
        let text = fs::read_to_string(self.folder.path().join("truth")).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn arm(&self, hardware: Hardware) -> Arm {
        Arm {
            entries: vec![self.entry],
            calls: 3,
            budget_steps: 1_000_000,
            hardware: Some(hardware),
            ..Arm::default()
        }
    }

    /// Has calls recorded; what came, and the last report.
    fn recorded(&self, arm: Arm) -> (Vec<Call>, Report) {
        let mut guardian = Other::start("guardian", self.folder.path());
        let mut to = guardian.to.take().unwrap();
        let pid = self.target.child.id();
        let mut order = |order| writeln!(to, "{}", serde_json::to_string(&order).unwrap()).unwrap();
        order(Order::Seize { pid, held: false });
        let mut calls = Vec::new();
        let last = loop {
            match serde_json::from_str(&guardian.line()).unwrap() {
                Report::Seized { .. } => order(Order::Arm(arm.clone())),
                Report::Call(call) => calls.push(*call),
                last @ (Report::Ended { .. } | Report::Refused { .. }) => break last,
                _ => {}
            }
        };
        assert!(guardian.child.wait().unwrap().success());
        (calls, last)
    }

    fn three(&self, arm: Arm) -> Vec<Call> {
        let (calls, last) = self.recorded(arm);
        assert!(
            matches!(
                last,
                Report::Ended {
                    why: End::Calls,
                    ..
                }
            ),
            "{last:?}"
        );
        assert_eq!(calls.len(), 3);
        let thread = fs::read_to_string(self.folder.path().join("thread")).unwrap();
        assert_eq!(thread, calls[2].tid.to_string());
        calls
    }
}

fn calls_of_another_process_are_decoded_as_they_were_stepped() {
    for seed in (1..6).map(|seed: u64| seed * 0x9e37_79b9) {
        let scene = Scene::start(&seed.to_string());
        scene.put("aux", &aux_record(0));
        let truth = scene.truth();
        for call in scene.three(scene.arm(Hardware::Pt(pmu()))) {
            let trace = call.trace;
            assert_eq!(path(&trace), path(&truth));
            assert!(trace.is_complete(), "{}", trace.reasons);
            assert_eq!(trace.tier, Tier::IntelPt);
            assert_eq!((trace.begin, trace.end), (truth.begin, truth.end));
            assert!(trace.verified.contains(&Fact::Returned));
            assert!(call.begin_ns < call.end_ns);
        }
        scene.target.unharmed();
    }
}

fn instructions_that_are_not_followed_are_callees_at_full_speed() {
    // Its second argument decides: a call of the leaf, whose instructions stand last.
    let mut called = 0;
    for seed in (1..12).map(|seed: u64| seed * 0x51ed_270b) {
        let scene = Scene::start(&seed.to_string());
        let truth = scene.truth();
        let leaf = truth.steps.windows(2).find_map(|pair| {
            let code = truth.code_of(&pair[0]).unwrap();
            let is_call = code.bytes[0] == 0xe8 || code.bytes == [0x41, 0xff, 0xd1];
            (is_call && pair[0].next > code.addr).then_some(pair[0].next)
        });
        if let Some(leaf) = leaf {
            called += 1;
            let arm = Arm {
                followed: vec![(scene.entry, leaf)],
                ..scene.arm(Hardware::Pt(pmu()))
            };
            let own = |addr: &u64| (scene.entry..leaf).contains(addr);
            let expected: Vec<u64> = path(&truth).into_iter().filter(own).collect();
            for call in scene.three(arm) {
                assert_eq!(path(&call.trace), expected);
                assert!(call.trace.is_complete(), "{}", call.trace.reasons);
                let over = |step: &&scalpel_scope::trace::Step| step.link == Link::Over;
                let over = call.trace.steps.iter().filter(over).count() as u64;
                assert!(over > 0 && over == call.trace.call_outs.calls);
            }
        }
        scene.target.unharmed();
    }
    assert!(called > 2, "{called}");
}

fn what_is_missing_is_told() {
    let scene = Scene::start("77");
    let whole = scene.arm(Hardware::Pt(pmu()));
    for flags in [1, 4, 8] {
        scene.put("aux", &aux_record(flags));
        for call in scene.three(whole.clone()) {
            assert!(call.trace.reasons.contains(Reasons::BUFFER_FULL));
        }
    }
    scene.put("aux", &[]);
    let few = Arm {
        budget_steps: 4,
        ..whole.clone()
    };
    for call in scene.three(few) {
        assert_eq!(call.trace.steps.len(), 4);
        assert!(call.trace.reasons.contains(Reasons::BUDGET));
    }
    scene.put("packets", &[]);
    for call in scene.three(whole) {
        assert!(!call.trace.is_complete() && call.trace.steps.is_empty());
    }
    scene.target.unharmed();
}

fn branches_of_another_process_are_a_survey() {
    let scene = Scene::start("23");
    let (truth, (branches, _)) = (scene.truth(), sample(&scene.truth()));
    for call in scene.three(scene.arm(Hardware::Lbr)) {
        let trace = call.trace;
        assert_eq!(trace.tier, Tier::Lbr);
        assert!(trace.reasons.contains(Reasons::SAMPLED) && !trace.is_complete());
        let all = path(&truth);
        let from = all.iter().position(|addr| *addr == branches[0].0).unwrap();
        let run = path(&trace);
        assert_eq!(run, all[from..][..run.len()]);
        assert!(run.len() > branches.len());
    }
    scene.target.unharmed();
}

fn refusals_name_their_gate_and_harm_nothing() {
    let scene = Scene::start("5");
    for (errno, told, gate) in [
        (libc::EBUSY, "EBUSY", Gate::System),
        (libc::EACCES, "perf_event_paranoid", Gate::Permission),
        (libc::ENOENT, "does not have it", Gate::System),
    ] {
        scene.put("refusal", errno.to_string().as_bytes());
        for (hardware, tier) in [(Hardware::Pt(pmu()), "intel-pt:"), (Hardware::Lbr, "lbr:")] {
            let (calls, last) = scene.recorded(scene.arm(hardware));
            let Report::Refused { gate: closed, why } = last else {
                panic!("{last:?}");
            };
            assert!(calls.is_empty() && closed == gate);
            assert!(why.starts_with(tier) && why.contains(told), "{why}");
        }
    }
    scene.target.unharmed();
}

fn a_thread_that_ends_in_its_call_is_told() {
    let scene = Scene::start("ends");
    for call in scene.three(scene.arm(Hardware::Pt(pmu()))) {
        assert!(call.trace.reasons.contains(Reasons::LEFT));
        assert!(!call.trace.verified.contains(&Fact::Returned));
    }
    scene.target.unharmed();
}

/// By the next call from the same place, or by whoever else uses the stack: not by the time that a call may take.
fn a_call_that_is_left_by_a_jump_ends_when_its_frame_is_gone() {
    let scene = Scene::start("jumps");
    for call in scene.three(scene.arm(Hardware::Pt(pmu()))) {
        let reasons = call.trace.reasons;
        assert!(reasons.contains(Reasons::LEFT), "{reasons}");
        assert!(!reasons.contains(Reasons::BUDGET), "{reasons}");
        assert!(!call.trace.verified.contains(&Fact::Returned));
    }
    scene.target.unharmed();
}
