//! Many recordings in one file: a set of runs by UUID, over one set of functions and contexts.
//!
//! Nothing of one run is added to another, so that merging is exact, and it does not matter in which order, how often
//! and by which steps files are merged. [`Merged::into_genome`] adds up, for reports.

mod exists;
mod fingerprint;
mod fold;
mod matches;

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Genome;
use super::assemble::merge_cells;
use crate::catalog::{Catalog, FactsOfFiles, Matches};
use crate::event::FuncId;
use crate::function::{FunctionInfo, FunctionTable};
use crate::tree::{Context, ContextId, Contexts, FunctionFaults, Histogram, Returns, Tree};

/// Recordings of many runs.
#[derive(Debug, Default)]
pub struct Merged {
    /// Every function of every run; what two runs know differently of one function are two of them.
    pub functions: FunctionTable,
    /// Every context of every run.
    pub contexts: Vec<Context>,
    /// What was measured, by UUID. The runs' own functions and contexts are empty: their ids are those above.
    pub runs: BTreeMap<String, Genome>,
    /// What exists, as far as any of them knows.
    pub catalog: Catalog,
    /// What a later build of the catalog needs to know of files that did not change, where it was read.
    pub facts: FactsOfFiles,
    /// What each function is in the catalog.
    pub matches: Matches,
}

/// More functions than a genome can hold.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "together they have more than {most} functions: merge fewer recordings",
    most = FunctionTable::MOST
)]
pub struct TooManyFunctions;

impl From<Genome> for Merged {
    fn from(mut genome: Genome) -> Self {
        Self {
            functions: std::mem::take(&mut genome.functions),
            contexts: std::mem::take(&mut genome.tree.contexts),
            catalog: std::mem::take(&mut genome.catalog),
            facts: std::mem::take(&mut genome.facts),
            matches: std::mem::take(&mut genome.matches),
            runs: BTreeMap::from([(genome.run.uuid.clone(), genome)]),
        }
    }
}

impl Merged {
    /// Takes in the runs of `other`. A run that both have is kept once: the one that ended by itself, or knows more.
    ///
    /// # Errors
    /// [`TooManyFunctions`]; what is in `self` then is of no use.
    pub fn join(&mut self, other: Self) -> Result<(), TooManyFunctions> {
        let taken = exists::join(&mut self.catalog, other.catalog);
        matches::join_facts(&mut self.facts, other.facts, &taken);
        let functions = self.take_functions(&other.functions)?;
        let contexts = self.take_contexts(&other.contexts, &functions);
        matches::join(
            &self.catalog,
            &mut self.matches,
            other.matches,
            &functions,
            &taken,
        );
        let renumber = Renumber {
            functions,
            contexts,
        };
        for (uuid, mut run) in other.runs {
            renumber.run(&mut run);
            let better = self.runs.get(&uuid).is_none_or(|known| {
                let rank = |run| fingerprint::rank(&self.functions, &self.contexts, run);
                rank(&run) > rank(known)
            });
            if better {
                self.runs.insert(uuid, run);
            }
        }
        Ok(())
    }

    /// The one recording, or the sum of all.
    pub fn into_genome(mut self) -> Genome {
        match self.runs.pop_first() {
            Some((_, run)) if self.runs.is_empty() => Genome {
                functions: self.functions,
                catalog: self.catalog,
                facts: self.facts,
                matches: self.matches,
                tree: Tree {
                    contexts: self.contexts,
                    ..run.tree
                },
                ..run
            },
            Some((uuid, run)) => {
                self.runs.insert(uuid, run);
                fold::fold(&self)
            }
            None => fold::fold(&self),
        }
    }

    /// The sum of all, to be looked at: these stay.
    pub fn sum(&self) -> Genome {
        fold::fold(self)
    }

    /// New numbers of `others`, by their old numbers less 1.
    fn take_functions(&mut self, others: &FunctionTable) -> Result<Vec<FuncId>, TooManyFunctions> {
        let known = self.functions.iter();
        let mut ids: FxHashMap<Arc<FunctionInfo>, FuncId> =
            known.map(|(id, info)| (Arc::clone(info), id)).collect();
        let mut numbers = Vec::with_capacity(others.len());
        for (_, info) in others.iter() {
            let id = match ids.get(info) {
                Some(&id) => id,
                None => {
                    let id = self.add_function(info)?;
                    ids.insert(Arc::clone(info), id);
                    id
                }
            };
            numbers.push(id);
        }
        Ok(numbers)
    }

    fn add_function(&mut self, info: &FunctionInfo) -> Result<FuncId, TooManyFunctions> {
        let next = u32::try_from(self.functions.len() + 1).or(Err(TooManyFunctions))?;
        let id = FuncId::new(next).ok_or(TooManyFunctions)?;
        let defined = self.functions.define(id, info.clone());
        defined.then_some(id).ok_or(TooManyFunctions)
    }

    fn take_contexts(&mut self, others: &[Context], functions: &[FuncId]) -> Vec<ContextId> {
        let mut tree = Contexts::of(std::mem::take(&mut self.contexts));
        let numbers = take(&mut tree, others, |func| new_func(functions, func));
        self.contexts = tree.into_all();
        numbers
    }
}

fn new_func(functions: &[FuncId], func: FuncId) -> Option<FuncId> {
    functions.get(func.get() as usize - 1).copied()
}

/// Takes in contexts whose parents come first; gives their new numbers.
fn take(
    tree: &mut Contexts,
    others: &[Context],
    func: impl Fn(FuncId) -> Option<FuncId>,
) -> Vec<ContextId> {
    let mut numbers = vec![ContextId::ROOT];
    for other in others.iter().skip(1) {
        let parent = numbers
            .get(other.parent.0 as usize)
            .copied()
            .unwrap_or_default();
        numbers.push(tree.intern(parent, other.func.and_then(&func), other.source));
    }
    numbers
}

/// Old numbers -> new ones.
struct Renumber {
    functions: Vec<FuncId>,
    contexts: Vec<ContextId>,
}

impl Renumber {
    fn func(&self, func: &mut FuncId) {
        *func = new_func(&self.functions, *func).unwrap_or(*func);
    }

    fn run(&self, run: &mut Genome) {
        let tree = &mut run.tree;
        for cell in &mut tree.cells {
            let new = self.contexts.get(cell.context.0 as usize);
            cell.context = new.copied().unwrap_or_default();
        }
        merge_cells(&mut tree.cells);
        tree.histograms
            .iter_mut()
            .for_each(|(func, _)| self.func(func));
        tree.histograms = add_histograms(std::mem::take(&mut tree.histograms));
        tree.cpu_histograms
            .iter_mut()
            .for_each(|(func, _)| self.func(func));
        tree.cpu_histograms = add_histograms(std::mem::take(&mut tree.cpu_histograms));
        tree.returns
            .iter_mut()
            .for_each(|(func, _)| self.func(func));
        tree.returns = add_returns(std::mem::take(&mut tree.returns));
        tree.faults.iter_mut().for_each(|(func, _)| self.func(func));
        tree.faults = add_faults(std::mem::take(&mut tree.faults));
        let bounds = run.bounds.iter_mut();
        bounds.for_each(|bound| self.func(&mut bound.func));
        let losses = run.losses.iter_mut();
        losses.for_each(|loss| loss.func.iter_mut().for_each(|func| self.func(func)));
        let kept = run.kept.iter_mut();
        kept.for_each(|call| self.func(&mut call.func));
    }
}

/// Adds up the histograms of each function, sorted by function.
fn add_histograms(
    histograms: impl IntoIterator<Item = (FuncId, Histogram)>,
) -> Vec<(FuncId, Histogram)> {
    let mut sums: BTreeMap<FuncId, BTreeMap<u16, u64>> = BTreeMap::new();
    for (func, histogram) in histograms {
        let sum = sums.entry(func).or_default();
        for (bucket, count) in histogram.buckets {
            let known = sum.entry(bucket).or_default();
            *known = known.saturating_add(count);
        }
    }
    let histogram = |sum: BTreeMap<u16, u64>| Histogram {
        buckets: sum.into_iter().collect(),
    };
    sums.into_iter()
        .map(|(func, sum)| (func, histogram(sum)))
        .collect()
}

/// Adds up what the calls of each function returned, sorted by function.
fn add_returns(returns: impl IntoIterator<Item = (FuncId, Returns)>) -> Vec<(FuncId, Returns)> {
    let mut sums: BTreeMap<FuncId, Returns> = BTreeMap::new();
    for (func, returns) in returns {
        sums.entry(func).or_default().add(&returns);
    }
    sums.into_iter().collect()
}

/// Adds up the faults of each function, sorted by function.
fn add_faults(
    faults: impl IntoIterator<Item = (FuncId, FunctionFaults)>,
) -> Vec<(FuncId, FunctionFaults)> {
    let mut sums: BTreeMap<FuncId, FunctionFaults> = BTreeMap::new();
    for (func, faults) in faults {
        sums.entry(func).or_default().add(&faults);
    }
    sums.into_iter().collect()
}

#[cfg(test)]
mod tests;
