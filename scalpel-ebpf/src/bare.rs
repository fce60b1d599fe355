//! The floors that `cargo xtask bench` measures against: what any tracer pays at least at the same place.

use aya_ebpf::bindings::BPF_RB_NO_WAKEUP;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use scalpel_common::event::Event;

use crate::call::Hit;
use crate::emit;
use crate::maps::{CALL_RINGS, SETTINGS};

/// Nothing; the return is probed too.
#[inline(always)]
pub(crate) const fn empty(_: &Hit) -> u32 {
    0
}

/// One 64-byte record at the entry and one at the return: reserved, stamped and submitted, otherwise empty.
#[inline(always)]
pub(crate) fn two_records(_: &Hit) -> u32 {
    if let Some(settings) = SETTINGS.get(0)
        && let Some(ring) = CALL_RINGS.get(emit::cpu() & settings.ring_mask)
        && let Some(mut slot) = ring.reserve(0)
    {
        // SAFETY: the helper has no precondition.
        let time = unsafe { bpf_ktime_get_ns() };
        slot.write(Event {
            time,
            ..Event::default()
        });
        slot.submit(u64::from(BPF_RB_NO_WAKEUP));
    }
    0
}
