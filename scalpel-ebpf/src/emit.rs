//! Putting one event into the CPU's ring, and counting those that find no room.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;

use aya_ebpf::bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP};
use aya_ebpf::helpers::generated::{bpf_get_smp_processor_id, bpf_ringbuf_query};
use scalpel_common::event::{Event, Kind, Source};
use scalpel_common::kernel::{LOSS_CLASSES, LossClass, Settings, ThreadState};

use crate::maps::{CALL_RINGS, CallRing, FUNCTION_LOSSES, HITS, LOSSES};
use crate::thread::{self, Stamp};

/// How full the ring is is asked once in so many events of a thread: the question costs more than an addition.
const ASK_EVERY: u32 = 32;

/// What of an event differs from call to call.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    /// Thread group id.
    pub(crate) pid: u32,
    /// Thread id.
    pub(crate) tid: u32,
    /// Function id.
    pub(crate) func: u32,
    /// Which loss it is if there is no room.
    pub(crate) class: LossClass,
    /// `Kind`.
    pub(crate) kind: Kind,
    /// `Event::flags`.
    pub(crate) flags: u16,
    /// `Event::frame`.
    pub(crate) frame: u64,
    /// `Event::site`.
    pub(crate) site: u64,
    /// `Event::value`.
    pub(crate) value: u64,
}

/// Writes a call event, stamped after its place is reserved.
#[inline(always)]
pub(crate) fn call(settings: &Settings, state: *mut ThreadState, call: Call) {
    put(settings, state, call, || thread::stamp(state));
}

/// Writes a call event with a stamp that was taken before.
#[inline(always)]
pub(crate) fn put(
    settings: &Settings,
    state: *mut ThreadState,
    call: Call,
    stamp: impl FnOnce() -> Stamp,
) {
    let seq = thread::next_seq(state);
    let cpu = cpu();
    let Some(ring) = CALL_RINGS.get(cpu & settings.ring_mask) else {
        return lost(settings, call.class, call.func);
    };
    let Some(mut slot) = ring.reserve(0) else {
        return lost(settings, call.class, call.func);
    };
    let stamp = stamp();
    write(&mut slot, call, seq, cpu, stamp);
    slot.submit(wakeup(settings, ring, seq));
}

#[inline(always)]
fn write(slot: &mut MaybeUninit<Event>, call: Call, seq: u32, cpu: u32, stamp: Stamp) {
    slot.write(Event {
        time: stamp.time,
        cpu_ns: stamp.cpu_ns,
        pid: call.pid,
        tid: call.tid,
        func: call.func,
        seq,
        frame: call.frame,
        site: call.site,
        value: call.value,
        kind: call.kind as u8,
        source: Source::Uprobe as u8,
        flags: call.flags,
        cpu: cpu as u16,
        weight: 0,
        reserved: 0,
    });
}

#[inline(always)]
fn wakeup(settings: &Settings, ring: &CallRing, seq: u32) -> u64 {
    if seq.is_multiple_of(ASK_EVERY) && fill(ring) >= settings.wake_threshold {
        u64::from(BPF_RB_FORCE_WAKEUP)
    } else {
        u64::from(BPF_RB_NO_WAKEUP)
    }
}

#[inline(always)]
fn fill(ring: &CallRing) -> u64 {
    let map: *mut c_void = ptr::from_ref(ring).cast_mut().cast();
    // SAFETY: the map is a ring buffer: the verifier checks it.
    unsafe { bpf_ringbuf_query(map, u64::from(BPF_RB_AVAIL_DATA)) }
}

/// The processor. It stays the same during a program.
#[inline(always)]
pub(crate) fn cpu() -> u32 {
    // SAFETY: the helper has no precondition.
    unsafe { bpf_get_smp_processor_id() }
}

/// Counts an entry of a function.
#[inline(always)]
pub(crate) fn hit(settings: &Settings, func: u32) {
    if let Some(count) = HITS.get_ptr_mut((cpu() & settings.ring_mask) * settings.functions + func)
    {
        add(count);
    }
}

/// Counts an event that was lost, by CPU and class and by function. Not inlined: it is off the hot path, and one copy
/// a program keeps the verifier's work small.
#[inline(never)]
pub(crate) fn lost(settings: &Settings, class: LossClass, func: u32) {
    count_class(class);
    let stripe = if class as u32 == LossClass::Exit as u32 {
        settings.functions
    } else {
        0
    };
    if func != 0
        && let Some(count) = FUNCTION_LOSSES.get_ptr_mut(stripe + func)
    {
        add(count);
    }
}

/// Counts what belongs to no function.
#[inline(always)]
pub(crate) fn count_class(class: LossClass) {
    if let Some(counts) = LOSSES.get_ptr_mut(0) {
        // SAFETY: classes are below LOSS_CLASSES, the length of the array.
        add(unsafe {
            counts
                .cast::<u64>()
                .add(class as usize & (LOSS_CLASSES - 1))
        });
    }
}

/// Programs may be preempted in the middle, and CPUs share a counter: a plain `+= 1` lost 0.2 % on two CPUs.
#[inline(always)]
fn add(count: *mut u64) {
    // `AtomicU64::fetch_add` is missing for this target: the compiler's description of it says "no atomics", the
    // instruction is there since the first BPF.
    #[cfg(target_arch = "bpf")]
    // SAFETY: the pointer is a map value, aligned to 8 and alive during the program.
    unsafe {
        core::arch::asm!("lock *(u64 *)({count} + 0) += {one}", count = in(reg) count, one = in(reg) 1u64);
    }
    #[cfg(not(target_arch = "bpf"))]
    {
        // SAFETY: as above. Only so that the host's clippy can read this package.
        unsafe { core::sync::atomic::AtomicU64::from_ptr(count) }
            .fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    }
}
