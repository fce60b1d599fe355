//! The product as a user has it: the `scalpel-ebpf` program, its arguments, its exit codes.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, ensure};
use rustix::process::Signal;

use crate::child::{self, Ended, Running};
use crate::report::Report;

/// Path of the program: `$SCALPEL_BIN`, else built once by cargo.
pub fn program() -> anyhow::Result<&'static Path> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match PROGRAM.get_or_init(|| find_or_build().map_err(|error| format!("{error:#}"))) {
        Ok(path) => Ok(path),
        Err(error) => anyhow::bail!("{error}"),
    }
}

fn find_or_build() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os("SCALPEL_BIN") {
        return Ok(path.into());
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(crate::fixture::workspace()).args([
        "build",
        "--quiet",
        "-p",
        "scalpel-user",
        "--bin",
        "scalpel-ebpf",
    ]);
    let status = command.status().context("cannot run cargo")?;
    ensure!(status.success(), "scalpel-ebpf does not build");
    let path = crate::fixture::target_directory().join("debug/scalpel-ebpf");
    ensure!(
        path.exists(),
        "{} is not there after the build",
        path.display()
    );
    Ok(path)
}

/// Runs `scalpel-ebpf ARGS` to its end.
pub fn run(args: &[&str]) -> anyhow::Result<Ended> {
    let mut command = Command::new(program()?);
    command.args(args);
    child::run(command)
}

/// Reads a genome or a log with `report FILE --json`.
pub fn report(file: &Path) -> anyhow::Result<Report> {
    let ended = report_ended(file)?.expect_code(0)?;
    Report::parse(&ended.stdout)
}

/// `report FILE --json`, whatever comes of it.
pub fn report_ended(file: &Path) -> anyhow::Result<Ended> {
    let mut command = Command::new(program()?);
    command.arg("report").arg(file).arg("--json");
    child::run(command)
}

/// One recording to be made: `record` with its options. Calls are streamed, unless the options say otherwise.
pub struct Record {
    genome: PathBuf,
    args: Vec<OsString>,
}

impl Record {
    /// A recording that writes `run.genome` into `directory`.
    pub fn into(directory: &Path) -> Self {
        Self {
            genome: directory.join("run.genome"),
            args: Vec::new(),
        }
    }

    /// Adds options.
    #[must_use]
    pub fn args<S: Into<OsString>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// `record OPTIONS -- PROGRAM ARGS`, not yet started.
    pub fn command_line(&self, program_and_args: &[&str]) -> anyhow::Result<Command> {
        let mut command = self.base()?;
        command.arg("--").args(program_and_args);
        Ok(command)
    }

    /// Records a program from its start to its end.
    pub fn command(&self, target: &Path, args: &[&str]) -> anyhow::Result<Recorded> {
        let target = target.to_string_lossy();
        let line: Vec<&str> = std::iter::once(&*target)
            .chain(args.iter().copied())
            .collect();
        Ok(Recorded {
            ended: child::run(self.command_line(&line)?)?,
            genome: self.genome.clone(),
        })
    }

    /// Starts a recording whose options say of what, and returns once everything that will be attached is attached.
    pub fn begin(&self) -> anyhow::Result<Recording> {
        let mut recording = Recording {
            running: Running::start(self.base()?)?,
            genome: self.genome.clone(),
        };
        recording.is_attached()?;
        Ok(recording)
    }

    /// Attaches to a running process and returns once everything that will be attached is attached.
    pub fn attach(&self, pid: u32) -> anyhow::Result<Recording> {
        let mut recording = self.attach_at_once(pid)?;
        recording.is_attached()?;
        Ok(recording)
    }

    /// Attaches to a running process; does not wait until it is attached. What it starts is in a process group of its own.
    pub fn attach_at_once(&self, pid: u32) -> anyhow::Result<Recording> {
        let mut command = self.base()?;
        command.arg("--pid").arg(pid.to_string()).process_group(0);
        Ok(Recording {
            running: Running::start(command)?,
            genome: self.genome.clone(),
        })
    }

    /// Where the genome will be.
    pub fn genome(&self) -> &Path {
        &self.genome
    }

    fn base(&self) -> anyhow::Result<Command> {
        let mut command = Command::new(program()?);
        command
            .arg("record")
            .arg("-o")
            .arg(&self.genome)
            .args(&self.args);
        let tells = |arg: &OsString| arg == "--mode" || arg == "--no-kernel";
        if !self.args.iter().any(tells) {
            command.args(["--mode", "trace"]);
        }
        Ok(command)
    }
}

/// What `record` writes on stderr when the last probe is in place.
const RECORDING_MARK: &str = "Ctrl-C";

/// A recording that runs.
pub struct Recording {
    running: Running,
    genome: PathBuf,
}

impl Recording {
    /// Waits until calls are in its file.
    pub fn has_written(&self) -> anyhow::Result<()> {
        const CALLS: u64 = 256 << 10;
        for _ in 0..2000 {
            if std::fs::metadata(&self.genome).is_ok_and(|file| file.len() > CALLS) {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        anyhow::bail!("nothing was written to {} in 20 s", self.genome.display())
    }

    /// Waits until everything that will be attached is attached.
    pub fn is_attached(&mut self) -> anyhow::Result<()> {
        self.running
            .stderr_line(|line| line.contains(RECORDING_MARK))
            .map(drop)
    }

    /// The collector's process.
    pub fn running(&mut self) -> &mut Running {
        &mut self.running
    }

    /// Where the genome will be.
    pub fn genome(&self) -> &Path {
        &self.genome
    }

    /// Ctrl-C, then waits for the genome.
    pub fn stop(self) -> anyhow::Result<Recorded> {
        self.running.signal(Signal::INT)?;
        self.ended()
    }

    /// Waits until it ends by itself.
    pub fn ended(self) -> anyhow::Result<Recorded> {
        Ok(Recorded {
            ended: self.running.wait()?,
            genome: self.genome,
        })
    }
}

/// A finished recording.
pub struct Recorded {
    /// How the collector ended, and what it and a launched program wrote.
    pub ended: Ended,
    /// The genome.
    pub genome: PathBuf,
}

impl Recorded {
    /// Fails unless the exit code is `expect`.
    pub fn expect_code(mut self, expect: i32) -> anyhow::Result<Self> {
        self.ended = self.ended.expect_code(expect)?;
        Ok(self)
    }

    /// Its report.
    pub fn report(&self) -> anyhow::Result<Report> {
        report(&self.genome).with_context(|| format!("record said: {}", self.ended.stderr))
    }
}
