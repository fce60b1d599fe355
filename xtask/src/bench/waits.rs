//! What it costs to watch the waits of two processes that do nothing but wait for each other.
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use scalpel_tests::scalpel::Record;
use tempfile::TempDir;

use super::results::Section;
use super::target;
use crate::{apt, cmd};

/// How the two are watched.
#[derive(Clone, Copy, Debug)]
enum Way {
    Plain,
    Ours(&'static [&'static str]),
    Perf,
    Bpftrace,
}

const WAYS: [(&str, Way, &str); 8] = [
    ("plain", Way::Plain, ""),
    ("A/A: plain once more", Way::Plain, "1: the noise"),
    ("record -m sample", Way::Ours(&["--mode", "sample"]), ""),
    ("record", Way::Ours(&["--mode", "auto"]), ""),
    (
        "record -m sample --off-cpu",
        Way::Ours(&["--mode", "sample", "--off-cpu"]),
        "",
    ),
    (
        "record -m sample --off-cpu --off-cpu-min 1us",
        Way::Ours(&["--mode", "sample", "--off-cpu", "--off-cpu-min", "1us"]),
        "",
    ),
    ("perf record -g -e sched:sched_switch", Way::Perf, ""),
    ("bpftrace, off-CPU time by user stack", Way::Bpftrace, ""),
];

const TURNS: u64 = 100_000;

/// `rounds` times each, in turn.
pub(super) fn run(rounds: usize) -> Result<Section> {
    let mut section = Section {
        title: "Waits: two processes that answer each other",
        about: format!(
            "{TURNS} turns of two processes on one processor over two pipes; a turn is two switches, and nearly all of its \
time is the kernel's. The collector has the other processor. The waits are of microseconds: at the default \
`--off-cpu-min 1ms` none has its stack recorded, and each is a part of its thread's sum; at 1us nearly each is. The others \
record or add up a stack at each switch."
        ),
        unit: "us a turn",
        base: "plain",
        ..Section::default()
    };
    for round in 1..=rounds {
        for (name, way, target) in WAYS {
            cmd::say(format_args!("waits: round {round} of {rounds}, {name}"));
            if !way.is_here() {
                continue;
            }
            section.add(name, measured(way).with_context(|| name.to_owned())?);
            if let Some(row) = section.rows.iter_mut().find(|row| row.name == name) {
                row.target = target;
            }
        }
    }
    Ok(section)
}

fn measured(way: Way) -> Result<f64> {
    let folder = TempDir::with_prefix("scalpel-waits-")?;
    let mut pair = Pair::start()?;
    pair.turns(TURNS / 10)?;
    let watch = way.begin(&pair, &folder)?;
    pair.turns(TURNS / 10)?;
    let took = pair.turns(TURNS)?;
    watch.end()?;
    Ok(took as f64 / 1000.0 / TURNS as f64)
}

/// The two.
struct Pair {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    other: u32,
}

impl Pair {
    fn start() -> Result<Self> {
        let mut child = cmd::command(target::compile("pingpong.c")?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().context("no stdin")?;
        let mut stdout = BufReader::new(child.stdout.take().context("no stdout")?);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let other = line.trim().strip_prefix("other ").context("no other")?;
        Ok(Self {
            child,
            stdin,
            stdout,
            other: other.parse()?,
        })
    }

    /// ns of so many turns.
    fn turns(&mut self, count: u64) -> Result<u64> {
        writeln!(self.stdin, "turns {count}")?;
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        line.trim()
            .parse()
            .with_context(|| format!("not a time: {line}"))
    }

    fn pids(&self) -> [String; 2] {
        [self.child.id().to_string(), self.other.to_string()]
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Way {
    fn is_here(self) -> bool {
        match self {
            Self::Perf => apt::exists("perf"),
            Self::Bpftrace => apt::exists("bpftrace"),
            _ => true,
        }
    }

    /// Returns when it watches.
    fn begin(self, pair: &Pair, folder: &TempDir) -> Result<Watch> {
        let [one, other] = pair.pids();
        Ok(match self {
            Self::Plain => Watch::Nobody,
            Self::Ours(options) => {
                let record = Record::into(folder.path())
                    .args(options.iter().copied())
                    .args(["-p", &other]);
                Watch::Ours(Box::new(record.attach(pair.child.id())?))
            }
            Self::Perf => {
                let mut perf = cmd::command("perf");
                perf.args(["record", "-q", "-g", "-e", "sched:sched_switch", "-o"])
                    .arg(folder.path().join("perf.data"))
                    .args(["-p", &format!("{one},{other}")]);
                Watch::other(perf)?
            }
            Self::Bpftrace => {
                let ours = format!("args->prev_pid == {one} || args->prev_pid == {other}");
                let script = format!(
                    "tracepoint:sched:sched_switch /{ours}/ {{ @since[args->prev_pid] = nsecs; @at[args->prev_pid] = ustack; }} \
                     tracepoint:sched:sched_switch /@since[args->next_pid]/ \
                     {{ @off[args->next_pid, @at[args->next_pid]] = sum(nsecs - @since[args->next_pid]); \
                        delete(@since[args->next_pid]); }}"
                );
                let mut bpftrace = cmd::command("bpftrace");
                bpftrace.args(["-e", &script]);
                Watch::other(bpftrace)?
            }
        })
    }
}

/// Who watches.
enum Watch {
    Nobody,
    Ours(Box<scalpel_tests::scalpel::Recording>),
    Other(Child),
}

impl Watch {
    /// Neither says when it has begun: it has by then.
    const BEGINS: Duration = Duration::from_secs(3);

    fn other(mut command: Command) -> Result<Self> {
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("failed to start {command:?}"))?;
        std::thread::sleep(Self::BEGINS);
        Ok(Self::Other(child))
    }

    fn end(self) -> Result<()> {
        match self {
            Self::Nobody => {}
            Self::Ours(recording) => {
                let ended = recording.stop()?.ended;
                ensure!(matches!(ended.code(), 0 | 5), "{}", ended.stderr);
            }
            Self::Other(mut child) => {
                ensure!(
                    child.try_wait()?.is_none(),
                    "it ended before it was told to"
                );
                let pid = Pid::from_raw(i32::try_from(child.id())?).context("no pid")?;
                kill_process(pid, Signal::INT)?;
                child.wait()?;
            }
        }
        Ok(())
    }
}
