//! The finished tree: callers named, samples laid in, totals summed.

use rustc_hash::FxHashSet;

use super::Shared;
use super::cells::{Cells, key};
use super::samples::Place;
use crate::event::{FuncId, Pid};
use crate::tree::{Cell, Context, ContextId, Contexts, EdgeSource, Metrics, Thread, Tree};

/// What `finish` asks for: the function at an address of a process (pid 0: of the kernel).
pub type Resolve<'a> = dyn FnMut(Pid, u64) -> Option<FuncId> + 'a;

pub(super) fn finish(shared: Shared, threads: Vec<Thread>, resolve: &mut Resolve<'_>) -> Tree {
    let mut names = Names(Contexts::of(Vec::new()));
    names.0.reserve(shared.contexts.nodes().len());
    let contexts = names.contexts(&shared, resolve);
    let steps = names.steps(&shared, &contexts, resolve);
    let mut cells = shared.cells;
    for (slot, (samples, sampled_ns)) in &shared.samples.counts {
        let place = named(slot.place, &contexts, &steps);
        cells.add(
            slot.begin,
            slot.thread,
            SAMPLE | place.0,
            Metrics {
                samples: *samples,
                sampled_ns: *sampled_ns,
                ..Metrics::default()
            },
        );
    }
    for (slot, waited) in &shared.samples.waits {
        let place = named(slot.place, &contexts, &steps);
        cells.add(slot.begin, slot.thread, SAMPLE | place.0, waited.metrics());
    }
    let (window_ns, cells, counted) = renamed(cells, &contexts);
    let contexts = names.0.into_all();
    let mut cells = with_totals(&cells, &contexts);
    cells.extend(counted);
    let mut faults: Vec<_> = shared
        .faults
        .into_iter()
        .filter_map(|(func, faults)| Some((FuncId::new(func)?, faults)))
        .collect();
    faults.sort_unstable_by_key(|(func, _)| *func);
    let returns = shared.returns.finish(&cells, &contexts);
    let folded_calls = folded_calls(&cells, &contexts);
    Tree {
        window_ns,
        contexts,
        threads,
        cells,
        histograms: shared.histograms.finish(),
        cpu_histograms: shared.cpu_histograms.finish(),
        returns,
        faults,
        folded_calls,
    }
}

/// Marks a cell whose context has its final number already.
const SAMPLE: u32 = 1 << 31;

/// Marks a cell of counted calls, whose times are sums already and not its context's part of them.
pub(super) const COUNTED: u32 = 1 << 30;

/// Final contexts.
struct Names(Contexts);

impl Names {
    fn func(&self, context: ContextId) -> Option<FuncId> {
        self.0.all().get(context.0 as usize)?.func
    }

    /// Recorded number -> final number. A caller that is not probed becomes a context of its own.
    fn contexts(&mut self, shared: &Shared, resolve: &mut Resolve<'_>) -> Vec<ContextId> {
        let mut named = vec![ContextId::ROOT];
        for node in shared.contexts.nodes().iter().skip(1) {
            let mut parent = named.get(node.parent as usize).copied().unwrap_or_default();
            if let Some((space, address)) = shared.contexts.site(node.site)
                && let Some(caller) = resolve(Pid(space), call_of(address))
                && self.func(parent) != Some(caller)
            {
                parent = self.0.intern(parent, Some(caller), EdgeSource::CallSite);
            }
            named.push(self.0.intern(parent, FuncId::new(node.func), node.source));
        }
        named
    }

    /// The innermost of the functions that are inlined at an address of `outer`.
    fn inlined(&mut self, outer: ContextId, shared: &Shared, at: (u32, u64)) -> ContextId {
        let functions = shared.inlined.get(&at).into_iter().flatten();
        functions.fold(outer, |outer, func| {
            self.0.intern(outer, Some(*func), EdgeSource::Inlined)
        })
    }

    fn steps(
        &mut self,
        shared: &Shared,
        contexts: &[ContextId],
        resolve: &mut Resolve<'_>,
    ) -> Vec<ContextId> {
        let mut named: Vec<ContextId> = Vec::new();
        let mut anchors: Vec<ContextId> = Vec::new();
        let innermost: FxHashSet<Place> = shared
            .samples
            .counts
            .keys()
            .map(|slot| slot.place)
            .collect();
        for (index, step) in shared.samples.steps().iter().enumerate() {
            let (parent, anchor, first) = match step.parent {
                Place::Context(context) => {
                    let context = contexts.get(context as usize).copied().unwrap_or_default();
                    (context, context, true)
                }
                Place::Step(step) => (
                    named.get(step as usize).copied().unwrap_or_default(),
                    anchors.get(step as usize).copied().unwrap_or_default(),
                    false,
                ),
            };
            anchors.push(anchor);
            let func = resolve(Pid(step.space), step.address);
            if func.is_some_and(|func| shared.no_code.contains(&func)) {
                // Code without frame pointers breaks the chain: what it led to, and all outside of that, never called
                // anything. Only where the thread itself ran there it is a fact.
                named.push(if innermost.contains(&Place::Step(index as u32)) {
                    self.0.intern(anchor, func, EdgeSource::Sampled)
                } else {
                    anchor
                });
                continue;
            }
            // Of a cut stack the first address may be the open call's own.
            let own = func.is_none() || (first && func == self.func(parent));
            let outer = if own {
                parent
            } else {
                self.0.intern(parent, func, EdgeSource::Sampled)
            };
            named.push(self.inlined(outer, shared, (step.space, step.address)));
        }
        named
    }
}

/// The call that returns to `address`: an address inside that instruction.
pub(super) const fn call_of(address: u64) -> u64 {
    address.wrapping_sub(1)
}

fn named(place: Place, contexts: &[ContextId], steps: &[ContextId]) -> ContextId {
    match place {
        Place::Context(context) => contexts.get(context as usize),
        Place::Step(step) => steps.get(step as usize),
    }
    .copied()
    .unwrap_or_default()
}

/// Cells with their final contexts, and those of counted calls apart.
fn renamed(cells: Cells, contexts: &[ContextId]) -> (u64, Vec<Cell>, Vec<Cell>) {
    let (window_ns, mut cells) = cells.finish();
    let is_counted = |cell: &mut Cell| cell.context.0 & (SAMPLE | COUNTED) == COUNTED;
    let mut counted: Vec<Cell> = cells.extract_if(.., is_counted).collect();
    for cell in cells.iter_mut().chain(&mut counted) {
        cell.context = match cell.context.0 & SAMPLE {
            0 => contexts
                .get((cell.context.0 & !COUNTED) as usize)
                .copied()
                .unwrap_or_default(),
            _ => ContextId(cell.context.0 & !SAMPLE),
        };
    }
    cells.sort_unstable_by_key(key);
    counted.sort_unstable_by_key(key);
    (window_ns, cells, counted)
}

/// Sums self times up to the root, per window and thread. So self + children = total holds on every node.
fn with_totals(cells: &[Cell], contexts: &[Context]) -> Vec<Cell> {
    let mut sums = Sums {
        contexts,
        sums: vec![Inclusive::default(); contexts.len()],
        touched: Vec::new(),
        is_touched: vec![false; contexts.len()],
    };
    let mut out = Vec::with_capacity(cells.len());
    for group in cells.chunk_by(|a, b| (a.window, a.thread) == (b.window, b.thread)) {
        sums.lay(group);
        sums.drain(group, &mut out);
    }
    out
}

/// What a context includes of those below it.
#[derive(Clone, Copy, Debug, Default)]
struct Inclusive {
    wall_ns: u64,
    cpu_ns: u64,
    probe_events: u64,
}

impl Inclusive {
    fn add(&mut self, other: Self) {
        self.wall_ns = self.wall_ns.saturating_add(other.wall_ns);
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
        self.probe_events = self.probe_events.saturating_add(other.probe_events);
    }
}

/// Where touched contexts are so many of all, looking at all is cheaper than sorting them.
const DENSE: usize = 8;

struct Sums<'a> {
    contexts: &'a [Context],
    sums: Vec<Inclusive>,
    touched: Vec<ContextId>,
    is_touched: Vec<bool>,
}

impl Sums<'_> {
    /// Sums the cells of one window and thread, which are in the order of their contexts.
    fn lay(&mut self, group: &[Cell]) {
        for cell in group {
            self.touch(cell.context);
            if let Some(sum) = self.sums.get_mut(cell.context.0 as usize) {
                sum.add(Inclusive {
                    wall_ns: cell.metrics.self_wall_ns,
                    cpu_ns: cell.metrics.self_cpu_ns,
                    probe_events: cell.metrics.probe_events,
                });
            }
        }
        if self.touched.len() < self.contexts.len() / DENSE {
            self.touched.sort_unstable();
        } else {
            let touched = (0u32..).zip(&self.is_touched);
            let touched = touched.filter(|(_, is_touched)| **is_touched);
            self.touched.clear();
            self.touched.extend(touched.map(|(id, _)| ContextId(id)));
        }
        // Parents come first: each has all of its own once it is reached from the end.
        for id in self.touched.iter().rev() {
            let Some(&sum) = self.sums.get(id.0 as usize) else {
                continue;
            };
            if let Some(parent) = self
                .parent(*id)
                .and_then(|at| self.sums.get_mut(at.0 as usize))
            {
                parent.add(sum);
            }
        }
    }

    fn parent(&self, id: ContextId) -> Option<ContextId> {
        let context = self.contexts.get(id.0 as usize)?;
        (id != ContextId::ROOT).then_some(context.parent)
    }

    /// Marks a context and all above it.
    fn touch(&mut self, context: ContextId) {
        let mut next = Some(context);
        while let Some(id) = next {
            match self.is_touched.get_mut(id.0 as usize) {
                Some(touched) if !*touched => *touched = true,
                _ => return,
            }
            self.touched.push(id);
            next = self.parent(id);
        }
    }

    /// The cells of one window and thread. Nothing is the root's own, but for samples and waits outside every known function.
    fn drain(&mut self, group: &[Cell], out: &mut Vec<Cell>) {
        let mut own = group.iter().peekable();
        let Some(first) = group.first() else {
            return;
        };
        for context in self.touched.drain(..) {
            let at = context.0 as usize;
            let sum = self.sums.get_mut(at).map(std::mem::take);
            let sum = sum.unwrap_or_default();
            if let Some(touched) = self.is_touched.get_mut(at) {
                *touched = false;
            }
            let mut metrics = Metrics {
                total_wall_ns: sum.wall_ns,
                total_cpu_ns: sum.cpu_ns,
                probe_events: sum.probe_events,
                ..Metrics::default()
            };
            while let Some(cell) = own.next_if(|cell| cell.context == context) {
                metrics.add(&Metrics {
                    probe_events: 0,
                    ..cell.metrics
                });
            }
            if context != ContextId::ROOT || metrics.samples > 0 || metrics.waits > 0 {
                out.push(Cell {
                    context,
                    metrics,
                    ..*first
                });
            }
        }
    }
}

/// Calls counted below the node that stands for everything beyond the cap.
fn folded_calls(cells: &[Cell], contexts: &[Context]) -> u64 {
    let is_folded = |id: ContextId| {
        id != ContextId::ROOT
            && contexts
                .get(id.0 as usize)
                .is_some_and(|c| c.func.is_none())
    };
    let below = |id: ContextId| {
        contexts
            .get(id.0 as usize)
            .is_some_and(|context| is_folded(context.parent))
    };
    cells
        .iter()
        .filter(|cell| below(cell.context))
        .fold(0, |sum: u64, cell| sum.saturating_add(cell.metrics.calls))
}
