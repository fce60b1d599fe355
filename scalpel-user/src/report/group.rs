//! Rows for larger things than functions: modules and threads.

use rustc_hash::FxHashMap;

use super::function::{estimates_cpu, sampling, watches_waits};
use super::measures::Measures;
use crate::genome::Genome;
use crate::genome::totals::{self, Total};
use crate::tree::{ContextId, Metrics};

/// One module or thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRow {
    /// Module, or thread.
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
    let tree = &genome.tree;
    let mut sums = vec![Total::default(); tree.threads.len()];
    for cell in &tree.cells {
        let Some(sum) = sums.get_mut(cell.thread as usize) else {
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
    let named = tree.threads.iter().zip(&sums).map(|(thread, sum)| {
        let name = if thread.name.is_empty() {
            "?"
        } else {
            &thread.name
        };
        let mut row = row(genome, format!("{name} {}/{}", thread.pid, thread.tid), sum);
        row.measures.lost = thread.lost;
        row
    });
    named.collect()
}

fn row(genome: &Genome, name: String, sum: &Total) -> GroupRow {
    GroupRow {
        name,
        measures: Measures::of(sum, sampling(genome), genome.run.probe_cost_ns)
            .with_cpu_estimated(estimates_cpu(genome))
            .with_waits(sum, watches_waits(genome)),
    }
}
