//! Layouts of the maps and rings between the BPF programs and the collector.
//!
//! Ring records are told apart by their ring: call rings carry bare [`Event`]s, the sample ring
//! [`SampleHeader`]s followed by frames, the control ring [`ControlRecord`]s.

use core::mem::offset_of;

use crate::event::Event;

/// Version of everything in this file; the collector refuses an object that carries another.
pub const KERNEL_ABI_VERSION: u32 = 4;

/// Most call rings; how many there are is [`Settings::ring_mask`] + 1.
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
    /// Return probe without a session: EXIT. Nothing can refuse a single return here: the stack guard works in sessions only.
    pub const CALL_RETURN: &str = "call_return";
    /// Entry and return in one (`uprobe session`): one COMPLETE record a call; ENTER with `NO_EXIT | RETURN_REFUSED`
    /// where the stack guard refused the return.
    pub const CALL_COMPLETE: &str = "call_complete";
    /// Counting, entry and return in one (`uprobe session`): the call's cell, its times and its histograms.
    pub const COUNT_SESSION: &str = "count_session";
    /// Counting, entry of a function whose end is not observed: the call's cell.
    pub const COUNT_ENTRY: &str = "count_entry";
    /// Counting, entry of a function whose end `COUNT_RET` or `COUNT_RETURN` observes.
    pub const COUNT_ENTER: &str = "count_enter";
    /// Counting, at a `ret` instruction.
    pub const COUNT_RET: &str = "count_ret";
    /// Counting, return probe without a session.
    pub const COUNT_RETURN: &str = "count_return";
    /// Floor of the bench (`uprobe session`, or an entry alone): does nothing.
    pub const BARE_EMPTY: &str = "bare_empty";
    /// Floor of the bench (`uprobe session`): only reserves, stamps and submits one 64-byte record at entry and one at return.
    pub const BARE_TWO_RECORDS: &str = "bare_two_records";
    /// `tp_btf/sched_switch`: keeps the [`ThreadState`](super::ThreadState) of threads that have one.
    pub const SCHED_SWITCH: &str = "sched_switch";
    /// `tp_btf/sched_process_fork`: control record, and the child joins the set of watched processes.
    pub const PROCESS_FORK: &str = "process_fork";
    /// `tp_btf/sched_process_exec`: control record, next exec epoch.
    pub const PROCESS_EXEC: &str = "process_exec";
    /// `tp_btf/sched_process_exit`: control record; the process leaves the set with its last thread.
    pub const PROCESS_EXIT: &str = "process_exit";
    /// Perf-event program: one record with user and kernel stack.
    pub const SAMPLE: &str = "sample";
    /// Iterator over tasks: a [`ThreadRegisters`](super::ThreadRegisters) for each thread of one process.
    pub const THREAD_REGISTERS: &str = "thread_registers";
    /// Iterator over tasks: tells the waits of watched threads that have not ended.
    pub const OPEN_WAITS: &str = "open_waits";
}

/// Maps that more than one side names.
pub mod maps {
    /// Array of one [`Settings`](super::Settings).
    pub const SETTINGS: &str = "SETTINGS";
    /// Array of u64 (`BPF_F_MMAPABLE`, added to atomically): entries seen in watched processes. Slot
    /// `(cpu & ring_mask) * functions + id`: one stripe a ring, so that CPUs do not fight for a cache line; a function's
    /// count is the sum over the stripes. The loader sets `max_entries` to stripes * functions.
    pub const HITS: &str = "HITS";
    /// Array of u64 (`BPF_F_MMAPABLE`): events of a function that found no room. ENTER in slot `id`, EXIT and COMPLETE in
    /// slot `functions + id`. The loader sets `max_entries` to 2 * functions.
    pub const FUNCTION_LOSSES: &str = "FUNCTION_LOSSES";
    /// Per-CPU array of one `[u64; LOSS_CLASSES]`.
    pub const LOSSES: &str = "LOSSES";
    /// Hash: tgid -> [`WatchedProcess`](super::WatchedProcess).
    pub const WATCHED: &str = "WATCHED";
    /// Array of maps with [`CALL_RINGS`](super::CALL_RINGS) slots; the loader fills the first `ring_mask + 1` with ring buffers.
    pub const CALL_RINGS: &str = "CALL_RINGS";
    /// Ring of samples.
    pub const SAMPLE_RING: &str = "SAMPLE_RING";
    /// Ring of [`ControlRecord`](super::ControlRecord)s.
    pub const CONTROL_RING: &str = "CONTROL_RING";
    /// Task storage: [`ThreadState`](super::ThreadState).
    pub const THREADS: &str = "THREADS";
    /// Task storage: [`OpenCalls`](super::OpenCalls), used by `call_complete` only.
    pub const OPEN_CALLS: &str = "OPEN_CALLS";
    /// Array of [`CountCell`](crate::count::CountCell)s (`BPF_F_MMAPABLE`): a hash table, probed linearly.
    pub const COUNT_CELLS: &str = "COUNT_CELLS";
    /// Array of [`CountHistogram`](crate::count::CountHistogram)s (`BPF_F_MMAPABLE`), claimed from the front.
    pub const COUNT_HISTOGRAMS: &str = "COUNT_HISTOGRAMS";
    /// Array of u32: index of a function's histogram + 1; 0 = it has none yet. Slot `stripe * functions + id`. The collector
    /// adds [`GONE`](crate::count::GONE) when it drops the function.
    pub const COUNT_SLOTS: &str = "COUNT_SLOTS";
    /// Array of u64 (`BPF_F_MMAPABLE`): what was claimed, by [`claims`](crate::count::claims).
    pub const COUNT_CLAIMS: &str = "COUNT_CLAIMS";
    /// Task storage: [`TimedCalls`](crate::count::TimedCalls).
    pub const TIMED_CALLS: &str = "TIMED_CALLS";
    /// Per-CPU array of one record: where a sample is put together.
    pub const SAMPLE_SCRATCH: &str = "SAMPLE_SCRATCH";
    /// Task storage: [`Wait`](crate::wait::Wait), where waits are told.
    pub const WAITS: &str = "WAITS";
}

/// A field of a kernel structure that programs read: the object's global, structure and path of fields.
///
/// aya-ebpf has no CO-RE for Rust. The collector looks the byte offset up in the kernel's BTF and writes it into the
/// global (read-only data, a constant for the verifier), so that the programs' typed loads are checked against the
/// running kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelField {
    /// Name of the u64 global in the object.
    pub global: &'static str,
    /// Kernel structure.
    pub structure: &'static str,
    /// Path of fields in it; members of anonymous structures and unions count as the structure's own.
    pub path: &'static [&'static str],
}

const fn field(
    global: &'static str,
    structure: &'static str,
    path: &'static [&'static str],
) -> KernelField {
    KernelField {
        global,
        structure,
        path,
    }
}

/// All fields that the programs read. One that is missing from the kernel's BTF means: this kernel can't be traced.
pub const KERNEL_FIELDS: &[KernelField] = &[
    field("TASK_PID", "task_struct", &["pid"]),
    field("TASK_TGID", "task_struct", &["tgid"]),
    field("TASK_MM", "task_struct", &["mm"]),
    field("TASK_FSBASE", "task_struct", &["thread", "fsbase"]),
    field("TASK_UTASK", "task_struct", &["utask"]),
    field("TASK_LEADER", "task_struct", &["group_leader"]),
    field("TASK_START_BOOTTIME", "task_struct", &["start_boottime"]),
    field("TASK_EXIT_CODE", "task_struct", &["exit_code"]),
    field("TASK_SIGNAL", "task_struct", &["signal"]),
    field("TASK_COMM", "task_struct", &["comm"]),
    field("TASK_STATE", "task_struct", &["__state"]),
    field("TASK_NVCSW", "task_struct", &["nvcsw"]),
    field("TASK_NIVCSW", "task_struct", &["nivcsw"]),
    field("TASK_RAN", "task_struct", &["se", "sum_exec_runtime"]),
    field("SIGNAL_LIVE", "signal_struct", &["live", "counter"]),
    field("MM_START_STACK", "mm_struct", &["start_stack"]),
    field("MM_XOL_AREA", "mm_struct", &["uprobes_state", "xol_area"]),
    field("XOL_AREA_VADDR", "xol_area", &["vaddr"]),
    field("UTASK_DEPTH", "uprobe_task", &["depth"]),
    field(
        "UTASK_RETURN_INSTANCES",
        "uprobe_task",
        &["return_instances"],
    ),
    field("RETURN_INSTANCE_STACK", "return_instance", &["stack"]),
    field(
        "RETURN_INSTANCE_ORIGINAL",
        "return_instance",
        &["orig_ret_vaddr"],
    ),
    field("RETURN_INSTANCE_NEXT", "return_instance", &["next"]),
    field("BPRM_FILENAME", "linux_binprm", &["filename"]),
];

/// Global (u64) that is 1 where the tracepoint `sched_process_exit` tells whether the last thread of its process ended
/// (its third argument in BTF, kernel 6.16), 0 where the programs must look at `signal->live`.
pub const EXIT_TELLS_LAST: &str = "EXIT_TELLS_LAST";

/// Globals (u64): byte offset in `task_struct` and mask of the bit `in_iowait`; a mask of 0 = this kernel has none.
pub const TASK_IO_WAIT: [&str; 2] = ["TASK_IO_WAIT", "TASK_IO_WAIT_MASK"];

/// Global (u64): the process, by its id in the initial pid namespace, whose threads
/// [`THREAD_REGISTERS`](programs::THREAD_REGISTERS) tells.
pub const LISTED_PROCESS: &str = "LISTED_PROCESS";

/// Where one thread will go on in user mode, as the kernel keeps it while the thread is in the kernel. What the iterator
/// [`THREAD_REGISTERS`](programs::THREAD_REGISTERS) writes, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct ThreadRegisters {
    /// Thread id in the initial pid namespace.
    pub tid: u32,
    /// `task_struct::__state`: 0 = running or runnable, and then the registers may be those of an earlier entry.
    pub state: u32,
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// `rbp`.
    pub bp: u64,
    /// `orig_rax`: number of the system call it is in; -1 = an interrupt or exception.
    pub syscall: i64,
    /// How often it left the processor so far: the same twice, and it has not run in between.
    pub switches: u64,
}

/// Size of the window below a thread's stack top in which the stack guard lets a return be probed, in bytes.
pub const STACK_WINDOW: u64 = 8 << 20;

/// The kernel's limit of pending return probes of a thread (`MAX_URETPROBE_DEPTH`); deeper ones are silently omitted.
pub const MAX_RETURN_DEPTH: usize = 64;

/// The attach cookie: function id and generation of the link it came through.
///
/// A link can't drop one of its offsets: to drop a hot function the collector attaches its group anew, without it, as
/// the next generation, and closes the old link afterwards. While both are attached every call runs both programs,
/// the newer link's first (the kernel adds consumers at the head of its list). So that it counts once, each program
/// leaves (function, generation) in its [`ThreadState`], and returns at once (session: 1) when it finds its own
/// function there with a newer generation. Entries and exits are told apart (top bit of `last_func`): their links are
/// re-created one after the other.
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
    /// Moved on whenever a process leaves the set: threads then look at the set again.
    pub watch_epoch: u32,
    /// Number of call rings less one; the number is a power of two. A CPU uses ring `cpu & ring_mask`.
    pub ring_mask: u32,
    /// Number of function ids, 0 included: stripe length of `HITS`, which has a stripe for each ring and, behind those,
    /// as many for entries in processes that are not watched.
    pub functions: u32,
    /// Length of a jiffy in ns (resolution of `CLOCK_MONOTONIC_COARSE`), by which programs watch the lease; 0 = 10 ms.
    pub jiffy_ns: u32,
    /// Moved on whenever links are replaced: ends of calls that are open then may go unseen, so those are not timed.
    pub count_epoch: u32,
    /// Number of cells less one; the number is a power of two.
    pub count_mask: u32,
    /// Waits shorter than this, in ns, are told by their sum alone.
    pub wait_min_ns: u64,
}

/// Bits of [`Settings::flags`].
pub mod settings_flags {
    /// Watch every process (no tgid set): used with `--comm` and `-a`.
    pub const ALL_PROCESSES: u32 = 1 << 0;
    /// Children of watched processes are watched from their fork on.
    pub const FOLLOW_FORKS: u32 = 1 << 1;
    /// Some process has [`process_flags::SWITCHES`](super::process_flags::SWITCHES).
    pub const SWITCHES: u32 = 1 << 2;
    /// Where threads are off the processor is told.
    pub const WAITS: u32 = 1 << 3;
}

/// Bits of [`WatchedProcess::flags`].
pub mod process_flags {
    /// Each time a thread of it is put on a processor is told (`SWITCH_IN`): a probe within the process writes events without
    /// CPU time, which this gives them.
    pub const SWITCHES: u32 = 1 << 0;
}

/// Value of the tgid set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct WatchedProcess {
    /// Start time of the process in ns of `CLOCK_BOOTTIME`, by which a reused pid is told apart.
    pub start_time: u64,
    /// Number of execs seen.
    pub exec_epoch: u32,
    /// Bits of [`process_flags`].
    pub flags: u32,
    /// The [`space`](crate::count::space) that its calls are counted in.
    pub space: u32,
    /// 0.
    pub reserved: u32,
}

/// Per-thread state in task storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct ThreadState {
    /// Sum of the time off the processor in ns, the time before it was first seen included: CPU time is clock - this. What a
    /// hypervisor steals from a processor counts as CPU time, other than in the kernel's own accounts.
    pub off_cpu_ns: u64,
    /// When the thread left the processor; 0 while it runs, as far as its arrival was told.
    pub switched_out_at: u64,
    /// The kernel's own account of the thread's CPU time in ns when it left, for arrivals that are not told.
    pub ran_at_leave: u64,
    /// Sequence number of the thread's last event.
    pub seq: u32,
    /// Number of switches: read before and after a clock read, to see a switch between.
    pub switches: u32,
    /// Function of the last probe that ran on this thread, for the rule at [`cookie`]; top bit set at an exit.
    pub last_func: u32,
    /// Generation of that probe's link.
    pub last_generation: u32,
    /// [`Settings::watch_epoch`] at which the thread's process was found in the set; 0 = never looked.
    pub watch_epoch: u32,
    /// Sequence number of the thread's last `SWITCH_IN`: a sequence of its own, as a switch may come in the middle of a probe.
    pub switch_seq: u32,
    /// [`WatchedProcess::space`].
    pub space: u32,
    /// 0.
    pub reserved: u32,
}

/// A call whose COMPLETE record is still to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct OpenCall {
    /// Its frame.
    pub frame: u64,
    /// `CLOCK_MONOTONIC` ns at its entry.
    pub time: u64,
    /// CPU time of the thread at its entry in ns.
    pub cpu_ns: u64,
    /// Its return address.
    pub site: u64,
}

/// Open calls of one thread, outermost first. No more can be open than the kernel keeps return probes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct OpenCalls {
    /// The calls; those from `depth` on are stale.
    pub calls: [OpenCall; MAX_RETURN_DEPTH],
    /// How many are open.
    pub depth: u64,
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
    /// The kernel skipped a program because it ran on that processor already (`bpf_prog_info.recursion_misses`).
    RecursionMiss = 6,
    /// A call ring was full at a `SWITCH_IN`: CPU times of language functions are too high until the next.
    Switch = 7,
    /// All cells were claimed: a call was counted without its caller and its times.
    CountCell = 8,
    /// All histograms were claimed: a call's times are in no histogram.
    CountHistogram = 9,
    /// The sample ring was full at the end of a wait, or there was no storage for its stack: its time is told without it.
    Wait = 10,
}

/// Number of [`LossClass`]es, with room.
pub const LOSS_CLASSES: usize = 16;

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
    assert!(size_of::<Settings>() == 56);
    assert!(size_of::<OpenCalls>() == 32 * MAX_RETURN_DEPTH + 8);
    assert!(size_of::<WatchedProcess>() == 24);
    assert!(size_of::<ThreadState>() == 56);
    assert!(cookie_func(cookie(7, 9)) == 7 && cookie_generation(cookie(7, 9)) == 9);
    assert!(size_of::<SampleHeader>() == 72);
    assert!(offset_of!(SampleHeader, user_frames) == 64);
    assert!(size_of::<ControlRecord>() == 56 + MAX_PATH);
    assert!(offset_of!(ControlRecord, kind) == 32);
    assert!(offset_of!(ControlRecord, path) == 56);
    assert!(align_of::<ControlRecord>() == 8);
};
