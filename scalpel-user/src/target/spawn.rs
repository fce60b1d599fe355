//! `record -- CMD`: a child that is held between fork and exec until its probes are in place.
//!
//! It runs as the caller does (with sudo: as root), as under perf and strace: a tool that switched users would
//! change what it measures. To run it as somebody else, say so: `record -- setpriv --reuid ... CMD`.
//! It stays in our process group and keeps stdin, stdout and stderr, so that Ctrl-C, job control and pipes work as
//! they do without us.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread::{self, JoinHandle};

use rustix::fd::AsFd;
use rustix::io::{read, retry_on_intr, write};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;

use super::program::Program;
use super::{Process, TargetError};
use crate::event::Pid;
use crate::kernel::spawn::{Gate, hold_before_exec, number_for_child};

/// A started command. Dropped before its release, the child ends without having run anything.
#[derive(Debug)]
pub struct Spawned {
    process: Process,
    program: Program,
    state: State,
}

#[derive(Debug)]
enum State {
    Held {
        gate: OwnedFd,
        spawner: JoinHandle<io::Result<Child>>,
    },
    Running(Child),
    Ended(ChildExit),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildExit {
    /// By itself, with this code.
    Code(u8),
    /// By this signal.
    Signal(u8),
}

impl ChildExit {
    /// The code a shell gives for it: its own, or 128 + the signal.
    pub const fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128u8.saturating_add(signal),
        }
    }

    fn of(status: ExitStatus) -> Self {
        let byte = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(byte(code)),
            (None, signal) => Self::Signal(byte(signal.unwrap_or(0))),
        }
    }
}

impl Spawned {
    /// Forks, and holds the child before it executes `typed` with `args`, in our environment with these variables changed.
    /// The program is looked up now, in our `PATH`.
    pub fn start(
        typed: &OsStr,
        args: &[OsString],
        environment: &[(OsString, OsString)],
    ) -> Result<Self, TargetError> {
        let program = Program::find(typed)?;
        let failed = |source: io::Error| TargetError::Spawn {
            path: program.file().to_owned(),
            source,
        };
        let (told, ready) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let (wait, gate) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let mut command = Command::new(program.file());
        command.arg0(typed).args(args);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        hold_before_exec(
            &mut command,
            Gate {
                ready,
                wait,
                parents_end: number_for_child(&gate),
            },
        );
        // `spawn` returns after exec: it waits at the gate together with the child.
        let spawner = thread::Builder::new()
            .name("spawn".into())
            .spawn(move || command.spawn())
            .map_err(failed)?;
        let pid = match read_pid(&told) {
            Some(pid) => pid,
            None => return Err(failed(reason(spawner))),
        };
        Ok(Self {
            process: Process::open(pid)?,
            program,
            state: State::Held { gate, spawner },
        })
    }

    /// The child.
    pub const fn process(&self) -> &Process {
        &self.process
    }

    /// The files that will be executed, in turn: a script's interpreter comes after nothing else, `env` before what it
    /// runs. The last is the main program. All can be attached to before the release.
    pub fn programs(&self) -> &[PathBuf] {
        self.program.executed()
    }

    /// The main program's file.
    pub fn main_program(&self) -> &Path {
        self.program
            .executed()
            .last()
            .map_or_else(|| self.program.file(), PathBuf::as_path)
    }

    /// Lets the child execute its program; returns when it does, or with the reason why it cannot.
    pub fn release(&mut self) -> Result<(), TargetError> {
        let State::Held { gate, spawner } =
            std::mem::replace(&mut self.state, State::Ended(ChildExit::Signal(0)))
        else {
            return Ok(());
        };
        let failed = |source: io::Error| TargetError::Spawn {
            path: self.program.file().to_owned(),
            source,
        };
        retry_on_intr(|| write(gate.as_fd(), &[1])).map_err(|error| failed(error.into()))?;
        let spawned = spawner
            .join()
            .map_err(|_panic| failed(io::Error::other("the starting thread panicked")))?;
        self.state = State::Running(spawned.map_err(failed)?);
        Ok(())
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> io::Result<ChildExit> {
        let status = match &mut self.state {
            State::Running(child) => child.wait()?,
            State::Ended(exit) => return Ok(*exit),
            State::Held { .. } => return Err(io::Error::other("the command was not released yet")),
        };
        Ok(self.ended(status))
    }

    /// How it ended, if it has.
    pub fn try_wait(&mut self) -> io::Result<Option<ChildExit>> {
        let status = match &mut self.state {
            State::Running(child) => child.try_wait()?,
            State::Ended(exit) => return Ok(Some(*exit)),
            State::Held { .. } => None,
        };
        Ok(status.map(|status| self.ended(status)))
    }

    /// Passes a signal on that was sent to us alone. (Ctrl-C reaches the child by itself: it is in our process group.)
    pub fn forward(&self, signal: Signal) -> io::Result<()> {
        self.process.signal(signal)
    }

    fn ended(&mut self, status: ExitStatus) -> ChildExit {
        let exit = ChildExit::of(status);
        self.state = State::Ended(exit);
        exit
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        // Closing the gate makes a held child end; joining the spawner reaps it (`Command::spawn` waits for a child
        // that fails before exec).
        if let State::Held { gate, spawner } =
            std::mem::replace(&mut self.state, State::Ended(ChildExit::Signal(0)))
        {
            drop(gate);
            drop(spawner.join());
        }
    }
}

/// `None` if the child never got as far as to report.
fn read_pid(told: &OwnedFd) -> Option<Pid> {
    let mut bytes = [0; 4];
    let count = retry_on_intr(|| read(told.as_fd(), &mut bytes)).ok()?;
    (count == bytes.len()).then(|| Pid(u32::from_ne_bytes(bytes)))
}

fn reason(spawner: JoinHandle<io::Result<Child>>) -> io::Error {
    match spawner.join() {
        Ok(Err(error)) => error,
        Ok(Ok(_)) | Err(_) => io::Error::other("the child ended before it was ready"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn start(program: &str, args: &[&str]) -> Spawned {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        Spawned::start(OsStr::new(program), &args, &[]).unwrap()
    }

    #[test]
    fn a_held_child_runs_only_after_its_release() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark");
        let mut spawned = start("touch", &[mark.to_str().unwrap()]);
        thread::sleep(Duration::from_millis(50));
        assert!(spawned.process().is_alive() && !mark.exists());
        assert_eq!(
            spawned.process().exe().unwrap(),
            std::env::current_exe().unwrap()
        );
        spawned.release().unwrap();
        assert_eq!(spawned.wait().unwrap(), ChildExit::Code(0));
        assert!(mark.exists());
        assert_eq!(spawned.wait().unwrap(), ChildExit::Code(0));
    }

    #[test]
    fn codes_and_signals_come_back() {
        let run = |program: &str, args: &[&str]| {
            let mut spawned = start(program, args);
            spawned.release().unwrap();
            spawned.wait().unwrap()
        };
        assert_eq!(run("sh", &["-c", "exit 7"]), ChildExit::Code(7));
        assert_eq!(run("sh", &["-c", "kill -9 $$"]), ChildExit::Signal(9));
        assert_eq!(ChildExit::Signal(9).code(), 137);
        assert_eq!(run("sh", &["-c", r#"test "$0" = sh"#]), ChildExit::Code(0));
    }

    #[test]
    fn a_child_that_is_never_released_ends_without_running() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark");
        let spawned = start("touch", &[mark.to_str().unwrap()]);
        let process = spawned.process().clone();
        drop(spawned);
        assert!(!process.is_alive() && !mark.exists());
        assert!(matches!(
            Process::open(process.pid()),
            Err(TargetError::NoSuchProcess { .. })
        ));
    }

    #[test]
    fn a_program_that_cannot_start_gives_the_reason_at_its_release() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/nonexistent/interpreter\n").unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let mut spawned = start(script.to_str().unwrap(), &[]);
        let error = spawned.release().unwrap_err();
        assert!(
            matches!(&error, TargetError::Spawn { source, .. } if source.kind() == io::ErrorKind::NotFound),
            "{error:?}"
        );
    }

    #[test]
    fn a_signal_is_forwarded() {
        let mut spawned = start("sleep", &["100"]);
        spawned.release().unwrap();
        assert_eq!(spawned.try_wait().unwrap(), None);
        spawned.forward(Signal::TERM).unwrap();
        assert_eq!(spawned.wait().unwrap(), ChildExit::Signal(15));
    }
}
