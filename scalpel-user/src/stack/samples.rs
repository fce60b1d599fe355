//! Sampled stacks, kept as addresses under the innermost open call until names are known.

use rustc_hash::FxHashMap;

use super::contexts::ROOT;
use super::frames::is_no_address;
use crate::event::{Pid, Sample, flags};
use crate::tree::Metrics;

/// Most distinct (parent, address) pairs kept; deeper parts of later stacks are left out.
const MAX_STEPS: usize = 1 << 20;

/// A context, or a step of a sampled stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Context(u32),
    Step(u32),
}

/// One address of a sampled stack, inside its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Step {
    pub(super) parent: Place,
    /// Address space; 0 = the kernel.
    pub(super) space: u32,
    /// An address inside the instruction that ran, or that called.
    pub(super) address: u64,
}

/// An open call, as far as samples need it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) context: u32,
    pub(super) site: u64,
    pub(super) timed: bool,
    /// A call of a language runtime: it has no return address of its own in the stack.
    pub(super) language: bool,
}

/// Samples of one place on one thread in one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    pub(super) begin: u64,
    pub(super) thread: u32,
    pub(super) place: Place,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    steps: Vec<Step>,
    ids: FxHashMap<Step, u32>,
    /// Samples and ns.
    pub(super) counts: FxHashMap<Slot, (u64, u64)>,
    /// What was waited there.
    pub(super) waits: FxHashMap<Slot, Waited>,
}

/// Waits of one place on one thread in one window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waited {
    pub(super) waits: u64,
    pub(super) ns: u64,
    /// Of those, without a processor although it could have gone on.
    pub(super) preempted_ns: u64,
    /// Of those, for a device.
    pub(super) io_ns: u64,
}

impl Waited {
    pub(super) fn metrics(&self) -> Metrics {
        Metrics {
            waits: self.waits,
            off_cpu_ns: self.ns,
            preempted_ns: self.preempted_ns,
            io_wait_ns: self.io_ns,
            ..Metrics::default()
        }
    }

    /// Adds a part of a wait.
    pub(super) fn add(&mut self, ns: u64, why: u16) {
        let of = |flag: u16| if why & flag != 0 { ns } else { 0 };
        self.ns = self.ns.saturating_add(ns);
        self.preempted_ns = self.preempted_ns.saturating_add(of(flags::PREEMPTED));
        self.io_ns = self.io_ns.saturating_add(of(flags::IO_WAIT));
    }
}

impl Samples {
    /// The waits that are told by their sum are nobody's: their place is the thread's root.
    pub(super) fn place_of_wait(
        &mut self,
        sample: &Sample,
        space: u32,
        open: impl Iterator<Item = Open>,
    ) -> Place {
        match sample.event.flags & flags::UNTOLD {
            0 => self.place(sample, space, open),
            _ => Place::Context(ROOT),
        }
    }

    /// Steps in order of number: parents before children.
    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Addresses to be named, each once.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (Pid, u64)> {
        self.steps
            .iter()
            .map(|step| (Pid(step.space), step.address))
    }

    /// Where a sample belongs. `open`: the thread's open calls, innermost first.
    pub(super) fn place(
        &mut self,
        sample: &Sample,
        space: u32,
        open: impl Iterator<Item = Open>,
    ) -> Place {
        let (context, inside) = anchor(&sample.user, open);
        let inner_first = sample.user.get(..inside).unwrap_or_default();
        let mut place = Place::Context(context);
        for (index, &address) in inner_first.iter().enumerate().rev() {
            place = self.step(place, space, call_address(index, address));
        }
        for (index, &address) in sample.kernel.iter().enumerate().rev() {
            place = self.step(place, 0, call_address(index, address));
        }
        place
    }

    fn step(&mut self, parent: Place, space: u32, address: u64) -> Place {
        let step = Step {
            parent,
            space,
            address,
        };
        if let Some(&known) = self.ids.get(&step) {
            return Place::Step(known);
        }
        if self.steps.len() >= MAX_STEPS {
            return parent;
        }
        let id = self.steps.len() as u32;
        self.steps.push(step);
        self.ids.insert(step, id);
        Place::Step(id)
    }
}

/// The frame that the sampler stopped in is named by its instruction; the others by their return address, which may
/// already lie in the next function: one byte before it is the call.
const fn call_address(index: usize, address: u64) -> u64 {
    if index == 0 {
        address
    } else {
        address.wrapping_sub(1)
    }
}

/// The open call that the stack passes through, and how many of the addresses lie inside it.
///
/// The call's return address stands in the stack one place outside the function's own address, which is kept: it may
/// be that of a leaf without a frame of its own, whose caller's place in the stack nobody filled. If none is found the
/// stack was cut, or hidden by return probes: then the innermost measured call is still open, and only the innermost
/// address is sure to be inside it. The same goes for a call of a language runtime: the native frames outside of it are the
/// interpreter's, and those of calls that surround it.
fn anchor(user: &[u64], open: impl Iterator<Item = Open>) -> (u32, usize) {
    let mut innermost_timed = None;
    for call in open {
        if call.timed && call.language && innermost_timed.is_none() {
            return (call.context, user.len().min(1));
        }
        let site = user
            .iter()
            .position(|&address| address == call.site && !is_no_address(address));
        match site {
            // Its own return address is where it runs: inside the return probe the kernel shows the thread there
            // already (`fixup_uretprobe_trampoline_entries`).
            Some(0) if call.timed => return (call.context, 0),
            Some(position) if position > 0 => return (call.context, position),
            _ => {}
        }
        if call.timed {
            innermost_timed = innermost_timed.or(Some(call.context));
        }
    }
    match innermost_timed {
        Some(context) => (context, user.len().min(1)),
        None => (ROOT, user.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Open calls, innermost first: context and return address; a language's has none.
    fn check(user: &[u64], open: &[(u32, u64)], expect: (u32, usize)) {
        let open = open.iter().map(|&(context, site)| Open {
            context,
            site,
            timed: true,
            language: site == 0,
        });
        assert_eq!(anchor(user, open), expect, "{user:x?}");
    }

    #[test]
    fn a_sample_belongs_to_the_innermost_open_call() {
        let stack = [0x10_0000, 0x20_0000, 0x30_0000, 0x40_0000];
        check(&stack, &[(2, 0x20_0000), (1, 0x40_0000)], (2, 1));
        check(&stack, &[(3, 0), (2, 0x30_0000)], (3, 1));
        check(&stack, &[(3, 0x20_0000), (2, 0), (1, 0x40_0000)], (3, 1));
        check(&stack, &[], (ROOT, 4));
    }

    #[test]
    fn a_native_call_whose_return_address_is_hidden_is_still_the_innermost() {
        check(&[0x10_0000, 0x20_0000], &[(3, 0x50_0000), (2, 0)], (3, 1));
    }
}
