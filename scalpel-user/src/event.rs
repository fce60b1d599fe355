//! The collector's words for what happened: the shared 64-byte event and the typed numbers around it.
//!
//! All stages name this module and `scalpel_common`, and never each other.

use std::fmt;
use std::num::NonZeroU32;

pub use scalpel_common::event::{
    CPU_NOT_MEASURED, EVENT_SIZE, EVENT_VERSION, Event, Kind, Source, flags,
};

macro_rules! number {
    ($(#[$meta:meta])* $name:ident($inner:ty)) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// Thread group id in the initial pid namespace.
    Pid(u32)
);
number!(
    /// Thread id in the initial pid namespace.
    Tid(u32)
);
number!(
    /// `CLOCK_MONOTONIC` in ns.
    MonoTime(u64)
);

/// A virtual address, a file offset or a link-time address: the field's name says which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Addr(pub u64);

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A function in one recording: index into its `FunctionTable`, from 1. Doubles as attach cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FuncId(pub NonZeroU32);

impl FuncId {
    /// The id with this number, or `None` for 0.
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }

    /// The number on the wire.
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

/// Which events of a thread share one sequence of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Calls that the kernel sees: numbered from 1.
    Calls,
    /// Switches, numbered apart: one may come in the middle of a probe that has its number already.
    Switches,
    /// What probes within the process write, of whatever language: one thread, one lane at a time.
    Probes,
}

impl Stream {
    /// The stream that events of a source number belong to.
    pub const fn of(source: u8) -> Self {
        if source == Source::Sched as u8 {
            Self::Switches
        } else if source >= Source::Python as u8 {
            Self::Probes
        } else {
            Self::Calls
        }
    }
}

/// A sampled stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When, where and on which thread; `value` is the period in ns or cycles.
    pub event: Event,
    /// User frames, innermost first: the instruction pointer, then return addresses.
    pub user: Vec<u64>,
    /// Kernel frames, innermost first.
    pub kernel: Vec<u64>,
    /// What the user frames are still to be found in: never written to a file.
    pub copy: Option<Box<StackCopy>>,
}

/// The stack of a thread that was off the processor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackCopy {
    /// `rbp`; instruction and stack pointer are `site` and `frame` of the event.
    pub bp: u64,
    /// Time of the thread's waits that are told by this sum alone, in ns.
    pub short_ns: u64,
    /// How many.
    pub short_waits: u32,
    /// The stack from the stack pointer up.
    pub bytes: Vec<u8>,
}

/// Something that changed what processes there are and what they have mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// A process or thread was born.
    Fork {
        /// When.
        time: MonoTime,
        /// Process that forked.
        parent: Pid,
        /// The new thread's process: `parent` for a thread.
        child: Pid,
        /// The new thread.
        tid: Tid,
        /// Name of the thread (`comm`).
        name: String,
    },
    /// A process replaced its program.
    Exec {
        /// When.
        time: MonoTime,
        /// Process.
        pid: Pid,
        /// Path as the kernel knows it.
        path: String,
    },
    /// A thread ended.
    Exit {
        /// When.
        time: MonoTime,
        /// Process.
        pid: Pid,
        /// Thread.
        tid: Tid,
        /// Wait status (`status << 8 | signal`), if it was the last thread of its process.
        process_ended: Option<u32>,
    },
    /// A process mapped an executable file, or had it mapped when the recording began.
    Map {
        /// When.
        time: MonoTime,
        /// Process.
        pid: Pid,
        /// First address.
        start: Addr,
        /// One past the last address.
        end: Addr,
        /// File offset of `start`, in bytes.
        offset: u64,
        /// Path as the process sees it.
        path: String,
    },
}

impl Control {
    /// When it happened.
    pub const fn time(&self) -> MonoTime {
        match self {
            Self::Fork { time, .. }
            | Self::Exec { time, .. }
            | Self::Exit { time, .. }
            | Self::Map { time, .. } => *time,
        }
    }
}

/// Changes as tests need them.
#[cfg(test)]
pub(crate) mod made {
    use super::{Control, MonoTime, Pid, Tid};

    pub(crate) fn fork(time: u64, parent: u32, child: u32) -> Control {
        Control::Fork {
            time: MonoTime(time),
            parent: Pid(parent),
            child: Pid(child),
            tid: Tid(child),
            name: String::new(),
        }
    }

    pub(crate) fn process_ended(time: u64, pid: u32) -> Control {
        Control::Exit {
            time: MonoTime(time),
            pid: Pid(pid),
            tid: Tid(pid),
            process_ended: Some(0),
        }
    }

    pub(crate) fn exec(time: u64, pid: u32, path: &str) -> Control {
        Control::Exec {
            time: MonoTime(time),
            pid: Pid(pid),
            path: path.into(),
        }
    }
}
