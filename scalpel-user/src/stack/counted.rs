//! Calls that the kernel counted: two levels of the tree, caller and callee, with times that are sums already.

use super::contexts::ROOT;
use super::finish::COUNTED;
use super::frames::is_no_address;
use super::{Builder, Shared};
use crate::event::Tid;
use crate::input::{CountedEdge, CountedSite, Counts};
use crate::tree::{EdgeSource, Metrics};

/// Stands for all threads of a process: what was counted is not told apart by thread.
const ALL_THREADS: Tid = Tid(0);

/// Its name.
const NAME: &str = "[all threads]";

impl Builder {
    /// Takes what was counted.
    pub fn counts(&mut self, counts: &Counts) {
        let begin = self.shared.window_around(counts.from.0).0;
        for edge in &counts.edges {
            let thread = self.index(edge.pid, ALL_THREADS);
            if let Some(slot) = self.threads.get_mut(thread as usize) {
                if slot.thread.name.is_empty() {
                    slot.thread.name = NAME.into();
                }
                slot.thread.events = slot
                    .thread
                    .events
                    .saturating_add(edge.calls)
                    .saturating_add(edge.timed);
            }
            let context = self.shared.counted_context(edge);
            if edge.refused > 0 {
                let fault = self.shared.fault(edge.func.get());
                fault.return_refused = fault.return_refused.saturating_add(edge.refused);
            }
            self.shared
                .cells
                .add(begin, thread, COUNTED | context, metrics(edge));
        }
        for times in &counts.times {
            let histograms = if times.is_cpu {
                &mut self.shared.cpu_histograms
            } else {
                &mut self.shared.histograms
            };
            for &(bucket, count) in &times.buckets {
                histograms.add_many(times.func.get(), bucket, count);
            }
        }
    }
}

impl Shared {
    fn counted_context(&mut self, edge: &CountedEdge) -> u32 {
        let (space, func) = (self.callers.space(edge.pid), edge.func.get());
        let caller = match edge.site {
            CountedSite::Unknown => {
                return self.contexts.child(ROOT, func, EdgeSource::Exact);
            }
            CountedSite::Jump(from) => Some(from.get()),
            CountedSite::Address(address) if is_no_address(address) => {
                return self.contexts.child(ROOT, func, EdgeSource::Exact);
            }
            CountedSite::Address(address) => self.callers.caller(space, address),
        };
        match (caller, edge.site) {
            (Some(caller), _) => {
                let caller = self.contexts.child(ROOT, caller, EdgeSource::CallSite);
                self.contexts.child(caller, func, EdgeSource::Exact)
            }
            (None, CountedSite::Address(address)) => {
                self.contexts.counted_from(func, space, address)
            }
            (None, _) => self.contexts.child(ROOT, func, EdgeSource::Exact),
        }
    }
}

fn metrics(edge: &CountedEdge) -> Metrics {
    let is_jump = matches!(edge.site, CountedSite::Jump(_));
    Metrics {
        calls: edge.calls,
        timed: edge.timed,
        cpu_timed: edge.timed,
        self_wall_ns: edge.self_wall_ns,
        self_cpu_ns: edge.self_cpu_ns,
        total_wall_ns: edge.total_wall_ns,
        total_cpu_ns: edge.total_cpu_ns,
        unwound: edge.unwound,
        tail_calls: if is_jump { edge.calls } else { 0 },
        probe_events: edge.probe_events,
        ..Metrics::default()
    }
}
