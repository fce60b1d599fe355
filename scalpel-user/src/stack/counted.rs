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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{FuncId, MonoTime, Pid};
    use crate::input::CountedTimes;
    use crate::stack::Options;
    use crate::tree::{Cell, Tree};

    fn func(number: u32) -> FuncId {
        FuncId::new(number).unwrap()
    }

    fn edge(callee: u32, site: CountedSite, calls: u64) -> CountedEdge {
        CountedEdge {
            pid: Pid(9),
            func: func(callee),
            site,
            calls,
            timed: calls,
            unwound: 0,
            refused: 0,
            self_wall_ns: 10 * calls,
            self_cpu_ns: 5 * calls,
            total_wall_ns: 100 * calls,
            total_cpu_ns: 50 * calls,
            probe_events: 2 * calls,
        }
    }

    fn tree(counts: &[Counts], resolve: impl Fn(u64) -> Option<FuncId>) -> Tree {
        let mut builder = Builder::new(Options::default());
        counts.iter().for_each(|counts| builder.counts(counts));
        builder.finish(MonoTime(5_000_000_000), &mut |_, address| resolve(address))
    }

    fn counts(edges: Vec<CountedEdge>) -> Counts {
        Counts {
            edges,
            ..Counts::default()
        }
    }

    /// Caller, callee, cell.
    fn edges(tree: &Tree) -> Vec<(Option<u32>, u32, Cell)> {
        let func = |id: crate::tree::ContextId| tree.contexts[id.0 as usize].func.map(FuncId::get);
        let cells = tree.cells.iter().map(|cell| {
            let parent = tree.contexts[cell.context.0 as usize].parent;
            (func(parent), func(cell.context).unwrap(), *cell)
        });
        cells.collect()
    }

    #[test]
    fn times_of_counted_calls_are_sums_already_and_are_not_added_to_their_callers() {
        let inner = edge(2, CountedSite::Jump(func(1)), 3);
        let outer = edge(1, CountedSite::Unknown, 1);
        let tree = tree(&[counts(vec![outer, inner])], |_| None);
        let seen: Vec<_> = edges(&tree)
            .iter()
            .map(|(caller, callee, cell)| {
                let m = cell.metrics;
                (
                    *caller,
                    *callee,
                    m.calls,
                    m.self_wall_ns,
                    m.total_wall_ns,
                    m.tail_calls,
                )
            })
            .collect();
        assert_eq!(
            seen,
            [(None, 1, 1, 10, 100, 0), (Some(1), 2, 3, 30, 300, 3)]
        );
    }

    #[test]
    fn a_caller_that_is_not_probed_is_named_at_the_end_however_many_sites_it_has() {
        let sites = (0..100u64).map(|n| edge(2, CountedSite::Address(0x10_0000 + 16 * n), 1));
        let tree = tree(&[counts(sites.collect())], |_| Some(func(7)));
        let edges = edges(&tree);
        assert!(
            edges.iter().all(|(caller, ..)| *caller == Some(7)),
            "{edges:?}"
        );
        let calls: u64 = edges.iter().map(|(_, _, cell)| cell.metrics.calls).sum();
        assert_eq!(calls, 100);
    }

    #[test]
    fn what_is_no_address_names_no_caller() {
        let tree = tree(&[counts(vec![edge(2, CountedSite::Address(1), 1)])], |_| {
            Some(func(7))
        });
        assert_eq!(edges(&tree)[0].0, None);
    }

    #[test]
    fn refused_returns_and_histograms_of_several_readings_add_up() {
        let reading = |is_cpu| Counts {
            edges: vec![CountedEdge {
                refused: 4,
                ..edge(3, CountedSite::Unknown, 5)
            }],
            times: vec![CountedTimes {
                func: func(3),
                is_cpu,
                buckets: vec![(7, 2), (9, 1), (u16::MAX, 1)],
            }],
            ..Counts::default()
        };
        let tree = tree(&[reading(false), reading(true), reading(false)], |_| None);
        assert_eq!(tree.faults[0].1.return_refused, 12);
        assert_eq!(tree.histograms[0].1.buckets, [(7, 4), (9, 2)]);
        assert_eq!(tree.cpu_histograms[0].1.buckets, [(7, 2), (9, 1)]);
        assert_eq!(tree.threads[0].events, 30);
        assert_eq!((tree.threads[0].pid, tree.threads[0].tid), (Pid(9), Tid(0)));
    }
}
