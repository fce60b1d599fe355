//! A genome as people and programs read it: rows with what is known of each number, sorted and cut to size.
//!
//! Pure. [`Report`] is the object of `report --json`, the most stable thing of all; the sinks print it in other forms.

pub mod function;
pub mod group;
pub mod kept;
pub mod known;
pub mod measures;
mod per_call;
pub mod process;
pub mod returned;
pub mod select;
mod shape;
pub mod summary;

pub use function::FunctionRow;
pub use group::GroupRow;
pub use kept::{KeptRow, TriggerRow};
pub use known::{Known, Share, UnseenRow};
pub use measures::{Interval, Measures};
pub use per_call::PerCall;
pub use process::ProcessRow;
pub use returned::{ReturnedRow, ValueRow};
pub use select::Sort;
pub use shape::{BoundRow, EdgeRow, LossRow, Report, Run, ThreadRow, Unknown, UnknownCount};

use crate::doubt::{self, Facts};
use crate::event::FuncId;
use crate::function::{ExitStrategy, FunctionInfo, UnknownReason};
use crate::genome::loss::Losses;
use crate::genome::totals::{self, Total};
use crate::genome::{Counter, Genome, share};
use crate::input::Bound;
use crate::matching::Matching;
use rustc_hash::FxHashSet;
use scalpel_common::kernel::LossClass;

/// Version of the shape of [`Report`].
pub const SCHEMA: &str = "scalpel.report/1";

impl Report {
    /// The whole report. `max_loss` is the share of lost events (0 to 1) above which loss is a doubt.
    pub fn of(genome: &Genome, max_loss: f64) -> Self {
        let own = totals::per_context(&genome.tree, |_| true);
        let sums = totals::functions(&genome.tree, &own, &genome.functions);
        let matching = Matching::kept(genome);
        let functions = function::rows(genome, &sums, matching.as_ref());
        let unknown = unknown(genome, &sums);
        let facts = facts(genome, &sums, &functions, unknown.as_ref(), max_loss);
        let doubts = doubt::judge(&Facts {
            matched: matching
                .as_ref()
                .map(|matching| known::facts(&genome.catalog, matching)),
            ..facts
        });
        let known = matching
            .as_ref()
            .map(|matching| Known::of(&genome.catalog, matching));
        Self {
            schema: SCHEMA,
            run: Run::of(genome),
            events: genome.events(),
            lost: genome.lost(),
            unknown_share: unknown
                .as_ref()
                .map(|unknown| unknown.functions.max(unknown.events)),
            match_rate: known.as_ref().and_then(|known| known.match_rate.share),
            known,
            unseen: matching
                .as_ref()
                .map(|matching| known::unseen(&genome.catalog, matching))
                .unwrap_or_default(),
            doubts,
            functions,
            edges: shape::edges(genome, &own),
            processes: process::processes(genome),
            threads: shape::threads(genome),
            unknown,
            losses: shape::losses(genome),
            bounds: shape::bounds(genome),
            triggers: kept::triggers(genome),
            kept: kept::calls(genome),
            blind_spots: genome
                .blind_spots
                .iter()
                .map(|spot| format!("{}: {}", spot.probe, spot.what))
                .collect(),
        }
    }
}

impl Report {
    /// Keeps the functions that are wanted, and the edges that touch one of them. What is said of the recording as a
    /// whole stays.
    pub fn retain(&mut self, genome: &Genome, wanted: &dyn Fn(FuncId, &FunctionInfo) -> bool) {
        let keep: Vec<bool> = genome
            .functions
            .iter()
            .map(|(id, info)| wanted(id, info))
            .collect();
        let mut keeps = keep.into_iter();
        self.functions.retain(|_| keeps.next().unwrap_or(false));
        let keys: FxHashSet<&str> = self.functions.iter().map(|row| row.key.as_str()).collect();
        self.edges.retain(|edge| {
            keys.contains(edge.caller.as_str()) || keys.contains(edge.callee.as_str())
        });
    }
}

/// How much of what ran has no name; `None` if nothing ran. Callers known by a return address alone, without a call
/// or a sample of their own, are no part of what was measured.
fn unknown(genome: &Genome, sums: &[Total]) -> Option<Unknown> {
    let (mut ran, mut nameless, mut all_events, mut nameless_events) = (0u64, 0u64, 0u64, 0u64);
    let mut reasons = std::collections::BTreeMap::<&str, UnknownCount>::new();
    for ((_, info), total) in genome
        .functions
        .iter()
        .zip(sums)
        .filter(|(_, total)| total.metrics.calls > 0 || total.metrics.samples > 0)
    {
        let events = total.metrics.calls.saturating_add(total.metrics.samples);
        ran += 1;
        all_events = all_events.saturating_add(events);
        let Some(word) = info.unknown.as_ref().map(UnknownReason::word) else {
            continue;
        };
        nameless += 1;
        nameless_events = nameless_events.saturating_add(events);
        let count = reasons.entry(word).or_insert(UnknownCount {
            reason: word,
            functions: 0,
            events: 0,
        });
        count.functions += 1;
        count.events = count.events.saturating_add(events);
    }
    (ran > 0).then(|| Unknown {
        functions: share(nameless, ran),
        events: share(nameless_events, all_events),
        reasons: reasons.into_values().collect(),
    })
}

/// Functions that were not watched from the start.
fn refused(genome: &Genome) -> impl Iterator<Item = &Bound> {
    genome.bounds.iter().filter(|bound| bound.since.is_none())
}

/// Functions that were to be watched. Nothing was decided about those that a limit left out.
fn to_be_watched(genome: &Genome, rows: &[FunctionRow]) -> u64 {
    let decided = |row: &&FunctionRow| row.exit != ExitStrategy::None.word();
    let undecided = |bound: &&Bound| {
        let info = genome.functions.get(bound.func);
        info.is_some_and(|info| info.exit == ExitStrategy::None)
    };
    (rows.iter().filter(decided).count() + refused(genome).filter(undecided).count()) as u64
}

fn facts<'a>(
    genome: &'a Genome,
    sums: &[Total],
    rows: &[FunctionRow],
    unknown: Option<&Unknown>,
    max_loss: f64,
) -> Facts<'a> {
    let losses = Losses::of(&genome.losses);
    let fault = |field: fn(&crate::tree::FunctionFaults) -> u64| {
        genome
            .tree
            .faults
            .iter()
            .fold(0u64, |sum, (_, faults)| sum.saturating_add(field(faults)))
    };
    let samples = sums
        .iter()
        .fold(0u64, |sum, total| sum.saturating_add(total.metrics.samples));
    let entry_only = |row: &&FunctionRow| {
        row.exit == ExitStrategy::EntryOnly.word()
            && row.measures.calls.is_some_and(|calls| calls > 0)
    };
    Facts {
        events: genome.events(),
        samples,
        sampling: genome.run.sample_hz > 0,
        lost: genome.lost(),
        lost_without_function: losses.homeless_entries(),
        max_loss,
        duration_ns: genome.duration_ns(),
        watched: to_be_watched(genome, rows),
        refused: refused(genome).count() as u64,
        bounded: genome
            .bounds
            .iter()
            .filter(|bound| bound.since.is_some())
            .count() as u64,
        unknown: unknown.map(|unknown| (unknown.functions, unknown.events)),
        unknown_reasons: unknown
            .map(|unknown| {
                unknown
                    .reasons
                    .iter()
                    .map(|count| (count.reason, count.functions))
                    .collect()
            })
            .unwrap_or_default(),
        entry_only: rows.iter().filter(entry_only).count() as u64,
        entry_only_unsampled: rows
            .iter()
            .filter(entry_only)
            .filter(|row| row.measures.sampled_total_ns.is_none_or(|ns| ns == 0))
            .count() as u64,
        missed_enter: fault(|faults| faults.missed_enter),
        depth_limited: fault(|faults| faults.depth_limited),
        return_refused: fault(|faults| faults.return_refused)
            .max(losses.class(LossClass::ReturnRefused)),
        without_cell: losses.class(LossClass::CountCell),
        without_histogram: losses.class(LossClass::CountHistogram),
        waits: genome
            .tree
            .cells
            .iter()
            .map(|cell| cell.metrics.waits)
            .fold(0, u64::saturating_add),
        waits_without_stack: losses.class(LossClass::Wait),
        folded_calls: genome.tree.folded_calls,
        cut: genome.cut,
        zero_ids: genome.counter(Counter::ZeroIds),
        decode_faults: genome.counter(Counter::DecodeFaults),
        clock_backwards: genome.counter(Counter::ClockBackwards),
        late_events: genome.counter(Counter::LateEvents),
        recursion_misses: genome.counter(Counter::RecursionMisses),
        samples_throttled: genome.counter(Counter::SamplesThrottled),
        target_ended_in_attach: genome.counter(Counter::TargetEndedInAttach) > 0,
        notes: &genome.notes,
        triggers: &genome.triggers,
        left_out: kept::left_out(&genome.kept),
        matched: None,
    }
}

#[cfg(test)]
mod tests;
