//! What can be attached to a function of the target: ours, the floors, and the peers.
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::target::Target;
use crate::cmd;

/// A tracer, and the way in which it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tracer {
    /// Nothing: the call alone.
    Nothing,
    /// A program of the BPF object that does as little as any must, attached as ours are.
    Floor(&'static str),
    /// scalpel-ebpf with these options.
    Scalpel(&'static [&'static str]),
    /// A bpftrace script with `PATH:FUNCTION` for the place.
    Bpftrace(&'static str),
    /// A breakpoint that gdb counts and passes.
    Gdb,
}

/// A tracer that is attached; it leaves when it is dropped.
pub(super) struct Attached {
    child: Option<Child>,
    last_word: Signal,
}

impl Tracer {
    /// Whether its program is here.
    pub(super) fn is_here(self) -> bool {
        match self {
            Self::Bpftrace(_) => crate::apt::exists("bpftrace"),
            Self::Gdb => crate::apt::exists("gdb"),
            _ => true,
        }
    }

    /// Starts it on `function` of `target`.
    pub(super) fn attach(self, target: &Target, function: &str, folder: &Path) -> Result<Attached> {
        self.attach_to(&target.pid().to_string(), &target.path, function, folder)
    }

    /// Starts it on `function` of `program` in the processes `pids` (one, for all but ours).
    pub(super) fn attach_to(
        self,
        pids: &str,
        program: &Path,
        function: &str,
        folder: &Path,
    ) -> Result<Attached> {
        let Some(mut command) = self.command(pids, program, function, folder) else {
            return Ok(Attached {
                child: None,
                last_word: Signal::TERM,
            });
        };
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("failed to start {command:?}"))?;
        Ok(Attached {
            child: Some(child),
            // A shell in the background lets its children ignore SIGINT; the others handle it themselves.
            last_word: if matches!(self, Self::Floor(_)) {
                Signal::TERM
            } else {
                Signal::INT
            },
        })
    }

    fn command(self, pids: &str, program: &Path, function: &str, folder: &Path) -> Option<Command> {
        let mut command;
        match self {
            Self::Nothing => return None,
            Self::Floor(floor) => {
                command = cmd::command(cmd::target().join("release/examples/floor"));
                command.args([floor, pids]).arg(program).arg(function);
            }
            Self::Scalpel(options) => {
                command = cmd::command(cmd::target().join("release/scalpel-ebpf"));
                command
                    .args(["record", "--quiet", "-F", "0", "-p", pids, "-f", function])
                    .args(options);
                command.arg("-o").arg(folder.join("bench.genome"));
            }
            Self::Bpftrace(script) => {
                let place = format!("{}:{function}", program.display());
                command = cmd::command("bpftrace");
                command.args(["-q", "-p", pids, "-e", &script.replace("PLACE", &place)]);
            }
            Self::Gdb => {
                command = cmd::command("gdb");
                let place = format!("break *{function}");
                let ignore = "ignore 1 1000000000";
                command.args([
                    "-q",
                    "-nx",
                    "-batch-silent",
                    "-p",
                    pids,
                    "-ex",
                    &place,
                    "-ex",
                    ignore,
                    "-ex",
                    "continue",
                ]);
            }
        }
        Some(command)
    }
}

impl Attached {
    /// The tracer's process.
    pub(super) fn pid(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.child.as_ref()?.id()).ok()?)
    }

    /// Asks it to end and waits until it has.
    pub(super) fn leave(mut self) -> Result<()> {
        if let Some(pid) = self.pid() {
            kill_process(pid, self.last_word)?;
        }
        if let Some(mut child) = self.child.take() {
            drop(child.stdin.take());
            child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}
