//! Hardware breakpoints by perf events. The kernel takes them away with their descriptor, however the guardian ends;
//! debug registers that are set by ptrace would stay and kill.
use std::io;
use std::os::fd::OwnedFd;

use super::sys::{self, Tid};

const TYPE_BREAKPOINT: u64 = 5;
const ATTR_BYTES: u64 = 128;
const DISABLED: u64 = 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const REMOVE_ON_EXEC: u64 = 1 << 36;
const SIGTRAP: u64 = 1 << 37;
const ENABLE: u64 = 0x2400;
const DISABLE: u64 = 0x2401;
/// `_IOW('$', 11, struct perf_event_attr *)`
const MODIFY: u64 = 0x4008_240b;

/// What a breakpoint waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The instruction at the address is about to run.
    Run(u64),
    /// The word at the address was written.
    Write(u64),
}

/// What `si_perf_data` of our breakpoints is, but for its last byte.
pub(super) const MARK: u64 = 0x7363_616c_7065_6c00;

/// A breakpoint of one thread.
#[derive(Debug)]
pub(super) struct Breakpoint {
    event: OwnedFd,
    kind: Kind,
    enabled: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// It sends a signal that means nothing to the thread.
    Trigger,
    /// It sends SIGTRAP with this mark: the thread's handler has to be ours.
    Trap(u64),
}

impl Breakpoint {
    /// Sends `signal` to the thread when it does this. The signal must be one that the thread ignores: it then means
    /// nothing when nobody traces the thread any more.
    pub(super) fn trigger(tid: Tid, wait: Wait, signal: i32) -> io::Result<Self> {
        let kind = Kind::Trigger;
        let event = sys::perf_event(&attr(kind, wait, true), tid)?;
        sys::signal_thread(&event, tid, signal)?;
        let mut all = Self {
            event,
            kind,
            enabled: false,
        };
        all.enable(true)?;
        Ok(all)
    }

    /// Stops the thread by SIGTRAP, not enabled yet.
    pub(super) fn trap(tid: Tid, wait: Wait, number: u8) -> io::Result<Self> {
        let kind = Kind::Trap(MARK | u64::from(number));
        Ok(Self {
            event: sys::perf_event(&attr(kind, wait, true), tid)?,
            kind,
            enabled: false,
        })
    }

    /// Lets it wait for something else, enabled.
    pub(super) fn set(&mut self, wait: Wait) -> io::Result<()> {
        let attr = attr(self.kind, wait, false);
        sys::perf_control(&self.event, MODIFY, attr.as_ptr() as u64)?;
        // An event that was made disabled stays so, whatever the new attribute says.
        sys::perf_control(&self.event, ENABLE, 0)?;
        self.enabled = true;
        Ok(())
    }

    /// Switches it on or off.
    pub(super) fn enable(&mut self, on: bool) -> io::Result<()> {
        if self.enabled != on {
            sys::perf_control(&self.event, if on { ENABLE } else { DISABLE }, 0)?;
            self.enabled = on;
        }
        Ok(())
    }
}

fn attr(kind: Kind, wait: Wait, disabled: bool) -> [u64; 16] {
    let (what, addr) = match wait {
        Wait::Run(addr) => (4, addr),
        Wait::Write(addr) => (2, addr),
    };
    let mut flags = EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR;
    let mut data = 0;
    if disabled {
        flags |= DISABLED;
    }
    if let Kind::Trap(mark) = kind {
        flags |= REMOVE_ON_EXEC | SIGTRAP;
        data = mark;
    }
    let (period, wake, length) = (1, 1, 8);
    [
        TYPE_BREAKPOINT | ATTR_BYTES << 32,
        0,
        period,
        0,
        0,
        flags,
        wake | what << 32,
        addr,
        length,
        0,
        0,
        0,
        0,
        0,
        0,
        data,
    ]
}
