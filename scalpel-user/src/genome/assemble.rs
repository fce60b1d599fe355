//! Builds a genome from what a session hears: counters that stand, bounds, notes, names, and at the end the tree.
//!
//! A live recording and a replayed log go through the same [`Assembly`], so that both give the same genome.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use scalpel_common::kernel::LossClass;

use super::{BlindSpot, Counter, Genome, strangers};
use crate::catalog::{Catalog, FactsOfFiles, Matches};
use crate::event::{FuncId, MonoTime, Pid, Tid};
use crate::function::FunctionTable;
use crate::input::{Bound, KeptCall, Loss, RunInfo, Trigger};
use crate::tree::{Cell, ContextId, Tree};

/// A genome under construction.
#[derive(Clone, Debug, Default)]
pub struct Assembly {
    losses: FxHashMap<(LossClass, Option<u32>, Option<FuncId>), u64>,
    bounds: BTreeMap<FuncId, Bound>,
    notes: Vec<String>,
    counters: BTreeMap<Counter, u64>,
    blind_spots: Vec<BlindSpot>,
    names: FxHashMap<(Pid, Tid), String>,
    triggers: Vec<Trigger>,
    kept: Vec<KeptCall>,
    last_heard: MonoTime,
    ended: bool,
}

impl Assembly {
    /// Nothing heard yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Loss counters as they stand: they only grow, so the largest reading of each counts.
    pub fn losses(&mut self, losses: &[Loss]) {
        for loss in losses {
            let known = self
                .losses
                .entry((loss.class, loss.cpu, loss.func))
                .or_default();
            *known = loss.count.max(*known);
        }
    }

    /// A function is not watched, or not any longer. The widest doubt about a function wins: never watched before
    /// lower bound, an earlier time before a later one.
    pub fn bound(&mut self, bound: Bound) {
        match self.bounds.get(&bound.func) {
            Some(known) if known.since <= bound.since => {}
            _ => drop(self.bounds.insert(bound.func, bound)),
        }
    }

    /// Something the user should know; said twice it is kept once.
    pub fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// What a mechanism of this recording cannot see.
    pub fn blind_spot(&mut self, probe: &str, what: &str) {
        let spot = BlindSpot {
            probe: probe.to_owned(),
            what: what.to_owned(),
        };
        if let Err(place) = self.blind_spots.binary_search(&spot) {
            self.blind_spots.insert(place, spot);
        }
    }

    /// Adds to a counter.
    pub fn count(&mut self, counter: Counter, count: u64) {
        if count > 0 {
            let sum = self.counters.entry(counter).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    /// The triggers, as their counts stand: the last reading counts.
    pub fn triggers(&mut self, triggers: Vec<Trigger>) {
        self.triggers = triggers;
    }

    /// A call that a trigger kept.
    pub fn kept(&mut self, call: KeptCall) {
        self.kept.push(call);
    }

    /// Name of a thread; the last one stays.
    pub fn thread_name(&mut self, pid: Pid, tid: Tid, name: String) {
        self.names.insert((pid, tid), name);
    }

    /// Something was heard with this time. The latest one ends a recording that was cut.
    pub fn heard(&mut self, time: MonoTime) {
        self.last_heard = self.last_heard.max(time);
    }

    /// The recording ended by itself.
    pub fn ended(&mut self, time: MonoTime) {
        self.heard(time);
        self.ended = true;
    }

    /// The genome.
    pub fn finish(self, run: RunInfo, functions: FunctionTable, tree: Tree) -> Genome {
        let mut genome = self.put_together(run, functions, tree);
        strangers::take_in(&mut genome);
        genome
    }

    fn put_together(self, run: RunInfo, functions: FunctionTable, mut tree: Tree) -> Genome {
        merge_cells(&mut tree.cells);
        name_threads(&mut tree, &self.names);
        tree.faults.sort_unstable_by_key(|&(func, _)| func);
        tree.histograms.sort_unstable_by_key(|&(func, _)| func);
        tree.cpu_histograms.sort_unstable_by_key(|&(func, _)| func);
        tree.returns.sort_unstable_by_key(|&(func, _)| func);
        Genome {
            ended: self.last_heard.max(run.started),
            cut: !self.ended,
            run,
            functions,
            tree,
            losses: sorted(self.losses),
            bounds: self.bounds.into_values().collect(),
            notes: self.notes,
            counters: self.counters,
            blind_spots: self.blind_spots,
            triggers: self.triggers,
            kept: self.kept,
            catalog: Catalog::default(),
            facts: FactsOfFiles::default(),
            matches: Matches::default(),
        }
    }
}

/// Sorts cells by (window, thread, context) and adds up those of one place.
pub(super) fn merge_cells(cells: &mut Vec<Cell>) {
    let place = |cell: &Cell| -> (u32, u32, ContextId) { (cell.window, cell.thread, cell.context) };
    cells.sort_unstable_by_key(place);
    cells.dedup_by(|cell, kept| {
        let same = place(cell) == place(kept);
        if same {
            kept.metrics.add(&cell.metrics);
        }
        same
    });
}

fn name_threads(tree: &mut Tree, names: &FxHashMap<(Pid, Tid), String>) {
    for thread in &mut tree.threads {
        if let Some(name) = names.get(&(thread.pid, thread.tid)) {
            thread.name.clone_from(name);
        }
    }
}

fn sorted(losses: FxHashMap<(LossClass, Option<u32>, Option<FuncId>), u64>) -> Vec<Loss> {
    let mut losses: Vec<Loss> = losses
        .into_iter()
        .map(|((class, cpu, func), count)| Loss {
            class,
            cpu,
            func,
            count,
        })
        .collect();
    losses.retain(|loss| loss.count > 0);
    losses.sort_unstable_by_key(|loss| (loss.class, loss.cpu, loss.func));
    losses
}

#[cfg(test)]
mod tests {
    use super::Assembly;
    use crate::event::{FuncId, MonoTime};
    use crate::function::FunctionTable;
    use crate::genome::Genome;
    use crate::genome::tests::run;
    use crate::input::{Bound, Loss};
    use crate::tree::{Cell, ContextId, Metrics, Tree};
    use scalpel_common::kernel::LossClass;

    fn finish(assembly: Assembly, tree: Tree) -> Genome {
        assembly.finish(run(), FunctionTable::new(), tree)
    }

    fn bound(since: Option<u64>) -> Bound {
        Bound {
            func: FuncId::new(1).unwrap(),
            since: since.map(MonoTime),
            reason: format!("{since:?}"),
        }
    }

    #[test]
    fn counters_stand_so_the_largest_reading_counts() {
        let mut assembly = Assembly::new();
        for count in [5, 9, 9] {
            assembly.losses(&[Loss {
                class: LossClass::Enter,
                cpu: Some(1),
                func: None,
                count,
            }]);
        }
        assert_eq!(finish(assembly, Tree::default()).lost(), 9);
    }

    #[test]
    fn lost_samples_are_a_share_of_the_samples() {
        let mut assembly = Assembly::new();
        assembly.losses(&[Loss {
            class: LossClass::Sample,
            cpu: Some(1),
            func: None,
            count: 1,
        }]);
        let metrics = Metrics {
            samples: 3,
            ..Metrics::default()
        };
        let cells = vec![Cell {
            window: 0,
            thread: 0,
            context: ContextId(0),
            metrics,
        }];
        let tree = Tree {
            cells,
            ..Tree::default()
        };
        let genome = finish(assembly, tree);
        assert!((genome.lost_share() - 0.25).abs() < 1e-9, "{genome:?}");
    }

    #[test]
    fn the_widest_doubt_about_a_function_wins() {
        for order in [[None, Some(3), Some(7)], [Some(7), Some(3), None]] {
            let mut assembly = Assembly::new();
            order
                .into_iter()
                .for_each(|since| assembly.bound(bound(since)));
            assert_eq!(finish(assembly, Tree::default()).bounds, [bound(None)]);
        }
    }

    #[test]
    fn a_recording_without_an_end_is_cut_at_the_last_thing_heard() {
        let mut assembly = Assembly::new();
        assembly.heard(MonoTime(5_000_000_000));
        assembly.heard(MonoTime(4_000_000_000));
        let genome = finish(assembly, Tree::default());
        assert!(genome.cut && genome.is_partial(1.0));
        assert_eq!(genome.ended, MonoTime(5_000_000_000));
    }

    #[test]
    fn cells_of_one_place_are_added_up() {
        let cell = |window, calls| Cell {
            window,
            thread: 0,
            context: ContextId(1),
            metrics: Metrics {
                calls,
                ..Metrics::default()
            },
        };
        let tree = Tree {
            cells: vec![cell(1, 4), cell(0, 1), cell(1, 2)],
            ..Tree::default()
        };
        assert_eq!(
            finish(Assembly::new(), tree).tree.cells,
            [cell(0, 1), cell(1, 6)]
        );
    }
}
