//! Putting one event into the CPU's ring, and counting those that find no room.

use core::ffi::c_void;
use core::ptr;

use aya_ebpf::bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP};
use aya_ebpf::helpers::generated::{
    bpf_get_current_pid_tgid, bpf_get_smp_processor_id, bpf_ringbuf_query,
};
use scalpel_common::event::{Event, Kind, Source};
use scalpel_common::kernel::{LOSS_CLASSES, LossClass, OpenCall, ThreadState};

use crate::add::one as add;
use crate::maps::{CALL_RINGS, CallRing, FUNCTION_LOSSES, HITS, LOSSES, SETTINGS};
use crate::thread;

/// How full the ring is is asked once in so many events of a thread: the question costs more than an addition.
const ASK_EVERY: u32 = 32;

/// Function, kind and flags of an event in one register: what the kernel calls a function with fits in five.
#[derive(Clone, Copy)]
pub(crate) struct What(u64);

impl What {
    /// From its parts.
    #[inline(always)]
    pub(crate) const fn new(kind: Kind, func: u32, flags: u16) -> Self {
        Self(func as u64 | (flags as u64) << 32 | (kind as u64) << 48)
    }

    #[inline(always)]
    const fn func(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    const fn flags(self) -> u16 {
        (self.0 >> 32) as u16
    }

    #[inline(always)]
    const fn kind(self) -> u8 {
        (self.0 >> 48) as u8
    }
}

/// Writes a call event, stamped after its place is reserved.
///
/// A function of its own, as everything here that keeps much at hand: see "The stack" in `main.rs`.
#[inline(never)]
pub(crate) fn call(state: *mut ThreadState, what: What, frame: u64, site: u64, value: u64) {
    put(state, what, |event| {
        (event.frame, event.site, event.value) = (frame, site, value);
        stamp(state, event);
    });
}

/// Writes COMPLETE for a call that ends now.
#[inline(never)]
pub(crate) fn complete(state: *mut ThreadState, what: What, call: &OpenCall) {
    put(state, what, |event| {
        (event.frame, event.site) = (call.frame, call.site);
        stamp(state, event);
        event.value = event.time.wrapping_sub(call.time);
        event.cpu_ns = event.cpu_ns.wrapping_sub(call.cpu_ns);
    });
}

/// Writes `SWITCH_IN` of a thread that goes on: its numbers come from the switch, and it never wakes the collector, as the
/// scheduler's lock is held.
#[inline(never)]
pub(crate) fn switched_in(state: *mut ThreadState, pid_tid: u64) {
    let seq = thread::next_switch(state);
    let Some(mut slot) = ring().and_then(|ring| ring.reserve(0)) else {
        return count_class(LossClass::Switch);
    };
    let event = slot.write(Event {
        pid: (pid_tid >> 32) as u32,
        tid: pid_tid as u32,
        seq,
        kind: Kind::SwitchIn as u8,
        source: Source::Sched as u8,
        cpu: cpu() as u16,
        ..Event::default()
    });
    stamp(state, event);
    slot.submit(u64::from(BPF_RB_NO_WAKEUP));
}

#[inline(always)]
fn stamp(state: *mut ThreadState, event: &mut Event) {
    let stamp = thread::stamp(state);
    (event.time, event.cpu_ns) = (stamp.time, stamp.cpu_ns);
}

#[inline(always)]
fn put(state: *mut ThreadState, what: What, fill: impl FnOnce(&mut Event)) {
    let seq = thread::next_seq(state);
    let Some(mut slot) = ring().and_then(|ring| ring.reserve(0)) else {
        return lost(what);
    };
    fill(slot.write(begin(what, seq)));
    slot.submit(wakeup(seq));
}

/// The event as far as it is the same for all: in the ring at once, so that nothing of it waits on the stack.
#[inline(always)]
fn begin(what: What, seq: u32) -> Event {
    // SAFETY: the helper has no precondition.
    let pid_tgid = unsafe { bpf_get_current_pid_tgid() };
    Event {
        pid: (pid_tgid >> 32) as u32,
        tid: pid_tgid as u32,
        func: what.func(),
        seq,
        kind: what.kind(),
        source: Source::Uprobe as u8,
        flags: what.flags(),
        cpu: cpu() as u16,
        ..Event::default()
    }
}

#[inline(always)]
fn ring() -> Option<&'static CallRing> {
    let settings = SETTINGS.get(0)?;
    CALL_RINGS.get(cpu() & settings.ring_mask)
}

#[inline(always)]
fn wakeup(seq: u32) -> u64 {
    if seq.is_multiple_of(ASK_EVERY) && is_filling() {
        u64::from(BPF_RB_FORCE_WAKEUP)
    } else {
        u64::from(BPF_RB_NO_WAKEUP)
    }
}

#[inline(never)]
fn is_filling() -> bool {
    let Some(settings) = SETTINGS.get(0) else {
        return false;
    };
    ring().is_some_and(|ring| fill(ring) >= settings.wake_threshold)
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
pub(crate) fn hit(func: u32) {
    if let Some(settings) = SETTINGS.get(0)
        && let Some(count) =
            HITS.get_ptr_mut((cpu() & settings.ring_mask) * settings.functions + func)
    {
        add(count);
    }
}

/// Counts an entry of a function in a process that is not watched: it pays for the probe all the same. These counters
/// lie behind those of [`hit`].
#[inline(never)]
pub(crate) fn foreign_hit(func: u32) {
    if let Some(settings) = SETTINGS.get(0) {
        let stripes = settings.ring_mask + 1;
        let stripe = stripes + (cpu() & settings.ring_mask);
        if let Some(count) = HITS.get_ptr_mut(stripe * settings.functions + func) {
            add(count);
        }
    }
}

/// Counts an event that was lost, by CPU and class and by function. Not inlined: it is off the hot path, and one copy
/// a program keeps the verifier's work small.
#[inline(never)]
fn lost(what: What) {
    let is_enter = what.kind() == Kind::Enter as u8;
    count_class(if is_enter {
        LossClass::Enter
    } else {
        LossClass::Exit
    });
    let stripe = match SETTINGS.get(0) {
        Some(settings) if !is_enter => settings.functions,
        _ => 0,
    };
    if what.func() != 0
        && let Some(count) = FUNCTION_LOSSES.get_ptr_mut(stripe + what.func())
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
