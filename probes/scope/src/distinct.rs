//! The distinct instructions of a trace that grows: each is shown to the sink once, before its first step, and gets an
//! index.
use std::collections::HashMap;

use crate::oracle::Meanings;
use crate::sink::Sink;
use crate::symbol::Resolver;
use crate::trace::Code;

/// Instructions by address space and address.
#[derive(Debug, Default)]
pub(crate) struct Distinct {
    known: HashMap<(u32, u64), Vec<u32>>,
    code: Vec<Code>,
    meanings: Meanings,
}

impl Distinct {
    /// The index of an instruction of an address space. Code that changes has more than one at its address.
    pub(crate) fn learn(
        &mut self,
        space: u32,
        code: Code,
        names: &mut dyn Resolver,
        sink: &mut dyn Sink,
    ) -> u32 {
        let places = self.known.entry((space, code.addr)).or_default();
        let same = |at: &&u32| {
            let old = usize::try_from(**at).ok().and_then(|at| self.code.get(at));
            old.is_some_and(|old| old.bytes == code.bytes)
        };
        if let Some(at) = places.iter().find(same) {
            return *at;
        }
        let index = u32::try_from(self.code.len()).unwrap_or(u32::MAX);
        places.push(index);
        let symbol = names.resolve(code.addr);
        sink.code(&code, symbol.as_ref());
        self.meanings.learn(&code);
        self.code.push(code);
        index
    }

    /// What their bytes say.
    pub(crate) fn meanings(&self) -> &Meanings {
        &self.meanings
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.code.len()
    }
}
