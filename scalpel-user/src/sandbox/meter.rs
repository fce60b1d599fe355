//! A process that keeps one right, and can do one thing with it: have the kernel account for the run time of programs.
//!
//! That account is for `CAP_SYS_ADMIN` alone, with which anything could be done; a recording has given it up.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;

use super::{Sandbox, confine};

/// What this program is told to do, as its first argument, to be the other side.
const ARGUMENT: &str = "meter";

/// The process.
#[derive(Debug)]
pub struct Meter(Sandbox);

impl Meter {
    /// Starts it for root; `None` = whoever wants an account asks the kernel himself.
    pub fn start_if_wanted() -> Option<io::Result<Self>> {
        let is_root = rustix::process::geteuid().is_root();
        (is_root && super::can_start()).then(|| {
            let mut command = Command::new("/proc/self/exe");
            Sandbox::of(command.arg(ARGUMENT).env_clear()).map(Self)
        })
    }

    /// An account, kept as long as the descriptor is open; `None` = the kernel refuses.
    pub fn account(&mut self) -> io::Result<Option<OwnedFd>> {
        let channel = self.0.channel();
        channel.send(&[], &[])?;
        let message = channel.receive()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(message.files.into_iter().next())
    }
}

/// The other side: keeps the one right, and begins an account with `enable` for each message, until the channel ends.
pub fn serve(enable: impl Fn() -> Option<OwnedFd>) -> io::Result<()> {
    let mut channel = super::entered(confine::to_accounts)?;
    while channel.receive()?.is_some() {
        let account = enable();
        let held: Vec<_> = account.iter().map(AsFd::as_fd).collect();
        channel.send(&[], &held)?;
    }
    Ok(())
}
