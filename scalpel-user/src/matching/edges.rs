//! Calls that ran and no text proves, and calls that text proves and that never ran.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use crate::catalog::{Catalog, DefId, Edge, Kind, State};
use crate::genome::Genome;
use crate::genome::totals;
use crate::tree::{EdgeSource, Metrics};

use super::Matching;

/// A call that ran and that nothing in the text proves: a callback, dispatch, reflection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundEdge {
    /// Who called.
    pub caller: DefId,
    /// Who was called.
    pub callee: DefId,
    /// What was measured.
    pub metrics: Metrics,
    /// How it is known: exact, by a return address, from samples.
    pub source: EdgeSource,
}

/// A call that the text proves and that was not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UntakenEdge {
    /// The call site.
    pub edge: Edge,
    /// Both ends were watched all the time: it did not happen while recorded. Else it could not have been seen.
    pub sure: bool,
}

/// Calls of the run beside calls of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EdgeOverlay {
    /// Calls that both have.
    pub both: u64,
    /// Calls of the run alone; the most frequent first.
    pub found: Vec<FoundEdge>,
    /// Calls of the text alone whose caller ran; the sure ones first.
    pub untaken: Vec<UntakenEdge>,
}

/// Lays the calls of a run over those of a catalog.
pub fn overlay(genome: &Genome, catalog: &Catalog, matching: &Matching) -> EdgeOverlay {
    let own = totals::per_context(&genome.tree, |_| true);
    let mut ran: BTreeMap<(DefId, DefId), FoundEdge> = BTreeMap::new();
    // What is inlined is a part of its caller, and no call.
    let calls = |edge: &totals::Edge| edge.source != EdgeSource::Inlined;
    for edge in totals::edges(&genome.tree, &own).into_iter().filter(calls) {
        let definition = |func: crate::event::FuncId| {
            let outcome = matching.outcomes.get(func.get() as usize - 1)?;
            outcome.definition()
        };
        let ends = edge
            .caller
            .and_then(definition)
            .zip(definition(edge.callee));
        if let Some((caller, callee)) = ends {
            let found = ran.entry((caller, callee)).or_insert(FoundEdge {
                caller,
                callee,
                metrics: Metrics::default(),
                source: edge.source,
            });
            found.metrics.add(&edge.metrics);
            found.source = found.source.max(edge.source);
        }
    }
    let proven: FxHashSet<(DefId, DefId)> = catalog
        .edges
        .iter()
        .map(|edge| (edge.caller, edge.callee))
        .collect();
    let mut found: Vec<FoundEdge> = ran
        .iter()
        .filter(|(ends, _)| !proven.contains(ends))
        .map(|(_, found)| *found)
        .collect();
    found.sort_by_key(|found| std::cmp::Reverse((found.metrics.calls, found.metrics.samples)));
    EdgeOverlay {
        both: (ran.len() - found.len()) as u64,
        untaken: untaken(catalog, matching, &ran),
        found,
    }
}

fn untaken(
    catalog: &Catalog,
    matching: &Matching,
    ran: &BTreeMap<(DefId, DefId), FoundEdge>,
) -> Vec<UntakenEdge> {
    let state = |id: DefId| matching.states.get(id.index()).map(|known| known.state);
    let sampled = sampled_only(matching);
    let is_function = |id: DefId| {
        let definition = catalog.definition(id);
        definition.is_some_and(|definition| definition.kind != Kind::Import)
    };
    let mut seen = FxHashSet::default();
    let mut untaken: Vec<UntakenEdge> = catalog
        .edges
        .iter()
        .filter(|edge| !edge.how.is_possible() && state(edge.caller) == Some(State::Ran))
        .filter(|edge| is_function(edge.callee) && !ran.contains_key(&(edge.caller, edge.callee)))
        .filter(|edge| seen.insert((edge.caller, edge.callee)))
        .map(|edge| {
            let is_seen = matches!(state(edge.callee), Some(State::Ran | State::NeverRan));
            UntakenEdge {
                edge: *edge,
                sure: is_seen && !sampled.contains(&edge.caller) && !sampled.contains(&edge.callee),
            }
        })
        .collect();
    untaken.sort_by_key(|untaken| (!untaken.sure, untaken.edge));
    untaken
}

/// Definitions that are known from samples alone: of them not every call is seen.
fn sampled_only(matching: &Matching) -> FxHashSet<DefId> {
    let of_states = (0u32..).map(DefId).zip(&matching.states);
    of_states
        .filter(|(_, known)| {
            let calls = known.functions.iter().map(|func| {
                let total = matching.totals.get(func.get() as usize - 1);
                total.map_or(0, |total| total.metrics.calls)
            });
            known.state == State::Ran && calls.sum::<u64>() == 0
        })
        .map(|(id, _)| id)
        .collect()
}
