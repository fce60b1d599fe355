//! Layouts of the maps and rings between the BPF programs and the collector.
//!
//! Ring records are told apart by their ring: call rings carry bare [`Event`]s, the sample ring
//! [`SampleHeader`]s followed by frames, the control ring [`ControlRecord`]s.

use core::mem::offset_of;

use crate::event::Event;

/// Version of everything in this file; the collector refuses an object that carries another.
pub const KERNEL_ABI_VERSION: u32 = 1;

/// Number of call rings. A CPU uses ring `cpu % CALL_RINGS`.
pub const CALL_RINGS: usize = 8;

/// Most frames in one user or kernel stack of a sample.
pub const MAX_STACK_FRAMES: usize = 127;

/// Longest path in a [`ControlRecord`], in bytes; longer ones are cut.
pub const MAX_PATH: usize = 256;

/// Highest function id: size of the per-function counter arrays.
pub const MAX_FUNCTIONS: u32 = 1 << 17;

/// Programs of the object that are attached to functions. All stand in plain `uprobe` sections and read the attach
/// cookie; the collector loads them with the attach type it needs (session, multi, or none for perf uprobes).
pub mod programs {
    /// Entry and return in one (`uprobe session`): ENTER, and EXIT unless the stack guard refused the return.
    pub const CALL_SESSION: &str = "call_session";
    /// Entry of a function whose end is not observed: ENTER with `NO_EXIT`.
    pub const CALL_ENTRY: &str = "call_entry";
    /// Entry of a function whose end `CALL_RET` or `CALL_RETURN` observes: ENTER.
    pub const CALL_ENTER: &str = "call_enter";
    /// At a `ret` instruction, before it runs (the stack pointer is the one of the entry): EXIT with `RET_OFFSET`.
    pub const CALL_RET: &str = "call_ret";
    /// Return probe without a session: EXIT.
    pub const CALL_RETURN: &str = "call_return";
}

/// Maps that more than one side names.
pub mod maps {
    /// Array of one [`Settings`](super::Settings).
    pub const SETTINGS: &str = "SETTINGS";
    /// Array of u64 by function id (`BPF_F_MMAPABLE`, added to atomically): entries seen in watched processes.
    pub const HITS: &str = "HITS";
}

/// The attach cookie: function id and generation of the link it came through.
///
/// A link can't drop one of its offsets: to drop a hot function the collector attaches its group anew, without it, as
/// the next generation, and closes the old link afterwards. While both are attached every call runs both programs,
/// the newer link's first (the kernel adds consumers at the head of its list). So that it counts once, each program
/// leaves (function, generation) in its [`ThreadState`], and returns at once (session: 1) when it finds its own
/// function there with a newer generation.
pub const fn cookie(func: u32, generation: u32) -> u64 {
    func as u64 | (generation as u64) << 32
}

/// Function id of a [`cookie`].
pub const fn cookie_func(cookie: u64) -> u32 {
    cookie as u32
}

/// Generation of a [`cookie`].
pub const fn cookie_generation(cookie: u64) -> u32 {
    (cookie >> 32) as u32
}

/// One slot: everything the collector tells all programs. Written by the collector only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct Settings {
    /// `CLOCK_MONOTONIC` ns after which every program returns at once. The collector moves it on.
    pub lease_until: u64,
    /// Bytes in a call ring at which a producer wakes the collector; below it the collector's timer does.
    pub wake_threshold: u64,
    /// Bits of [`settings_flags`].
    pub flags: u32,
    /// [`KERNEL_ABI_VERSION`].
    pub abi_version: u32,
}

/// Bits of [`Settings::flags`].
pub mod settings_flags {
    /// Watch every process (no tgid set): used with `--comm` and `-a`.
    pub const ALL_PROCESSES: u32 = 1 << 0;
    /// Children of watched processes are watched from their fork on.
    pub const FOLLOW_FORKS: u32 = 1 << 1;
}

/// Value of the tgid set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct WatchedProcess {
    /// Start time of the process in ns of `CLOCK_BOOTTIME`, by which a reused pid is told apart.
    pub start_time: u64,
    /// Number of execs seen.
    pub exec_epoch: u32,
    /// Unused, 0.
    pub reserved: u32,
}

/// Per-thread state in task storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct ThreadState {
    /// Sum of the time off the processor in ns since first seen.
    pub off_cpu_ns: u64,
    /// When the thread left the processor; 0 while it runs.
    pub switched_out_at: u64,
    /// Sequence number of the thread's last event.
    pub seq: u32,
    /// Number of switches: read before and after a clock read, to see a switch between.
    pub switches: u32,
    /// Function of the last probe that ran on this thread, for the rule at [`cookie`].
    pub last_func: u32,
    /// Generation of that probe's link.
    pub last_generation: u32,
}

/// Which ring or reason lost an event; index into the loss counters of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum LossClass {
    /// A call ring was full at an ENTER.
    Enter = 0,
    /// A call ring was full at an EXIT or COMPLETE.
    Exit = 1,
    /// The sample ring was full.
    Sample = 2,
    /// The control ring was full.
    Control = 3,
    /// No task storage for the thread.
    ThreadState = 4,
    /// The return probe was refused by the stack guard: not a lost event, an unknown end.
    ReturnRefused = 5,
}

/// Number of [`LossClass`]es, with room.
pub const LOSS_CLASSES: usize = 8;

/// Head of a record in the sample ring; `user_frames` and then `kernel_frames` u64 addresses follow, innermost first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct SampleHeader {
    /// The sample: `value` is the period.
    pub event: Event,
    /// Number of user frames that follow.
    pub user_frames: u32,
    /// Number of kernel frames that follow the user frames.
    pub kernel_frames: u32,
}

/// What a [`ControlRecord`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ControlKind {
    /// `pid` forked or cloned: `other_pid`/`other_tid` is the child (same pid: a thread).
    Fork = 1,
    /// `pid` executed `path`.
    Exec = 2,
    /// Thread `tid` of `pid` ended; `value` is 1 if it was the last of its process.
    Exit = 3,
    /// `pid` mapped an executable file at `address`.
    Map = 4,
}

/// One record of the control ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct ControlRecord {
    /// `CLOCK_MONOTONIC` ns.
    pub time: u64,
    /// Map: first address. Exec, Fork: start time of the (child) process in ns of `CLOCK_BOOTTIME`.
    pub address: u64,
    /// Map: length in bytes.
    pub length: u64,
    /// Map: file offset in bytes. Exit: exit code as the kernel keeps it (status << 8 | signal).
    pub value: u64,
    /// A [`ControlKind`] number.
    pub kind: u32,
    /// Thread group.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Fork: thread group of the child. Exit: 1 if the last thread of its process ended.
    pub other_pid: u32,
    /// Fork: thread id of the child.
    pub other_tid: u32,
    /// Bytes used in `path`.
    pub path_len: u32,
    /// Exec, Map: path as the kernel knows it. Fork, Exit: the thread's `comm`.
    pub path: [u8; MAX_PATH],
}

const _: () = {
    assert!(size_of::<Settings>() == 24);
    assert!(size_of::<WatchedProcess>() == 16);
    assert!(size_of::<ThreadState>() == 32);
    assert!(cookie_func(cookie(7, 9)) == 7 && cookie_generation(cookie(7, 9)) == 9);
    assert!(size_of::<SampleHeader>() == 72);
    assert!(offset_of!(SampleHeader, user_frames) == 64);
    assert!(size_of::<ControlRecord>() == 56 + MAX_PATH);
    assert!(offset_of!(ControlRecord, kind) == 32);
    assert!(offset_of!(ControlRecord, path) == 56);
    assert!(align_of::<ControlRecord>() == 8);
};
