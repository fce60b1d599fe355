//! Sums over the tree: per function, per module, per edge.
//!
//! `self` sums are plain sums. `total` counts the outermost activations of a path only: a recursive function's time
//! is there once, however often it called itself.

use super::walk::{Children, Step};
use crate::event::FuncId;
use crate::function::FunctionTable;
use crate::tree::{Cell, Context, EdgeSource, Metrics, Tree};

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

impl Inclusive {
    const fn of(metrics: &Metrics) -> Self {
        Self {
            samples: metrics.samples,
            sampled_ns: metrics.sampled_ns,
            off_cpu_ns: metrics.off_cpu_ns,
        }
    }

    fn add(&mut self, other: Self) {
        self.samples = self.samples.saturating_add(other.samples);
        self.sampled_ns = self.sampled_ns.saturating_add(other.sampled_ns);
        self.off_cpu_ns = self.off_cpu_ns.saturating_add(other.off_cpu_ns);
    }
}

/// Adds what each context has to what its parent has. Parents come first, so that this is one pass from the end.
fn add_up(contexts: &[Context], sums: &mut [Inclusive]) {
    for (id, context) in contexts.iter().enumerate().skip(1).rev() {
        let parent = context.parent.0 as usize;
        if parent < id
            && let Some(&of_child) = sums.get(id)
            && let Some(sum) = sums.get_mut(parent)
        {
            sum.add(of_child);
        }
    }
}

/// Sums per function; index is the id's number less 1.
pub fn functions(tree: &Tree, own: &[Metrics], table: &FunctionTable) -> Vec<Total> {
    groups(tree, own, table.len(), of_function)
}

/// The same of cells: no sum of any context is kept.
pub fn functions_of_cells<'a>(
    contexts: &[Context],
    cells: impl IntoIterator<Item = &'a Cell>,
    table: &FunctionTable,
) -> Vec<Total> {
    let groups = Groups::of(contexts, table.len(), of_function);
    groups.totals(contexts, cells.into_iter().map(place))
}

fn of_function(context: &Context) -> Option<u32> {
    context.func.map(|func| func.get() - 1)
}

fn place(cell: &Cell) -> (usize, &Metrics) {
    (cell.context.0 as usize, &cell.metrics)
}

/// Sums per group. `group` names the group of a context, below `groups`; `None` leaves the context out.
pub fn groups(
    tree: &Tree,
    own: &[Metrics],
    groups: usize,
    group: impl Fn(&Context) -> Option<u32>,
) -> Vec<Total> {
    let groups = Groups::of(&tree.contexts, groups, group);
    groups.totals(&tree.contexts, own.iter().enumerate())
}

/// No group.
const NONE: u32 = u32::MAX;

/// Marks a context below one of its own group.
const INNER: u32 = 1 << 31;

/// The group of each context, and whether the path to it has that group already.
struct Groups {
    of: Vec<u32>,
    count: usize,
}

impl Groups {
    fn of(contexts: &[Context], count: usize, group: impl Fn(&Context) -> Option<u32>) -> Self {
        let is_one = |group: &u32| (*group as usize) < count && *group < INNER;
        let of = contexts
            .iter()
            .map(|context| group(context).filter(is_one).unwrap_or(NONE));
        Self::of_numbers(contexts, count, &of.collect::<Vec<_>>())
    }

    /// The same of contexts whose groups have numbers already, below `count`.
    fn of_numbers(contexts: &[Context], count: usize, named: &[u32]) -> Self {
        let mut of = vec![NONE; named.len()];
        let mut open = vec![0u32; count];
        // Random access to few bytes of each context: this is what of a million contexts takes the time.
        Children::of_contexts(contexts).walk(|step| {
            let (Step::Enter(id) | Step::Leave(id)) = step;
            let at = id.0 as usize;
            let (Some(&group), Some(walked)) = (named.get(at), of.get_mut(at)) else {
                return;
            };
            let Some(open) = open.get_mut(group as usize) else {
                return;
            };
            if step == Step::Leave(id) {
                *open -= 1;
            } else {
                *walked = if *open > 0 { group | INNER } else { group };
                *open += 1;
            }
        });
        Self { of, count }
    }

    /// Group of a context, and whether it is the outermost one of it.
    fn at(&self, context: usize) -> Option<(usize, bool)> {
        let group = *self.of.get(context)?;
        (group != NONE).then_some(((group & !INNER) as usize, group & INNER == 0))
    }

    /// What `add` makes of everything that was measured in each group.
    fn sums<'a, T: Clone + Default>(
        &self,
        measured: impl Iterator<Item = (usize, &'a Metrics)>,
        add: impl Fn(&mut T, &Metrics, bool),
    ) -> Vec<T> {
        let mut sums = vec![T::default(); self.count];
        for (context, metrics) in measured {
            if let Some((group, outermost)) = self.at(context)
                && let Some(sum) = sums.get_mut(group)
            {
                add(sum, metrics, outermost);
            }
        }
        sums
    }

    fn totals<'a>(
        &self,
        contexts: &[Context],
        measured: impl Iterator<Item = (usize, &'a Metrics)>,
    ) -> Vec<Total> {
        let mut seen: Vec<Inclusive> = Vec::new();
        let measured = measured.inspect(|(context, metrics)| {
            let own = Inclusive::of(metrics);
            // Where no stack was seen there is nothing to add up.
            if own != Inclusive::default() {
                seen.resize(contexts.len(), Inclusive::default());
                seen.get_mut(*context)
                    .into_iter()
                    .for_each(|sum| sum.add(own));
            }
        });
        let mut totals = self.sums(measured, |total: &mut Total, metrics, outermost| {
            add(&mut total.metrics, metrics, outermost);
        });
        add_up(contexts, &mut seen);
        for context in 0..contexts.len() {
            if let Some((group, outermost)) = self.at(context)
                && let Some(total) = totals.get_mut(group)
            {
                total.contexts += 1;
                let below = seen.get(context).copied().unwrap_or_default();
                if outermost {
                    total.total_samples = total.total_samples.saturating_add(below.samples);
                    total.total_sampled_ns =
                        total.total_sampled_ns.saturating_add(below.sampled_ns);
                    total.total_off_cpu_ns =
                        total.total_off_cpu_ns.saturating_add(below.off_cpu_ns);
                }
            }
        }
        totals
    }
}

/// Sums per call edge, sorted by caller and callee. The calls of a function are the sum over the edges to it.
pub fn edges(tree: &Tree, own: &[Metrics]) -> Vec<Edge> {
    let edges = Edges::of(&tree.contexts);
    let sums = edges.groups.sums(own.iter().enumerate(), add);
    let sums = edges.ends.iter().zip(sums);
    sums.filter_map(|(&(caller, callee, source), metrics)| {
        Some(Edge {
            caller,
            callee,
            metrics,
            source: source?,
        })
    })
    .collect()
}

/// The sums of one call edge that a file keeps: of very many edges all that there is takes much memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeTotal {
    /// As in [`Metrics`].
    pub calls: u64,
    /// As in [`Metrics`].
    pub samples: u64,
    wall_ns: u64,
    cpu_ns: u64,
    timed: bool,
    cpu_timed: bool,
}

impl EdgeTotal {
    fn add(&mut self, metrics: &Metrics, outermost: bool) {
        self.calls = self.calls.saturating_add(metrics.calls);
        self.samples = self.samples.saturating_add(metrics.samples);
        self.timed |= metrics.timed > 0;
        self.cpu_timed |= metrics.cpu_timed > 0;
        if outermost {
            self.wall_ns = self.wall_ns.saturating_add(metrics.total_wall_ns);
            self.cpu_ns = self.cpu_ns.saturating_add(metrics.total_cpu_ns);
        }
    }

    /// Inclusive wall time; `None` where nothing was timed.
    pub fn wall_ns(&self) -> Option<u64> {
        self.timed.then_some(self.wall_ns)
    }

    /// Inclusive CPU time; `None` where it was measured of nothing.
    pub fn cpu_ns(&self) -> Option<u64> {
        self.cpu_timed.then_some(self.cpu_ns)
    }
}

/// Who called whom, the strongest that it is known by, and the sums, of cells: no sum of any context is kept.
pub fn edges_of_cells<'a>(
    contexts: &[Context],
    cells: impl IntoIterator<Item = &'a Cell>,
) -> impl Iterator<Item = (Option<FuncId>, FuncId, EdgeSource, EdgeTotal)> {
    let Edges { ends, groups } = Edges::of(contexts);
    let sums = groups.sums(cells.into_iter().map(place), EdgeTotal::add);
    let sums = ends.into_iter().zip(sums);
    sums.filter_map(|((caller, callee, source), sum)| Some((caller, callee, source?, sum)))
}

/// The call edges of a tree, in the order of their ends.
struct Edges {
    /// Caller, callee, and what the edge is known from: `None` if no path leads to it.
    ends: Vec<(Option<FuncId>, FuncId, Option<EdgeSource>)>,
    groups: Groups,
}

impl Edges {
    fn of(contexts: &[Context]) -> Self {
        let ends = |context: &Context| {
            let parent = contexts.get(context.parent.0 as usize);
            Some((parent.and_then(|parent| parent.func), context.func?))
        };
        let named = (0u32..).zip(contexts);
        let mut order: Vec<_> = named
            .filter_map(|(id, context)| Some((ends(context)?, id)))
            .collect();
        order.sort_unstable();
        let mut edges = Vec::new();
        let mut numbers = vec![NONE; contexts.len()];
        for of_one in order.chunk_by(|a, b| a.0 == b.0) {
            for (_, id) in of_one {
                if let Some(number) = numbers.get_mut(*id as usize) {
                    *number = edges.len() as u32;
                }
            }
            edges.extend(
                of_one
                    .first()
                    .map(|((caller, callee), _)| (*caller, *callee, None)),
            );
        }
        drop(order);
        let groups = Groups::of_numbers(contexts, edges.len(), &numbers);
        for (id, context) in contexts.iter().enumerate() {
            if let Some((group, _)) = groups.at(id)
                && let Some((_, _, source)) = edges.get_mut(group)
            {
                *source = (*source).max(Some(context.source));
            }
        }
        Self {
            ends: edges,
            groups,
        }
    }
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

    use super::{edges, edges_of_cells, functions, functions_of_cells, per_context};
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
        fn sums_of_cells_are_those_of_contexts(genome in any_genome()) {
            let tree = &genome.tree;
            let own = per_context(tree, |_| true);
            prop_assert_eq!(
                functions_of_cells(&tree.contexts, &tree.cells, &genome.functions),
                functions(tree, &own, &genome.functions)
            );
            let of_cells: Vec<_> = edges_of_cells(&tree.contexts, &tree.cells)
                .map(|(caller, callee, source, sum)| (caller, callee, source, sum.calls, sum.samples, sum.wall_ns(), sum.cpu_ns()))
                .collect();
            let of_contexts: Vec<_> = edges(tree, &own)
                .iter()
                .map(|edge| {
                    let m = &edge.metrics;
                    let (wall, cpu) = (m.timed > 0, m.cpu_timed > 0);
                    let times = (wall.then_some(m.total_wall_ns), cpu.then_some(m.total_cpu_ns));
                    (edge.caller, edge.callee, edge.source, m.calls, m.samples, times.0, times.1)
                })
                .collect();
            prop_assert_eq!(of_cells, of_contexts);
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
