//! The state of a thread: whether it is watched, its sequence number, and its time off the processor.

use core::cell::UnsafeCell;
use core::ptr;

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::helpers::generated::bpf_jiffies64;
use scalpel_common::kernel::{LossClass, Settings, ThreadState, settings_flags};

use crate::emit;
use crate::fields::Task;
use crate::maps::{SETTINGS, THREADS, WATCHED};

/// The lease as this side keeps it: until which jiffy the lease that the collector wrote last is good.
///
/// A read of the real clock would cost each event some 20 ns, and the kernel's coarse clock is closed to tracing
/// programs; the jiffy is one load. Each new lease is translated once, by whoever sees it first.
struct Lease {
    /// The `Settings::lease_until` that was translated.
    until: UnsafeCell<u64>,
    /// The same in jiffies.
    jiffies: UnsafeCell<u64>,
}

// SAFETY: programs on all CPUs read and write it, each field whole, in the order that `is_live` argues for.
unsafe impl Sync for Lease {}

static LEASE: Lease = Lease {
    until: UnsafeCell::new(0),
    jiffies: UnsafeCell::new(0),
};

/// Length of a jiffy where the collector does not tell: the longest that x86 has (HZ = 100), which ends leases early
/// rather than late.
const LONGEST_JIFFY_NS: u32 = 10_000_000;

impl Lease {
    #[inline(always)]
    fn is_live(&self, until: u64, jiffy_ns: u32) -> bool {
        // SAFETY: an aligned word that lives as long as the program.
        if unsafe { self.until.get().read_volatile() } != until {
            self.translate(until, jiffy_ns);
        }
        // The jiffies are written before `until`: whoever saw the new `until` sees them too (x86 keeps the order of
        // stores and that of loads).
        // SAFETY: as above; the helper has no precondition.
        unsafe { bpf_jiffies64() < self.jiffies.get().read_volatile() }
    }

    #[inline(never)]
    fn translate(&self, until: u64, jiffy_ns: u32) {
        let jiffy_ns = if jiffy_ns == 0 {
            LONGEST_JIFFY_NS
        } else {
            jiffy_ns
        };
        // SAFETY: the helpers have no precondition.
        let (now, jiffies) = unsafe { (bpf_ktime_get_ns(), bpf_jiffies64()) };
        let left = until.saturating_sub(now) / u64::from(jiffy_ns);
        // SAFETY: an aligned word that lives as long as the program.
        unsafe { self.jiffies.get().write_volatile(jiffies + left) };
        // SAFETY: as above.
        unsafe { self.until.get().write_volatile(until) };
    }
}

/// The settings, while the collector's lease lasts: a collector that was stopped or killed costs its target no more
/// than this.
#[inline(always)]
pub(crate) fn settings() -> Option<&'static Settings> {
    let settings = SETTINGS.get(0)?;
    // SAFETY: the slot lives as long as the program. The collector writes it: hence the volatile read.
    let lease_until = unsafe { (&raw const settings.lease_until).read_volatile() };
    LEASE
        .is_live(lease_until, settings.jiffy_ns)
        .then_some(settings)
}

/// Whether a process is watched.
#[inline(always)]
pub(crate) fn is_watched(settings: &Settings, pid: u32) -> bool {
    settings.flags & settings_flags::ALL_PROCESSES != 0 || WATCHED.get_ptr(pid).is_some()
}

/// The state of the running thread, if its process is watched.
///
/// A thread that was found in the set once is not looked up again until a process leaves the set: its own storage,
/// which every event needs anyhow, remembers. A stranger never gets storage.
#[inline(always)]
pub(crate) fn watched(settings: &Settings, task: Task, pid: u32) -> Option<*mut ThreadState> {
    if let Some(state) = THREADS.state(task) {
        // SAFETY: the storage lives as long as its thread, and only the thread itself comes here.
        if unsafe { (*state).watch_epoch } == settings.watch_epoch {
            return Some(state);
        }
        if !is_watched(settings, pid) {
            return None;
        }
        // SAFETY: as above.
        unsafe { (*state).watch_epoch = settings.watch_epoch };
        return Some(state);
    }
    if is_watched(settings, pid) {
        begin(settings, task)
    } else {
        None
    }
}

/// The state of the running thread, if the lease lasts and its process is watched; else null.
#[inline(never)]
pub(crate) fn current() -> *mut ThreadState {
    let Some(settings) = settings() else {
        return ptr::null_mut();
    };
    // A load: the helper that gives the same costs a call.
    let task = Task::current();
    watched(settings, task, task.pid()).unwrap_or(ptr::null_mut())
}

#[inline(never)]
pub(crate) fn begin(settings: &Settings, task: Task) -> Option<*mut ThreadState> {
    let state = THREADS.state_or_new(task);
    if let Some(state) = state {
        // SAFETY: the storage lives as long as its thread, which is new to everybody.
        let state = unsafe { &mut *state };
        // Time before the first event counts as off the processor: `cpu_ns` begins at 0.
        // SAFETY: the helper has no precondition.
        state.off_cpu_ns = unsafe { bpf_ktime_get_ns() };
        state.watch_epoch = settings.watch_epoch;
        state.space = space_of(task);
    }
    if state.is_none() {
        emit::count_class(LossClass::ThreadState);
    }
    state
}

/// The space that the calls of the task's process are counted in.
#[inline(always)]
fn space_of(task: Task) -> u32 {
    // Read once: two loads of the same shape may become one instruction, which the verifier refuses for two kinds of
    // pointers.
    let pid = task.pid();
    // SAFETY: the entry lives as long as the program.
    WATCHED.get_ptr(pid).map_or(pid, |process| unsafe {
        (&raw const (*process).space).read_volatile()
    })
}

/// A clock read and the thread's CPU time at that very moment.
#[derive(Clone, Copy)]
pub(crate) struct Stamp {
    /// `CLOCK_MONOTONIC` ns.
    pub(crate) time: u64,
    /// CPU ns of the thread since its first event.
    pub(crate) cpu_ns: u64,
}

/// How long the thread was off the processor since it left it, if its arrival was not told; it runs now.
///
/// Kernels do let threads run without a word (on Linux 6.18 some of 1,000 switches of a busy machine: the tracepoint's other
/// users miss them too). Their own account of CPU time tells then how much of the time the thread has run.
#[inline(always)]
pub(crate) fn off_untold(state: &ThreadState, task: Task, now: u64) -> u64 {
    let left_at = state.switched_out_at;
    if left_at == 0 {
        return 0;
    }
    let ran = task.ran().wrapping_sub(state.ran_at_leave);
    now.wrapping_sub(left_at).saturating_sub(ran)
}

/// Takes note of an arrival of the running thread that was not told.
#[inline(never)]
fn arrive_untold(state: *mut ThreadState) {
    // SAFETY: the helper has no precondition.
    let now = unsafe { bpf_ktime_get_ns() };
    // SAFETY: the storage lives as long as the running thread.
    let state = unsafe { &mut *state };
    let off = off_untold(state, Task::current(), now);
    state.off_cpu_ns = state.off_cpu_ns.wrapping_add(off);
    state.switched_out_at = 0;
}

/// Reads the clock and the off-CPU sum with no switch of the thread between them: the number of switches is read
/// before and after. A program may be preempted (not migrated) anywhere. Two tries lose to two switches within a few
/// ns each, which no scheduler does; the last one stands.
#[inline(always)]
pub(crate) fn stamp(state: *mut ThreadState) -> Stamp {
    // SAFETY: the storage lives as long as the running thread, and a thread that runs has arrived.
    if unsafe { (&raw const (*state).switched_out_at).read_volatile() } != 0 {
        arrive_untold(state);
    }
    let (first, switched) = try_stamp(state);
    if !switched {
        return first;
    }
    let (second, switched) = try_stamp(state);
    if !switched {
        return second;
    }
    try_stamp(state).0
}

#[inline(always)]
fn try_stamp(state: *mut ThreadState) -> (Stamp, bool) {
    // SAFETY: the storage lives as long as the running thread; `sched_switch` writes it while the thread is off the
    // processor, hence the volatile reads.
    let before = unsafe { (&raw const (*state).switches).read_volatile() };
    // SAFETY: the helper has no precondition.
    let time = unsafe { bpf_ktime_get_ns() };
    // SAFETY: as the first.
    let off_cpu_ns = unsafe { (&raw const (*state).off_cpu_ns).read_volatile() };
    // SAFETY: as the first.
    let after = unsafe { (&raw const (*state).switches).read_volatile() };
    (
        Stamp {
            time,
            cpu_ns: time.wrapping_sub(off_cpu_ns),
        },
        before != after,
    )
}

/// The state's next sequence number. It is taken before a slot is reserved: a gap is a loss.
#[inline(always)]
pub(crate) fn next_seq(state: *mut ThreadState) -> u32 {
    // SAFETY: only programs on this thread's own calls write `seq`, and they do not nest.
    let seq = unsafe { &raw mut (*state).seq };
    // SAFETY: as above.
    let next = unsafe { ptr::read(seq) }.wrapping_add(1);
    // SAFETY: as above.
    unsafe { seq.write_volatile(next) };
    next
}

/// The number of the thread's next `SWITCH_IN`. The thread is at rest: nobody else writes it.
#[inline(always)]
pub(crate) fn next_switch(state: *mut ThreadState) -> u32 {
    // SAFETY: the storage lives as long as the thread, which the switch runs on behalf of.
    let seq = unsafe { &raw mut (*state).switch_seq };
    // SAFETY: as above.
    let next = unsafe { ptr::read(seq) }.wrapping_add(1);
    // SAFETY: as above.
    unsafe { seq.write_volatile(next) };
    next
}
