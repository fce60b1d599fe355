//! Lays complete calls into the tree.

use rustc_hash::FxHashMap;

use super::Shared;
use super::complete::Record;
use super::frames::is_no_address;
use super::nodes::{Call, NodeId};
use super::samples::Open;
use super::thread::Thread;
use crate::event::CPU_NOT_MEASURED;
use crate::tree::Metrics;

/// A record whose children are being looked for.
struct Parent {
    start: u64,
    begin: u64,
    frame: u64,
    site: u64,
    timed: bool,
    node: NodeId,
}

/// (window begin, node) -> what was measured.
type Measured = FxHashMap<(u64, NodeId), Metrics>;

impl Thread {
    /// Settles the records that need not, or cannot, wait any longer.
    pub(super) fn settle_completed(&mut self, all: bool, shared: &mut Shared) {
        let records = self.pending.take(all);
        if records.is_empty() {
            return;
        }
        let base = self.frames.open.last().map_or(0, |top| top.node);
        let mut parents: Vec<Parent> = Vec::new();
        let mut measured = Measured::default();
        for record in records.iter().rev() {
            while parents
                .pop_if(|parent| record.start < parent.start)
                .is_some()
            {}
            match &record.sample {
                Some(sample) => {
                    let open = parents.iter().rev().map(|parent| Open {
                        context: self.nodes.get(parent.node).context,
                        site: parent.site,
                        timed: parent.timed,
                        // Nothing but whole native calls is in such a stream.
                        language: false,
                    });
                    shared.lay_sample(sample, self.index, self.space, open);
                }
                None => self.settle_call(record, base, &mut parents, &mut measured, shared),
            }
        }
        for ((begin, node), metrics) in measured {
            shared
                .cells
                .add(begin, self.index, self.nodes.get(node).context, metrics);
        }
    }

    fn settle_call(
        &mut self,
        record: &Record,
        base: NodeId,
        parents: &mut Vec<Parent>,
        measured: &mut Measured,
        shared: &mut Shared,
    ) {
        let above = parents.last();
        let tail = above.is_some_and(|parent| parent.frame == record.frame && parent.timed);
        let site = if tail || is_no_address(record.site) {
            0
        } else {
            record.site
        };
        let call = Call {
            func: record.func,
            site,
        };
        let node = self
            .link_of(above.map_or(base, |parent| parent.node), call, shared)
            .node;
        let begin = shared.window_around(record.start).0;
        let wall_ns = record.end.saturating_sub(record.start);
        let cpu_known = record.cpu_ns != CPU_NOT_MEASURED;
        let cpu_ns = if cpu_known { record.cpu_ns } else { 0 };
        let metrics = measured.entry((begin, node)).or_default();
        metrics.calls += 1;
        metrics.tail_calls += u64::from(tail);
        metrics.probe_events += record.events;
        if !record.timed {
            return;
        }
        metrics.timed += 1;
        metrics.cpu_timed += u64::from(cpu_known);
        metrics.self_wall_ns = metrics.self_wall_ns.saturating_add(wall_ns);
        metrics.self_cpu_ns = metrics.self_cpu_ns.saturating_add(cpu_ns);
        // A parent is met before its children: what they take is taken off it here, in its own window.
        if let Some(parent) = parents.last() {
            let above = measured.entry((parent.begin, parent.node)).or_default();
            above.self_wall_ns = above.self_wall_ns.saturating_sub(wall_ns);
            above.self_cpu_ns = above.self_cpu_ns.saturating_sub(cpu_ns);
        }
        if self.nodes.get(node).outermost {
            shared.histograms.add(record.func, wall_ns);
        }
        let (start, frame) = (record.start, record.frame);
        parents.push(Parent {
            start,
            begin,
            frame,
            site: record.site,
            timed: true,
            node,
        });
    }
}
