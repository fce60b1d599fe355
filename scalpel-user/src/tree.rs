//! The calling-context tree: contexts interned once, and what was measured in each, per time window and thread.
//!
//! The data that the stack stage fills and the genome stores. Must not know events or files.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::event::{FuncId, Pid, Tid};

/// A context: one path of functions from a thread's root. 0 is the root itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContextId(pub u32);

impl ContextId {
    /// The root: no function.
    pub const ROOT: Self = Self(0);
}

/// What a context's edge from its parent is known from. A context seen both ways is [`EdgeSource::Exact`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EdgeSource {
    /// Debug information: the callee's code is a part of the caller's, and samples were taken in it.
    Inlined,
    /// Sampled stacks only.
    Sampled,
    /// The return address at entry named the caller, and the caller is not itself probed.
    CallSite,
    /// Entry events of both functions.
    Exact,
}

impl EdgeSource {
    /// Short stable word for tables and JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Inlined => "inlined",
            Self::Sampled => "sampled",
            Self::CallSite => "call-site",
            Self::Exact => "exact",
        }
    }
}

/// One node of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Parent.
    pub parent: ContextId,
    /// Function; `None` only for the root and for `[folded]` nodes.
    pub func: Option<FuncId>,
    /// How the edge from the parent is known.
    pub source: EdgeSource,
}

/// Contexts of which no two are one path: told apart by parent, function, and whether it is inlined.
#[derive(Clone, Debug)]
pub struct Contexts {
    all: Vec<Context>,
    ids: FxHashMap<Path, ContextId>,
}

/// Parent, function, and whether it is inlined there: one function may be called and inlined by the same other one.
type Path = (ContextId, Option<FuncId>, bool);

impl Contexts {
    /// These, whose parents come first; the root alone of none.
    pub fn of(mut all: Vec<Context>) -> Self {
        if all.is_empty() {
            all.push(Context {
                parent: ContextId::ROOT,
                func: None,
                source: EdgeSource::Exact,
            });
        }
        let ids = (0u32..)
            .zip(&all)
            .skip(1)
            .map(|(id, context)| {
                let inlined = context.source == EdgeSource::Inlined;
                ((context.parent, context.func, inlined), ContextId(id))
            })
            .collect();
        Self { all, ids }
    }

    /// Makes room for so many more.
    pub fn reserve(&mut self, contexts: usize) {
        self.all.reserve(contexts);
        self.ids.reserve(contexts);
    }

    /// The context of this path, whose edge is known from `source` too.
    pub fn intern(
        &mut self,
        parent: ContextId,
        func: Option<FuncId>,
        source: EdgeSource,
    ) -> ContextId {
        let next = ContextId(self.all.len() as u32);
        let path = (parent, func, source == EdgeSource::Inlined);
        let id = *self.ids.entry(path).or_insert(next);
        match self.all.get_mut(id.0 as usize) {
            Some(known) => known.source = known.source.max(source),
            None => self.all.push(Context {
                parent,
                func,
                source,
            }),
        }
        id
    }

    /// By their ids.
    pub fn all(&self) -> &[Context] {
        &self.all
    }

    /// By their ids.
    pub fn into_all(self) -> Vec<Context> {
        self.all
    }
}

/// What was measured in one context. Times in ns. All fields add up under merging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Metrics {
    /// Entries seen: exact unless `lost` says otherwise.
    pub calls: u64,
    /// Calls whose end was seen or safely concluded: the calls that the times below cover.
    pub timed: u64,
    /// Of those, calls whose CPU time was measured too: 0 with calls in `timed` means that CPU time is not known.
    pub cpu_timed: u64,
    /// Wall time in the function itself.
    pub self_wall_ns: u64,
    /// CPU time in the function itself.
    pub self_cpu_ns: u64,
    /// Wall time including callees.
    pub total_wall_ns: u64,
    /// CPU time including callees.
    pub total_cpu_ns: u64,
    /// Samples whose innermost frame is this context.
    pub samples: u64,
    /// Sum of the periods of those samples, in ns of CPU time (0 when the period is not time).
    pub sampled_ns: u64,
    /// Calls closed because a frame below them returned: exception or long jump.
    pub unwound: u64,
    /// Calls whose end was concluded, not seen.
    pub inferred: u64,
    /// Events lost while this context was innermost, as far as gaps tell.
    pub lost: u64,
    /// Calls made by a tail jump.
    pub tail_calls: u64,
    /// Events seen by probes within this context, itself included: times the probe cost = perturbation.
    pub probe_events: u64,
    /// Running time before the first suspension of calls that were suspended, callees included. Part of `total_wall_ns`.
    pub pre_await_ns: u64,
    /// Time that calls were suspended and then went on. Never part of any other time.
    pub suspended_ns: u64,
    /// Waits for a processor, a device or anything else with this context innermost, as far as they were told.
    pub waits: u64,
    /// Time off the processor in those waits.
    pub off_cpu_ns: u64,
    /// Part of it in which the thread could have gone on and had no processor, from the moment it lost it.
    pub preempted_ns: u64,
    /// Part of it in which the thread waited for a device.
    pub io_wait_ns: u64,
}

impl Metrics {
    /// Adds `other`, field by field. Foreign numbers may be absurd: a sum stops at the largest number.
    pub fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.timed = self.timed.saturating_add(other.timed);
        self.cpu_timed = self.cpu_timed.saturating_add(other.cpu_timed);
        self.self_wall_ns = self.self_wall_ns.saturating_add(other.self_wall_ns);
        self.self_cpu_ns = self.self_cpu_ns.saturating_add(other.self_cpu_ns);
        self.total_wall_ns = self.total_wall_ns.saturating_add(other.total_wall_ns);
        self.total_cpu_ns = self.total_cpu_ns.saturating_add(other.total_cpu_ns);
        self.samples = self.samples.saturating_add(other.samples);
        self.sampled_ns = self.sampled_ns.saturating_add(other.sampled_ns);
        self.unwound = self.unwound.saturating_add(other.unwound);
        self.inferred = self.inferred.saturating_add(other.inferred);
        self.lost = self.lost.saturating_add(other.lost);
        self.tail_calls = self.tail_calls.saturating_add(other.tail_calls);
        self.probe_events = self.probe_events.saturating_add(other.probe_events);
        self.pre_await_ns = self.pre_await_ns.saturating_add(other.pre_await_ns);
        self.suspended_ns = self.suspended_ns.saturating_add(other.suspended_ns);
        self.waits = self.waits.saturating_add(other.waits);
        self.off_cpu_ns = self.off_cpu_ns.saturating_add(other.off_cpu_ns);
        self.preempted_ns = self.preempted_ns.saturating_add(other.preempted_ns);
        self.io_wait_ns = self.io_wait_ns.saturating_add(other.io_wait_ns);
    }
}

/// A thread of the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Process.
    pub pid: Pid,
    /// Thread.
    pub tid: Tid,
    /// Name (`comm`), empty if unknown.
    pub name: String,
    /// Events seen.
    pub events: u64,
    /// Events lost: the sum of its sequence gaps.
    pub lost: u64,
}

/// Measurements of one context on one thread in one time window. (window, thread, context) is unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Window number: windows are `Tree::window_ns` long and count from the recording's start.
    pub window: u32,
    /// Index into `Tree::threads`.
    pub thread: u32,
    /// Context.
    pub context: ContextId,
    /// What was measured.
    pub metrics: Metrics,
}

/// Log-linear duration histogram of one function: bucket numbers by [`Histogram::bucket_of`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// (bucket, count), sorted by bucket, no zero counts.
    pub buckets: Vec<(u16, u64)>,
}

impl Histogram {
    /// The bucket of a duration in ns: below 8 ns one bucket per ns, then eight per doubling. At most 495.
    pub const fn bucket_of(ns: u64) -> u16 {
        scalpel_common::count::bucket_of(ns)
    }

    /// The smallest duration in ns that falls into `bucket`; `u64::MAX` past the last one.
    pub const fn bucket_start(bucket: u16) -> u64 {
        if bucket < 8 {
            return bucket as u64;
        }
        let octave = (bucket / 8 - 1) as u32;
        let mantissa = (bucket % 8 + 8) as u64;
        if octave > 60 {
            u64::MAX
        } else {
            mantissa << octave
        }
    }
}

/// What the calls of one function returned: the bits of the register that holds a result, where that was asked for.
/// `calls` = the calls of all values + `other` + calls that ended without a value, or did not end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Returns {
    /// Calls of the function, in the recordings that asked.
    pub calls: u64,
    /// Values, and how many calls returned them.
    pub values: BTreeMap<i64, Returned>,
    /// Calls that returned a value which is not among them.
    pub other: u64,
    /// Least and greatest value of all.
    pub range: Option<(i64, i64)>,
}

/// How many calls returned one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Returned {
    /// So many did.
    pub calls: u64,
    /// And no more: in another recording it may be among the other values.
    pub exact: bool,
}

impl Returns {
    /// Calls that returned a value.
    pub fn seen(&self) -> u64 {
        let calls = self.values.values().map(|returned| returned.calls);
        calls.fold(self.other, u64::saturating_add)
    }

    /// Calls that did not, as far as anybody saw.
    pub fn without(&self) -> u64 {
        self.calls.saturating_sub(self.seen())
    }

    /// Adds what the calls of other recordings returned: in any order and by any steps the sum is the same.
    pub fn add(&mut self, more: &Self) {
        for (value, returned) in &mut self.values {
            returned.exact &= more.other == 0 || more.values.contains_key(value);
        }
        for (value, returned) in &more.values {
            let exact = returned.exact;
            let fresh = Returned {
                calls: 0,
                exact: self.other == 0,
            };
            let sum = self.values.entry(*value).or_insert(fresh);
            sum.calls = sum.calls.saturating_add(returned.calls);
            sum.exact &= exact;
        }
        self.calls = self.calls.saturating_add(more.calls);
        self.other = self.other.saturating_add(more.other);
        self.range = match (self.range, more.range) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (range, None) | (None, range) => range,
        };
    }
}

/// A finished tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Length of a time window in ns.
    pub window_ns: u64,
    /// Contexts by id; index 0 is the root.
    pub contexts: Vec<Context>,
    /// Threads by index.
    pub threads: Vec<Thread>,
    /// Cells, in any order.
    pub cells: Vec<Cell>,
    /// Inclusive wall-time histogram per function, outermost activations only.
    pub histograms: Vec<(FuncId, Histogram)>,
    /// The same of inclusive CPU time, where calls were counted.
    pub cpu_histograms: Vec<(FuncId, Histogram)>,
    /// What functions returned, where that was asked for; sorted by function.
    pub returns: Vec<(FuncId, Returns)>,
    /// What the stream itself showed to be wrong, per function.
    pub faults: Vec<(FuncId, FunctionFaults)>,
    /// Nodes folded away by the caps, and how many calls went into them.
    pub folded_calls: u64,
}

/// What went wrong with one function's events: the reason for its error bars. All fields add up under merging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FunctionFaults {
    /// EXIT without ENTER: missed entry, or a call that began before the attach.
    pub missed_enter: u64,
    /// Calls cut by the end of the recording or of the thread.
    pub open_at_end: u64,
    /// Calls closed by their parent because the kernel's return depth was exceeded.
    pub depth_limited: u64,
    /// Calls cut by a loss.
    pub cut_by_loss: u64,
    /// Calls whose return probe was refused.
    pub return_refused: u64,
}

impl FunctionFaults {
    /// Adds `other`, field by field, up to the largest number.
    pub fn add(&mut self, other: &Self) {
        self.missed_enter = self.missed_enter.saturating_add(other.missed_enter);
        self.open_at_end = self.open_at_end.saturating_add(other.open_at_end);
        self.depth_limited = self.depth_limited.saturating_add(other.depth_limited);
        self.cut_by_loss = self.cut_by_loss.saturating_add(other.cut_by_loss);
        self.return_refused = self.return_refused.saturating_add(other.return_refused);
    }
}

#[cfg(test)]
mod tests {
    use super::Histogram;

    #[test]
    fn a_bucket_starts_at_the_first_duration_that_falls_into_it() {
        for bucket in 0..=495 {
            let start = Histogram::bucket_start(bucket);
            assert_eq!(Histogram::bucket_of(start), bucket);
            assert!(start == 0 || Histogram::bucket_of(start - 1) == bucket - 1);
        }
        assert_eq!(Histogram::bucket_of(u64::MAX), 495);
        assert_eq!(Histogram::bucket_start(496), u64::MAX);
    }
}
