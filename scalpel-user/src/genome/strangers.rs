//! Functions that events name and that the stream never defined: each gets a place of its own at the end of the table.
//!
//! Their numbers may be absurd (the stream is damaged), so a place costs what one function costs, not what the number
//! says.

use rustc_hash::FxHashMap;

use super::Genome;
use crate::event::FuncId;
use crate::function::FunctionTable;

/// Gives every id that the genome names a function.
pub(super) fn take_in(genome: &mut Genome) {
    let mut strangers = Strangers {
        defined: genome.functions.len(),
        table: &mut genome.functions,
        places: FxHashMap::default(),
    };
    let tree = &mut genome.tree;
    let contexts = tree.contexts.iter_mut();
    contexts.for_each(|context| {
        context
            .func
            .iter_mut()
            .for_each(|func| strangers.meet(func))
    });
    tree.histograms
        .iter_mut()
        .chain(&mut tree.cpu_histograms)
        .for_each(|(func, _)| strangers.meet(func));
    tree.faults
        .iter_mut()
        .for_each(|(func, _)| strangers.meet(func));
    tree.returns
        .iter_mut()
        .for_each(|(func, _)| strangers.meet(func));
    tree.returns.sort_unstable_by_key(|&(func, _)| func);
    genome
        .bounds
        .iter_mut()
        .for_each(|bound| strangers.meet(&mut bound.func));
    let losses = genome.losses.iter_mut();
    losses.for_each(|loss| loss.func.iter_mut().for_each(|func| strangers.meet(func)));
}

struct Strangers<'a> {
    /// Functions that the stream defined.
    defined: usize,
    table: &'a mut FunctionTable,
    /// Number in the stream -> place.
    places: FxHashMap<FuncId, FuncId>,
}

impl Strangers<'_> {
    fn meet(&mut self, func: &mut FuncId) {
        if func.get() as usize > self.defined {
            let table = &mut self.table;
            *func = *self
                .places
                .entry(*func)
                .or_insert_with_key(|func| table.insert_undefined(*func));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::take_in;
    use crate::event::FuncId;
    use crate::function::{FunctionTable, UnknownReason};
    use crate::genome::Genome;
    use crate::genome::assemble::Assembly;
    use crate::genome::tests::run;
    use crate::input::Bound;
    use crate::tree::{Context, ContextId, EdgeSource, FunctionFaults, Tree};

    fn genome(numbers: &[u32]) -> Genome {
        let func = |&number: &u32| FuncId::new(number);
        let context = |func| Context {
            parent: ContextId::ROOT,
            func,
            source: EdgeSource::Exact,
        };
        let tree = Tree {
            contexts: [None]
                .into_iter()
                .chain(numbers.iter().chain(numbers).map(func))
                .map(context)
                .collect(),
            faults: numbers
                .iter()
                .filter_map(func)
                .map(|func| (func, FunctionFaults::default()))
                .collect(),
            ..Tree::default()
        };
        let mut assembly = Assembly::new();
        for func in numbers.iter().filter_map(func) {
            assembly.bound(Bound {
                func,
                since: None,
                reason: String::new(),
            });
        }
        assembly.finish(run(), FunctionTable::new(), tree)
    }

    #[test]
    fn a_function_that_was_never_defined_has_one_place_in_a_genome_that_can_be_read() {
        let mut genome = genome(&[7, u32::MAX]);
        let names: Vec<_> = genome
            .functions
            .iter()
            .map(|(_, info)| info.name.as_str())
            .collect();
        assert_eq!(names, ["<function 7>", "<function 4294967295>"]);
        let unknown = |(_, info): (FuncId, &std::sync::Arc<crate::function::FunctionInfo>)| {
            info.unknown == Some(UnknownReason::UndefinedId)
        };
        assert!(genome.functions.iter().all(unknown));
        take_in(&mut genome);
        assert_eq!(genome.functions.len(), 2);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("strangers.genome");
        genome.write(&path).unwrap();
        assert_eq!(Genome::read(&path).unwrap().tree, genome.tree);
    }
}
