//! A process of ours without rights, in which the bytes of strangers are read.
//!
//! Executables are parsed while a recording holds the rights of root. So this program starts itself once more, hands open
//! files over, and takes answers back: whoever finds a fault in a parser is then nobody, in a process that can open no
//! file, make no socket and execute nothing. The answers are judged like everything else that comes from outside.
//!
//! Must not know what is read, nor what the answers mean.

mod channel;
mod confine;
mod meter;

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use caps::CapSet;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

pub use channel::{Channel, Message};
pub use meter::{Meter, serve as serve_meter};

/// What this program is told to do, as its first argument, to be the other side.
const ARGUMENT: &str = "reader";

/// The confined process, and the way to it.
#[derive(Debug)]
pub struct Sandbox {
    channel: Channel,
    child: Child,
}

/// This program can be the other side: `main` says so. Programs that only use this library are not started again.
static CAN_BE_STARTED: AtomicBool = AtomicBool::new(false);

/// Says that this program obeys the words by which it is started again.
pub fn can_be_started() {
    CAN_BE_STARTED.store(true, Ordering::Relaxed);
}

/// CPU time in ns of all that have ended.
static CPU_NS: AtomicU64 = AtomicU64::new(0);

/// CPU time in ns of all confined readers that have ended.
pub fn cpu_ns() -> u64 {
    CPU_NS.load(Ordering::Relaxed)
}

fn can_start() -> bool {
    CAN_BE_STARTED.load(Ordering::Relaxed)
}

impl Sandbox {
    /// Starts one where this process has rights that a stranger could want; the error says why it could not be confined.
    pub fn start_if_wanted() -> Option<io::Result<Self>> {
        let has_rights = rustix::process::geteuid().is_root()
            || caps::read(None, CapSet::Permitted).is_ok_and(|held| !held.is_empty());
        (has_rights && can_start()).then(Self::start)
    }

    /// Starts one: this very program, whatever lies at its path by now.
    fn start() -> io::Result<Self> {
        Self::of(Command::new("/proc/self/exe").arg(ARGUMENT).env_clear())
    }

    /// The process of a command whose standard input is the channel.
    pub(crate) fn of(command: &mut Command) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let child = command
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        let mut sandbox = Self {
            channel: Channel::new(ours),
            child,
        };
        match sandbox.channel.receive()? {
            Some(word) if word.bytes.is_empty() => Ok(sandbox),
            Some(word) => Err(io::Error::other(String::from_utf8_lossy(&word.bytes))),
            None => Err(io::Error::other(format!(
                "it ended: {}",
                sandbox.cause_of_death()
            ))),
        }
    }

    /// The way to it.
    pub const fn channel(&mut self) -> &mut Channel {
        &mut self.channel
    }

    /// Its CPU time is ours: it reads for us. Its other threads, if it has any, are not counted.
    fn account(&self) {
        let file = format!("/proc/{}/schedstat", self.child.id());
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let used = text.split(' ').next().and_then(|used| used.parse().ok());
        CPU_NS.fetch_add(used.unwrap_or(0), Ordering::Relaxed);
    }

    /// How it ended, for people, after the channel to it broke.
    pub fn cause_of_death(mut self) -> String {
        self.account();
        drop(self.channel);
        match self.child.wait() {
            Ok(status) => match (status.signal(), status.code()) {
                (Some(signal), _) => format!("signal {signal}"),
                (_, code) => format!("exit code {}", code.unwrap_or_default()),
            },
            Err(error) => error.to_string(),
        }
    }

    /// Ends it.
    pub fn end(mut self) -> io::Result<()> {
        self.account();
        drop(self.channel);
        self.child.wait().map(drop)
    }
}

/// On the other side: gives up all rights, and says so. The channel, which is standard input.
pub fn enter() -> io::Result<Channel> {
    entered(confine::confine)
}

fn entered(confine: impl FnOnce() -> io::Result<()>) -> io::Result<Channel> {
    let mut channel = Channel::new(rustix::io::dup(rustix::stdio::stdin())?);
    let confined = confine();
    let word = confined.as_ref().err().map(ToString::to_string);
    channel.send(word.unwrap_or_default().as_bytes(), &[])?;
    confined.map(|()| channel)
}
