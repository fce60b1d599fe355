//! Sums over the tree: per function, per module, per edge.
//!
//! `self` sums are plain sums. `total` counts the outermost activations of a path only: a recursive function's time
//! is there once, however often it called itself.

use rustc_hash::FxHashMap;

use super::walk::{Children, Step};
use crate::event::FuncId;
use crate::function::FunctionTable;
use crate::tree::{Cell, Context, ContextId, EdgeSource, Metrics, Tree};

/// The sums of one group of contexts: a function, a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Counts and self times of all its contexts; total times and `probe_events` of the outermost ones.
    pub metrics: Metrics,
    /// Samples with a frame of the group anywhere on the stack.
    pub total_samples: u64,
    /// Sum of their periods in ns.
    pub total_sampled_ns: u64,
    /// Time off the processor with a frame of the group anywhere on the stack, in ns.
    pub total_off_cpu_ns: u64,
    /// Contexts summed up.
    pub contexts: u32,
}

/// The sums of one call edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Calling function; `None` = nothing watched or sampled was below it on the stack.
    pub caller: Option<FuncId>,
    /// Called function.
    pub callee: FuncId,
    /// Counts and self times of all contexts of the edge; total times of the outermost ones.
    pub metrics: Metrics,
    /// How the edge is known: the strongest of its contexts.
    pub source: EdgeSource,
}

/// What was measured in each context, summed over the windows and threads whose cells are kept.
pub fn per_context(tree: &Tree, keep: impl Fn(&Cell) -> bool) -> Vec<Metrics> {
    sum_up(
        tree.contexts.len(),
        tree.cells.iter().filter(|cell| keep(cell)),
    )
}

/// Sums of cells by context, of which there are `contexts`.
pub fn sum_up<'a>(contexts: usize, cells: impl IntoIterator<Item = &'a Cell>) -> Vec<Metrics> {
    let mut own = vec![Metrics::default(); contexts];
    for cell in cells {
        if let Some(sum) = own.get_mut(cell.context.0 as usize) {
            sum.add(&cell.metrics);
        }
    }
    own
}

/// What was seen of stacks with a context anywhere on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Inclusive {
    samples: u64,
    sampled_ns: u64,
    off_cpu_ns: u64,
}

/// Of each context with everything below it.
fn inclusive(tree: &Tree, own: &[Metrics]) -> Vec<Inclusive> {
    let of = |m: &Metrics| Inclusive {
        samples: m.samples,
        sampled_ns: m.sampled_ns,
        off_cpu_ns: m.off_cpu_ns,
    };
    let mut sums: Vec<Inclusive> = own.iter().map(of).collect();
    Children::of(tree).walk(|step| {
        if let Step::Leave(id) = step
            && let Some(&of_child) = sums.get(id.0 as usize)
            && let Some(parent) = parent_of(tree, id)
            && let Some(sum) = sums.get_mut(parent.0 as usize)
        {
            sum.samples = sum.samples.saturating_add(of_child.samples);
            sum.sampled_ns = sum.sampled_ns.saturating_add(of_child.sampled_ns);
            sum.off_cpu_ns = sum.off_cpu_ns.saturating_add(of_child.off_cpu_ns);
        }
    });
    sums
}

/// Sums per function; index is the id's number less 1.
pub fn functions(tree: &Tree, own: &[Metrics], table: &FunctionTable) -> Vec<Total> {
    groups(tree, own, table.len(), |context| {
        context.func.map(|func| func.get() - 1)
    })
}

/// Sums per group. `group` names the group of a context, below `groups`; `None` leaves the context out.
pub fn groups(
    tree: &Tree,
    own: &[Metrics],
    groups: usize,
    group: impl Fn(&Context) -> Option<u32>,
) -> Vec<Total> {
    let inclusive = inclusive(tree, own);
    let mut totals = vec![Total::default(); groups];
    let mut open = vec![0u32; groups];
    Children::of(tree).walk(|step| {
        let (Step::Enter(id) | Step::Leave(id)) = step;
        let at = id.0 as usize;
        let Some(index) = tree
            .contexts
            .get(at)
            .and_then(&group)
            .map(|index| index as usize)
        else {
            return;
        };
        let (Some(total), Some(open)) = (totals.get_mut(index), open.get_mut(index)) else {
            return;
        };
        if step == Step::Leave(id) {
            *open -= 1;
            return;
        }
        let outermost = *open == 0;
        *open += 1;
        total.contexts += 1;
        if let (Some(metrics), Some(below)) = (own.get(at), inclusive.get(at)) {
            add(&mut total.metrics, metrics, outermost);
            if outermost {
                total.total_samples = total.total_samples.saturating_add(below.samples);
                total.total_sampled_ns = total.total_sampled_ns.saturating_add(below.sampled_ns);
                total.total_off_cpu_ns = total.total_off_cpu_ns.saturating_add(below.off_cpu_ns);
            }
        }
    });
    totals
}

/// Sums per call edge, sorted by caller and callee. The calls of a function are the sum over the edges to it.
pub fn edges(tree: &Tree, own: &[Metrics]) -> Vec<Edge> {
    let mut sums: FxHashMap<(Option<FuncId>, FuncId), (Edge, u32)> = FxHashMap::default();
    Children::of(tree).walk(|step| {
        let (Step::Enter(id) | Step::Leave(id)) = step;
        let Some(context) = tree.contexts.get(id.0 as usize) else {
            return;
        };
        let Some(callee) = context.func else { return };
        let caller = tree
            .contexts
            .get(context.parent.0 as usize)
            .and_then(|parent| parent.func);
        let new = Edge {
            caller,
            callee,
            metrics: Metrics::default(),
            source: context.source,
        };
        let (edge, open) = sums.entry((caller, callee)).or_insert((new, 0));
        if step == Step::Leave(id) {
            *open -= 1;
            return;
        }
        if let Some(metrics) = own.get(id.0 as usize) {
            add(&mut edge.metrics, metrics, *open == 0);
        }
        edge.source = edge.source.max(context.source);
        *open += 1;
    });
    let mut edges: Vec<Edge> = sums.into_values().map(|(edge, _)| edge).collect();
    edges.sort_unstable_by_key(|edge| (edge.caller, edge.callee));
    edges
}

fn parent_of(tree: &Tree, id: ContextId) -> Option<ContextId> {
    tree.contexts
        .get(id.0 as usize)
        .map(|context| context.parent)
}

/// Adds a context; what includes its callees only where no activation of the same group is below it on the stack.
fn add(sum: &mut Metrics, metrics: &Metrics, outermost: bool) {
    let inclusive = if outermost {
        *metrics
    } else {
        Metrics::default()
    };
    sum.add(&Metrics {
        total_wall_ns: inclusive.total_wall_ns,
        total_cpu_ns: inclusive.total_cpu_ns,
        probe_events: inclusive.probe_events,
        ..*metrics
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{edges, functions, per_context};
    use crate::event::FuncId;
    use crate::genome::Genome;
    use crate::genome::tests::any_genome;
    use crate::tree::{ContextId, Metrics};

    /// Total wall time of a function by definition: every context that has none of its own kind above it.
    fn total_by_definition(genome: &Genome, func: FuncId) -> u64 {
        let contexts = &genome.tree.contexts;
        let outermost = |context: ContextId| {
            let mut at = contexts[context.0 as usize].parent;
            while at != ContextId::ROOT && contexts[at.0 as usize].func != Some(func) {
                at = contexts[at.0 as usize].parent;
            }
            at == ContextId::ROOT && contexts[context.0 as usize].func == Some(func)
        };
        genome
            .tree
            .cells
            .iter()
            .filter(|cell| outermost(cell.context))
            .map(|cell| cell.metrics.total_wall_ns)
            .sum()
    }

    proptest! {
        #[test]
        fn self_and_children_add_up_to_total_in_every_context(genome in any_genome()) {
            let own = per_context(&genome.tree, |_| true);
            let mut sums: Vec<u64> = own.iter().map(|m| m.self_wall_ns).collect();
            for (id, context) in genome.tree.contexts.iter().enumerate().skip(1) {
                sums[context.parent.0 as usize] += own[id].total_wall_ns;
            }
            for (id, m) in own.iter().enumerate().skip(1) {
                prop_assert_eq!(sums[id], m.total_wall_ns);
            }
        }

        #[test]
        fn functions_keep_every_call_and_every_ns_of_self_time(genome in any_genome()) {
            let own = per_context(&genome.tree, |_| true);
            let totals = functions(&genome.tree, &own, &genome.functions);
            let sum = |field: fn(&Metrics) -> u64| totals.iter().map(|total| field(&total.metrics)).sum::<u64>();
            let cells = |field: fn(&Metrics) -> u64| genome.tree.cells.iter().map(|cell| field(&cell.metrics)).sum::<u64>();
            prop_assert_eq!(sum(|m| m.calls), cells(|m| m.calls));
            prop_assert_eq!(sum(|m| m.self_wall_ns), cells(|m| m.self_wall_ns));
        }

        #[test]
        fn totals_count_outermost_activations_only(genome in any_genome()) {
            let own = per_context(&genome.tree, |_| true);
            let totals = functions(&genome.tree, &own, &genome.functions);
            for (number, total) in (1..).zip(totals) {
                prop_assert_eq!(total.metrics.total_wall_ns, total_by_definition(&genome, FuncId::new(number).unwrap()));
            }
        }

        #[test]
        fn the_calls_of_a_function_are_the_sum_over_the_edges_to_it(genome in any_genome()) {
            let own = per_context(&genome.tree, |_| true);
            let edges = edges(&genome.tree, &own);
            for (number, total) in (1..).zip(functions(&genome.tree, &own, &genome.functions)) {
                let calls: u64 = edges.iter().filter(|edge| edge.callee.get() == number).map(|edge| edge.metrics.calls).sum();
                prop_assert_eq!(calls, total.metrics.calls);
            }
        }
    }
}
