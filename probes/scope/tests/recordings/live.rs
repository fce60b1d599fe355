//! The live paths behind a door that replays a recording: opened, mapped, read, copied and decoded as on a machine that has
//! the hardware, with what can go wrong there. And the refusals of this one.
use std::cell::RefCell;
use std::path::{Path, PathBuf};

use scalpel_scope::lbr::live::Survey;
use scalpel_scope::perf::{Channel, Door, Refusal, Step, Taken, Wish};
use scalpel_scope::pt::encode::{self, Shape};
use scalpel_scope::pt::live::{Pmu, Recorder, Wanted, decode, own_code, prove};
use scalpel_scope::trace::{Form, Tier};
use scalpel_scope::{HwBackend, HwTrace, Options, Reasons, Trace};

use crate::code::Routine;
use crate::{code, programs, tests};

tests! {
    Library:
    a_recording_is_decoded_as_it_was_stepped,
    a_region_shows_its_instructions_only,
    dropped_packets_are_a_reason,
    a_full_buffer_is_a_reason,
    every_refusal_names_its_gate,
    little_memory_that_may_be_locked_is_made_do_with,
    a_self_proof_holds_only_for_the_path_that_ran,
    the_bits_are_those_that_the_kernel_names,
    a_survey_shows_its_runs_and_is_never_complete,
    this_machine_refuses_and_says_why,
}

/// Replays.
#[derive(Default)]
struct Fake {
    /// Refusals, one an opening.
    refusals: RefCell<Vec<Refusal>>,
    taken: Taken,
    wishes: RefCell<Vec<Wish>>,
}

#[derive(Debug, Default)]
pub(crate) struct Replay {
    pub(crate) taken: Taken,
    pub(crate) enabled: bool,
    pub(crate) disabled: bool,
}

impl Door for Fake {
    fn open(&self, wish: &Wish) -> Result<Box<dyn Channel>, Refusal> {
        self.wishes.borrow_mut().push(wish.clone());
        match self.refusals.borrow_mut().pop() {
            Some(refusal) => Err(refusal),
            None => Ok(Box::new(Replay {
                taken: self.taken.clone(),
                ..Replay::default()
            })),
        }
    }
}

impl Channel for Replay {
    fn enable(&mut self) -> Result<(), Refusal> {
        self.enabled = true;
        Ok(())
    }

    fn disable(&mut self) {
        assert!(self.enabled, "it is ended before it began");
        self.disabled = true;
    }

    fn take(&mut self) -> Taken {
        assert!(self.disabled, "it is read while it records");
        std::mem::take(&mut self.taken)
    }
}

/// What the kernel tells of a PMU, as a machine with the hardware has it.
fn sources() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let format = folder.path().join("intel_pt/format");
    std::fs::create_dir_all(&format).unwrap();
    std::fs::write(folder.path().join("intel_pt/type"), "8\n").unwrap();
    std::fs::write(format.join("pt"), "config:0\n").unwrap();
    std::fs::write(format.join("branch"), "config:13\n").unwrap();
    let path = folder.path().to_owned();
    (folder, path)
}

pub(crate) fn pmu() -> Pmu {
    let (_folder, path) = sources();
    Pmu::read(&path).unwrap()
}

/// A program, its stepped trace, and its packets.
pub(crate) fn program(seed: u64) -> (Routine, Trace, Vec<u8>) {
    let mut dice = programs::Dice(seed);
    let memory = code::memory();
    let buffer = code::memory() as u64;
    let routine = programs::random(&mut dice, memory);
    let args = [buffer, 5, 0, 0, 0, 0];
    programs::clean(&args);
    let (_, trace) = routine.trace(args);
    assert!(trace.is_complete());
    let packets = encode::path(&trace, Shape::default()).unwrap();
    (routine, trace, packets)
}

fn seeds() -> impl Iterator<Item = u64> {
    (1..12).map(|seed| seed * 0x9e37_79b9)
}

fn door(packets: &[u8], records: &[u8]) -> Fake {
    Fake {
        taken: Taken {
            records: records.to_vec(),
            traced: packets.to_vec(),
        },
        ..Fake::default()
    }
}

/// Opens, begins, ends, and decodes with this process's own code.
fn recorded(door: &Fake, wanted: Wanted) -> Trace {
    let mut recorder = Recorder::open(door, &pmu(), false, None).unwrap();
    recorder.start().unwrap();
    let (packets, missing) = recorder.stop();
    decode(&packets, missing, own_code().unwrap(), wanted).unwrap()
}

pub(crate) fn path(trace: &Trace) -> Vec<u64> {
    trace
        .steps
        .iter()
        .map(|step| trace.code_of(step).unwrap().addr)
        .collect()
}

/// `PERF_RECORD_AUX` with these flags.
pub(crate) fn aux_record(flags: u64) -> Vec<u8> {
    let mut record = 11_u32.to_le_bytes().to_vec();
    record.extend([0, 0, 32, 0]);
    for word in [0, 4096, flags] {
        record.extend(u64::to_le_bytes(word));
    }
    record
}

fn a_recording_is_decoded_as_it_was_stepped() {
    for seed in seeds() {
        let (routine, truth, packets) = program(seed);
        let door = door(&packets, &aux_record(0));
        let whole = recorded(&door, Wanted::Form(Form::Window));
        assert_eq!(path(&whole), path(&truth));
        assert!(whole.is_complete(), "{}", whole.reasons);
        assert_eq!(whole.tier, Tier::IntelPt);
        let call = recorded(&door, Wanted::Call(routine.at as u64));
        assert_eq!((call.begin, call.end), (truth.begin, truth.end));
        assert!(call.is_complete(), "{}", call.reasons);
    }
}

fn a_region_shows_its_instructions_only() {
    for seed in seeds() {
        let (routine, truth, packets) = program(seed);
        let (start, end) = (routine.at as u64, (routine.at + routine.len / 2) as u64);
        let trace = recorded(
            &door(&packets, &[]),
            Wanted::Form(Form::Region { start, end }),
        );
        let inside: Vec<u64> = path(&truth)
            .into_iter()
            .filter(|addr| (start..end).contains(addr))
            .collect();
        assert_eq!(path(&trace), inside);
        assert!(trace.is_complete(), "{}", trace.reasons);
    }
}

fn dropped_packets_are_a_reason() {
    let (_, truth, packets) = program(7);
    let mut writer = encode::Writer::default();
    writer.overflow();
    let mut all = packets[..packets.len() - 7].to_vec();
    all.extend(writer.finish(false));
    // The flow resumes where it was.
    let mut writer = encode::Writer::default();
    writer.ip(encode::IpPacket::Fup, truth.end.unwrap());
    all.extend(writer.finish(false));
    let trace = recorded(&door(&all, &[]), Wanted::Form(Form::Window));
    assert!(
        trace.reasons.contains(Reasons::OVERFLOW),
        "{}",
        trace.reasons
    );
}

fn a_full_buffer_is_a_reason() {
    let (_, _, packets) = program(7);
    for (flags, truncated) in [(0, false), (1, true), (4, true), (8, true), (2, false)] {
        let trace = recorded(
            &door(&packets, &aux_record(flags)),
            Wanted::Form(Form::Window),
        );
        assert_eq!(
            trace.reasons.contains(Reasons::BUFFER_FULL),
            truncated,
            "{flags}"
        );
        assert_eq!(trace.is_complete(), !truncated);
    }
    let nothing = recorded(&door(&[], &[]), Wanted::Form(Form::Window));
    assert!(!nothing.is_complete());
}

fn every_refusal_names_its_gate() {
    for (step, errno, told) in [
        (Step::Open, libc::EBUSY, "EBUSY"),
        (Step::Open, libc::EACCES, "perf_event_paranoid"),
        (Step::Open, libc::EPERM, "CAP_PERFMON"),
        (Step::Open, libc::ENOENT, "does not have it"),
        (Step::Filter, libc::EINVAL, "refuses to filter"),
    ] {
        let door = Fake::default();
        door.refusals.borrow_mut().push(Refusal { step, errno });
        let why = Recorder::open(&door, &pmu(), false, None).unwrap_err();
        assert!(why.starts_with("intel-pt:") && why.contains(told), "{why}");
        door.refusals.borrow_mut().push(Refusal { step, errno });
        let why = Survey::start(&door).unwrap_err();
        assert!(why.starts_with("amd-lbr:") && why.contains(told), "{why}");
    }
}

fn little_memory_that_may_be_locked_is_made_do_with() {
    let refusal = Refusal {
        step: Step::Map,
        errno: libc::EPERM,
    };
    let door = Fake::default();
    door.refusals.borrow_mut().extend([refusal; 3]);
    Recorder::open(&door, &pmu(), true, Some("filter 0x1000/0x1000")).unwrap();
    let wishes = door.wishes.borrow();
    let areas: Vec<_> = wishes.iter().map(|wish| wish.area.unwrap()).collect();
    assert!(
        areas
            .windows(2)
            .all(|pair| pair[1].bytes * 2 == pair[0].bytes)
    );
    assert!(
        areas
            .iter()
            .all(|area| area.snapshot && area.bytes.is_power_of_two())
    );
    assert_eq!(wishes[3].filter.as_deref(), Some("filter 0x1000/0x1000"));
    drop(wishes);
    door.refusals.borrow_mut().extend([refusal; 99]);
    let why = Recorder::open(&door, &pmu(), false, None).unwrap_err();
    assert!(
        why.contains("mlock") && why.contains("RLIMIT_MEMLOCK"),
        "{why}"
    );
}

fn a_self_proof_holds_only_for_the_path_that_ran() {
    let (routine, truth, packets) = program(11);
    let mut ran = 0;
    let mut proof = |packets: &[u8], truth: &Trace| {
        let mut recorder = Recorder::open(&door(packets, &[]), &pmu(), false, None).unwrap();
        prove(&mut recorder, truth, &mut || ran += 1)
    };
    assert_eq!(proof(&packets, &truth), Ok(()));
    let mut other = truth.clone();
    other.steps.remove(other.steps.len() / 2);
    assert!(
        proof(&packets, &other)
            .unwrap_err()
            .contains("another path")
    );
    assert!(proof(&packets[..packets.len() - 9], &truth).is_err());
    assert!(proof(&[], &truth).is_err());
    let mut doubted = truth.clone();
    doubted.reasons = Reasons::BUDGET;
    assert!(proof(&packets, &doubted).unwrap_err().contains("not known"));
    assert_eq!(ran, 4);
    let _ = routine;
}

fn the_bits_are_those_that_the_kernel_names() {
    let (folder, path) = sources();
    let door = Fake::default();
    Recorder::open(&door, &Pmu::read(&path).unwrap(), false, None).unwrap();
    let wish = door.wishes.borrow()[0].clone();
    assert_eq!((wish.kind, wish.config), (8, 1 | 1 << 13));
    std::fs::remove_file(path.join("intel_pt/format/branch")).unwrap();
    assert!(Pmu::read(&path).unwrap_err().contains("`branch`"));
    std::fs::write(path.join("intel_pt/type"), "x").unwrap();
    assert!(Pmu::read(&path).unwrap_err().contains("no number"));
    drop(folder);
    assert!(
        Pmu::read(Path::new("/nowhere"))
            .unwrap_err()
            .contains("no PMU `intel_pt`")
    );
}

/// A sample of the branches of a stepped trace, as the kernel writes it: the newest first.
pub(crate) fn sample(truth: &Trace) -> (Vec<(u64, u64)>, Vec<u8>) {
    let mut branches = Vec::new();
    for step in &truth.steps {
        let code = truth.code_of(step).unwrap();
        if step.next != code.addr + code.bytes.len() as u64 && step.next != code.addr {
            branches.push((code.addr, step.next));
        }
    }
    let mut record = Vec::new();
    record.extend(9_u32.to_le_bytes());
    record.extend([0, 0]);
    let len = 8 + 8 + 8 + 24 * branches.len();
    record.extend((len as u16).to_le_bytes());
    record.extend([0; 8]);
    record.extend((branches.len() as u64).to_le_bytes());
    for (from, to) in branches.iter().rev() {
        for word in [*from, *to, 2 << 24] {
            record.extend(word.to_le_bytes());
        }
    }
    (branches, record)
}

fn a_survey_shows_its_runs_and_is_never_complete() {
    let (_, truth, _) = program(23);
    let (branches, record) = sample(&truth);
    let door = door(&[], &record);
    let trace = Survey::start(&door).unwrap().stop(Form::Window);
    assert_eq!(trace.tier, Tier::Lbr);
    assert!(trace.reasons.contains(Reasons::SAMPLED) && !trace.is_complete());
    // From its first branch to its last one it is the path that was stepped.
    let all = path(&truth);
    let from = all.iter().position(|addr| *addr == branches[0].0).unwrap();
    let run = path(&trace);
    let folded: Vec<u64> = all[from..].to_vec();
    assert_eq!(run, folded[..run.len()]);
    assert!(run.len() > branches.len());
    let wish = door.wishes.borrow()[0].clone();
    assert_eq!((wish.kind, wish.config, wish.branch_sample_type), (0, 0, 9));
}

/// Neither is here: who asks by name is told so, and gets nothing else.
fn this_machine_refuses_and_says_why() {
    let has_pt = Path::new("/sys/bus/event_source/devices/intel_pt").exists();
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    for (backend, there, told) in [
        (HwBackend::IntelPt, has_pt, "intel-pt: no PMU `intel_pt`"),
        (
            HwBackend::AmdLbr,
            cpuinfo.contains("amd_lbr_v2") || cpuinfo.contains("arch_lbr"),
            "amd-lbr:",
        ),
    ] {
        if there {
            continue;
        }
        let options = Options {
            backend,
            ..code::quiet()
        };
        let mut scope = HwTrace::window(options);
        let why = scope.skip_reason().unwrap().to_owned();
        assert!(why.contains(told), "{why}");
        let trace = scope.close().unwrap();
        assert_eq!(trace.tier, Tier::None);
        assert!(trace.steps.is_empty() && !trace.is_complete());
    }
}
