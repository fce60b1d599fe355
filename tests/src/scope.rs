//! `scope` of a running program, and what it printed as JSON.

use std::process::Command;

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal};
use serde::Deserialize;

use crate::child::{self, Ended, Running};
use crate::fixture::{Copy, Fixture};
use crate::scalpel;

/// The JSON of a scope, as far as other programs may rely on it.
#[derive(Clone, Debug, Deserialize)]
pub struct Scope {
    /// `complete` or `truncated`.
    pub status: String,
    /// Why truncated.
    pub reasons: Vec<String>,
    /// How it was seen.
    pub tier: String,
    /// Why nothing was recorded.
    pub skip_reason: Option<String>,
    /// How many instructions ran.
    pub instructions: u64,
    /// What ran, in order.
    pub trace: Vec<Row>,
    /// The calls.
    pub calls: Vec<Call>,
    /// Which function.
    pub function: Option<Function>,
}

/// The function that was scoped.
#[derive(Clone, Debug, Deserialize)]
pub struct Function {
    /// Its key in a genome.
    pub key: String,
}

/// An instruction that ran.
#[derive(Clone, Debug, Deserialize)]
pub struct Row {
    /// Its address.
    pub addr: String,
    /// Its bytes.
    pub bytes: String,
    /// Its text.
    pub text: String,
    /// Its function.
    pub symbol: Option<String>,
    /// Its place in the source.
    pub line: Option<String>,
    /// How often in a row.
    pub count: u64,
}

/// One call.
#[derive(Clone, Debug, Deserialize)]
pub struct Call {
    /// Its process.
    pub pid: u32,
    /// Its thread.
    pub tid: u32,
    /// `complete` or `truncated`.
    pub status: String,
    /// Why truncated.
    pub reasons: Vec<String>,
    /// How many instructions ran.
    pub instructions: u64,
    /// Its first row.
    pub first: usize,
    /// How many rows.
    pub rows: usize,
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
}

impl Scope {
    /// Of what a scope printed.
    pub fn parse(stdout: &str) -> anyhow::Result<Self> {
        serde_json::from_str(stdout).with_context(|| format!("not a scope: {stdout}"))
    }

    /// Fails unless all that was asked for is there, whole.
    pub fn complete(self) -> anyhow::Result<Self> {
        ensure!(
            self.status == "complete" && self.reasons.is_empty(),
            "{}: {:?}",
            self.status,
            self.reasons
        );
        Ok(self)
    }

    /// Rows of one call.
    pub fn rows(&self, call: &Call) -> &[Row] {
        self.trace
            .get(call.first..call.first + call.rows)
            .unwrap_or_default()
    }

    /// Whether the first instruction of a call ran once: Go begins a function anew once its stack has grown, or its turn
    /// on the processor is over.
    pub fn begins_once(&self, call: &Call) -> bool {
        let rows = self.rows(call);
        let first = rows.first().map(|row| &row.addr);
        rows.iter().filter(|row| Some(&row.addr) == first).count() == 1
    }

    /// The texts without addresses, each as often as it ran in a row.
    pub fn texts(&self) -> Vec<(String, u64)> {
        let text = |row: &Row| {
            let text = row.text.split(" 0x").next().unwrap_or_default();
            (text.to_owned(), row.count)
        };
        self.trace.iter().map(text).collect()
    }
}

/// `scope --pid PID ARGS`, not started yet.
pub fn command(pid: u32, args: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(scalpel::program()?);
    command
        .arg("scope")
        .arg("--pid")
        .arg(pid.to_string())
        .args(args);
    Ok(command)
}

/// `scope --pid PID --func NAME --json ARGS` to its end.
pub fn ended(pid: u32, func: &str, args: &[&str]) -> anyhow::Result<Ended> {
    let mut command = command(pid, &["--func", func, "--json"])?;
    command.args(args);
    if !args.contains(&"--budget") {
        // A busy machine is no reason to cut a trace short.
        command.args(["--budget", "20s"]);
    }
    child::run(command)
}

/// The same, whole.
pub fn complete(pid: u32, func: &str, args: &[&str]) -> anyhow::Result<Scope> {
    let ended = ended(pid, func, args)?.expect_code(0)?;
    Scope::parse(&ended.stdout)?.complete()
}

/// A program that calls one function until it is told to end.
pub struct Target {
    running: Running,
    copy: Copy,
    pid: u32,
}

impl Target {
    /// Starts it on one of its functions.
    pub fn start(fixture: &Fixture, shape: &str) -> anyhow::Result<Self> {
        let copy = fixture.copy()?;
        let mut command = Command::new(copy.path());
        command.arg(shape);
        let mut running = Running::start(command)?;
        running.stdout_line(|line| line == "ready\n")?;
        let pid = running.pid();
        Ok(Self { running, copy, pid })
    }

    /// The same in a pid namespace of its own, where it has another number.
    pub fn start_in_namespace(fixture: &Fixture, shape: &str) -> anyhow::Result<Self> {
        let copy = fixture.copy()?;
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc"]);
        command.arg(copy.path()).arg(shape);
        let mut running = Running::start(command)?;
        running.stdout_line(|line| line == "ready\n")?;
        let parent = running.pid();
        let children = format!("/proc/{parent}/task/{parent}/children");
        let pid = std::fs::read_to_string(children)?.trim().parse()?;
        Ok(Self { running, copy, pid })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The process, for tests that talk to it themselves.
    pub fn running(&mut self) -> &mut Running {
        &mut self.running
    }

    /// Its private copy.
    pub fn copy(&self) -> &Copy {
        &self.copy
    }

    /// Lets it end; every call must have done what it always does, and nothing of a scope may be left.
    pub fn unharmed(self) -> anyhow::Result<()> {
        crate::residue::text_is_clean(self.pid())?;
        let said = self.end()?;
        ensure!(
            said.contains("done") && !said.contains("another SIGTRAP"),
            "it says: {said}"
        );
        Ok(())
    }

    /// Lets it end well; what it said.
    pub fn end(self) -> anyhow::Result<String> {
        Ok(self.running.wait()?.expect_code(0)?.stdout)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        self.running.signal(signal)
    }
}

/// Waits until nobody traces a process any more: a guardian whose tool was killed lets go by itself.
pub fn released(pid: u32) -> anyhow::Result<()> {
    for _ in 0..500 {
        if !is_traced(pid)? {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    anyhow::bail!("process {pid} is still traced")
}

/// The guardian of a running scope, once there is one.
pub fn guardian_of(scope: u32) -> Option<Pid> {
    let children = std::fs::read_to_string(format!("/proc/{scope}/task/{scope}/children")).ok()?;
    // Another child reads executables.
    let is_guardian = |pid: &&str| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|&byte| byte == 0).nth(1) == Some(b"guardian")
    };
    let guardian = children.split_whitespace().find(is_guardian)?;
    Pid::from_raw(guardian.parse().ok()?)
}

/// Whether somebody traces a process.
pub fn is_traced(pid: u32) -> anyhow::Result<bool> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(!status.contains("TracerPid:\t0"))
}
