//! What tells two recordings of one UUID apart, whatever numbers their functions and contexts have.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU32;

use crate::event::FuncId;
use crate::function::FunctionTable;
use crate::genome::Genome;
use crate::input::KeptCall;
use crate::tree::{Context, EdgeSource, Tree};

/// Of two recordings of one run the one with the higher rank is kept: it ended by itself, it is longer, it has more
/// events; between equals a hash of everything decides, so that all who merge decide alike.
pub(super) fn rank(
    functions: &FunctionTable,
    contexts: &[Context],
    run: &Genome,
) -> (bool, u64, u64, u64) {
    let hash = hash(functions, contexts, run);
    (!run.cut, run.duration_ns(), run.events(), hash)
}

fn hash(functions: &FunctionTable, contexts: &[Context], run: &Genome) -> u64 {
    let names = Names::of(functions, contexts);
    let mut rows = names.rows(&run.tree);
    for loss in &run.losses {
        let func = loss.func.map(|func| names.func(func));
        rows.push(of(&(loss.class, loss.cpu, func, loss.count)));
    }
    for bound in &run.bounds {
        rows.push(of(&(names.func(bound.func), bound.since, &bound.reason)));
    }
    for call in &run.kept {
        let row = KeptCall {
            func: FuncId(NonZeroU32::MIN),
            ..call.clone()
        };
        rows.push(of(&(names.func(call.func), format!("{row:?}"))));
    }
    rows.sort_unstable();
    let head = format!(
        "{:?} {:?} {} {} {:?} {:?} {:?} {:?}",
        run.run,
        run.ended,
        run.tree.window_ns,
        run.tree.folded_calls,
        run.notes,
        run.counters,
        run.blind_spots,
        run.triggers
    );
    of(&(head, rows))
}

/// Hashes of functions and paths by what they are, not by their numbers.
struct Names {
    functions: Vec<u64>,
    contexts: Vec<u64>,
}

impl Names {
    fn of(functions: &FunctionTable, contexts: &[Context]) -> Self {
        let functions: Vec<u64> = functions.iter().map(|(_, info)| of(info)).collect();
        let mut names = Self {
            functions,
            contexts: Vec::with_capacity(contexts.len()),
        };
        for context in contexts {
            let parent = names.contexts.get(context.parent.0 as usize).copied();
            let func = context.func.map(|func| names.func(func));
            let inlined = context.source == EdgeSource::Inlined;
            names.contexts.push(of(&(parent, func, inlined)));
        }
        names
    }

    fn func(&self, func: FuncId) -> u64 {
        let at = func.get() as usize - 1;
        self.functions.get(at).copied().unwrap_or_default()
    }

    fn rows(&self, tree: &Tree) -> Vec<u64> {
        let cells = tree.cells.iter().map(|cell| {
            let context = self.contexts.get(cell.context.0 as usize);
            of(&(cell.window, cell.thread, context, cell.metrics))
        });
        let threads = (0u32..).zip(&tree.threads).map(|(at, thread)| {
            let counts = (thread.events, thread.lost);
            of(&(at, thread.pid, thread.tid, &thread.name, counts))
        });
        let histograms = tree.histograms.iter();
        let histograms = histograms.map(|(func, h)| of(&(self.func(*func), &h.buckets)));
        let cpu = tree.cpu_histograms.iter();
        let cpu = cpu.map(|(func, h)| of(&("cpu", self.func(*func), &h.buckets)));
        let faults = tree.faults.iter();
        let faults = faults.map(|(func, faults)| of(&(self.func(*func), faults)));
        let returns = tree.returns.iter();
        let returns = returns.map(|(func, returns)| of(&(self.func(*func), returns)));
        cells
            .chain(threads)
            .chain(returns)
            .chain(histograms)
            .chain(cpu)
            .chain(faults)
            .collect()
    }
}

/// The same in every process: keys are zero.
fn of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
