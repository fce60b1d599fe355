//! Who is watched.

use std::ffi::OsString;
use std::path::PathBuf;

use super::PlanError;
use crate::cli::TargetArgs;
use crate::event::Pid;

/// What to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// These processes, without duplicates, in the order typed.
    Pids(Vec<Pid>),
    /// All processes with this `comm` when the recording starts.
    Comm(String),
    /// A command that the recording starts.
    Command(CommandLine),
    /// All processes of a cgroup and of those below it, also those that come later.
    Cgroup(PathBuf),
    /// All processes of the host, also those that come later; with a command, while it runs.
    Host(Option<CommandLine>),
}

impl Target {
    /// The command that is started.
    pub const fn command(&self) -> Option<&CommandLine> {
        match self {
            Self::Command(line) | Self::Host(Some(line)) => Some(line),
            Self::Host(None) | Self::Pids(_) | Self::Comm(_) | Self::Cgroup(_) => None,
        }
    }
}

/// A program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// Program as typed: looked up in `PATH` if it has no slash.
    pub program: OsString,
    /// Arguments after it.
    pub args: Vec<OsString>,
}

/// The target of everything that watches processes.
pub(super) fn target(args: TargetArgs) -> Result<Target, PlanError> {
    if let Some(line) = command(args.command) {
        return Ok(Target::Command(line));
    }
    if let Some(comm) = args.comm {
        return Ok(Target::Comm(comm));
    }
    let mut distinct = Vec::with_capacity(args.pid.len());
    for pid in args.pid.into_iter().map(Pid) {
        if !distinct.contains(&pid) {
            distinct.push(pid);
        }
    }
    if distinct.is_empty() {
        return Err(PlanError::Missing(
            "what to watch: --pid PID, --comm NAME, or -- CMD".into(),
        ));
    }
    Ok(Target::Pids(distinct))
}

/// A command as typed, if one was.
pub(super) fn command(words: Vec<OsString>) -> Option<CommandLine> {
    let mut words = words.into_iter();
    Some(CommandLine {
        program: words.next()?,
        args: words.collect(),
    })
}
