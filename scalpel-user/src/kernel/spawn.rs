//! A child process that waits before it executes its program, so that probes can be in place first.
//!
//! Knows fork and file descriptors only; which program, and when it may go on, is `target`'s.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::{Errno, read, retry_on_intr, write};

/// The child's ends of the two pipes between it and its parent.
#[derive(Debug)]
pub struct Gate {
    /// The child writes its pid here (4 bytes, native order) when it is ready.
    pub ready: OwnedFd,
    /// The child waits here for one byte. End of file means that the parent is gone or gave up.
    pub wait: OwnedFd,
    /// The parent's end of `wait`, of which the fork gives the child a copy that it must close: with it open, it
    /// would never see the end of file.
    pub parents_end: RawFd,
}

/// Makes the child of `command` report its pid and wait at `gate` between fork and exec.
///
/// `Command::spawn` itself then returns only after the gate was opened: call it on a thread of its own.
pub fn hold_before_exec(command: &mut Command, gate: Gate) {
    let hold = move || pass(&gate);
    // SAFETY: between fork and exec only async-signal-safe functions may run (pre_exec). `hold` makes the system calls
    // getpid, close, write and read, and builds its error from a number: it neither allocates nor locks.
    unsafe { command.pre_exec(hold) };
}

fn pass(gate: &Gate) -> io::Result<()> {
    // SAFETY: this runs in the forked child, which owns its copy of the descriptor and has no other user of it: the
    // parent's `OwnedFd` lives in the parent's memory, whose copy here is never dropped.
    unsafe { rustix::io::close(gate.parents_end) };
    let pid = std::process::id().to_ne_bytes();
    retry_on_intr(|| write(gate.ready.as_fd(), &pid))?;
    let mut byte = [0];
    match retry_on_intr(|| read(gate.wait.as_fd(), &mut byte))? {
        1 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(Errno::CANCELED.raw_os_error())),
    }
}

/// The number of a descriptor that the child will have to close, see [`Gate::parents_end`].
pub fn number_for_child(parents_end: &OwnedFd) -> RawFd {
    parents_end.as_raw_fd()
}
