//! Rows for larger things than functions: modules and threads.

use rustc_hash::FxHashMap;

use super::function::{estimates_cpu, sampling, watches_waits};
use super::measures::Measures;
use crate::genome::Genome;
use crate::genome::totals::{self, Total};
use crate::tree::{ContextId, Metrics};

/// One module, thread or process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRow {
    /// Module, thread, or process.
    pub name: String,
    /// Its numbers.
    pub measures: Measures,
}

/// One row a module that ran. Its total counts the outermost of its frames on each path.
pub fn modules(genome: &Genome) -> Vec<GroupRow> {
    let mut names: Vec<&str> = Vec::new();
    let mut index: FxHashMap<&str, u32> = FxHashMap::default();
    let of_function: Vec<u32> = genome
        .functions
        .iter()
        .map(|(_, info)| {
            *index.entry(&info.module).or_insert_with(|| {
                names.push(&info.module);
                names.len() as u32 - 1
            })
        })
        .collect();
    let own = totals::per_context(&genome.tree, |_| true);
    let sums = totals::groups(&genome.tree, &own, names.len(), |context| {
        of_function.get(context.func?.get() as usize - 1).copied()
    });
    let ran = names
        .into_iter()
        .zip(&sums)
        .filter(|(_, sum)| sum.contexts > 0);
    ran.map(|(name, sum)| row(genome, name.to_owned(), sum))
        .collect()
}

/// One row a thread. Its total is the time in watched functions.
pub fn threads(genome: &Genome) -> Vec<GroupRow> {
    let threads = &genome.tree.threads;
    let sums = by_thread(genome, threads.len(), |thread| thread as usize);
    let named = threads.iter().zip(&sums).map(|(thread, sum)| {
        let name = format!("{} {}/{}", called(&thread.name), thread.pid, thread.tid);
        let mut row = row(genome, name, sum);
        row.measures.lost = thread.lost;
        row
    });
    named.collect()
}

pub(super) fn called(name: &str) -> &str {
    if name.is_empty() { "?" } else { name }
}

/// What threads did, added up by a number that each has.
pub(super) fn by_thread(genome: &Genome, count: usize, of: impl Fn(u32) -> usize) -> Vec<Total> {
    let tree = &genome.tree;
    let mut sums = vec![Total::default(); count];
    for cell in &tree.cells {
        let Some(sum) = sums.get_mut(of(cell.thread)) else {
            continue;
        };
        // The root is its own parent, and what it holds is the sum of what is below it.
        let outermost = cell.context != ContextId::ROOT
            && tree
                .contexts
                .get(cell.context.0 as usize)
                .is_some_and(|context| context.parent == ContextId::ROOT);
        let inclusive = if outermost {
            cell.metrics
        } else {
            Metrics::default()
        };
        sum.metrics.add(&Metrics {
            total_wall_ns: inclusive.total_wall_ns,
            total_cpu_ns: inclusive.total_cpu_ns,
            probe_events: inclusive.probe_events,
            ..cell.metrics
        });
        sum.total_samples = sum.metrics.samples;
        sum.total_sampled_ns = sum.metrics.sampled_ns;
        sum.total_off_cpu_ns = sum.metrics.off_cpu_ns;
    }
    sums
}

fn row(genome: &Genome, name: String, sum: &Total) -> GroupRow {
    GroupRow {
        name,
        measures: measures(genome, sum),
    }
}

pub(super) fn measures(genome: &Genome, sum: &Total) -> Measures {
    Measures::of(sum, sampling(genome), genome.run.probe_cost_ns)
        .with_cpu_estimated(estimates_cpu(genome))
        .with_waits(sum, watches_waits(genome))
}
