//! Global ids for the functions that probes name: one id for one function, however many processes name it.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::event::FuncId;
use crate::function::{FunctionInfo, FunctionTable};

/// The functions of a recording, as far as probes are concerned.
#[derive(Debug)]
pub(super) struct Functions {
    table: FunctionTable,
    lost: FxHashMap<FuncId, u64>,
}

impl Functions {
    /// Behind the functions that have ids already.
    pub(super) fn after(table: FunctionTable) -> Self {
        Self {
            table,
            lost: FxHashMap::default(),
        }
    }

    /// The id of a function, and the function as it is to be told if it is new. `None` = no more ids.
    pub(super) fn intern(
        &mut self,
        info: FunctionInfo,
    ) -> Option<(FuncId, Option<Arc<FunctionInfo>>)> {
        if self.table.len() >= FunctionTable::MOST as usize {
            return None;
        }
        let known = self.table.len();
        let id = self.table.insert(info);
        let new = self.table.len() > known;
        let told = new.then(|| self.table.get(id).map(Arc::clone)).flatten();
        Some((id, told))
    }

    /// Calls of a function that were lost, more than were told before.
    pub(super) fn lose(&mut self, func: FuncId, calls: u64) {
        let sum = self.lost.entry(func).or_default();
        *sum = sum.saturating_add(calls);
    }

    /// Lost calls of each function so far.
    pub(super) fn lost(&self) -> impl Iterator<Item = (FuncId, u64)> {
        self.lost.iter().map(|(func, count)| (*func, *count))
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::{parse, tests::record};
    use super::*;
    use crate::event::Source;

    #[test]
    fn one_function_of_two_processes_has_one_id() {
        let mut functions = Functions::after(FunctionTable::new());
        let info = |name: &str, line| {
            parse(&record(9, Source::Python, name, "/a.py", "a", line))
                .unwrap()
                .info
        };
        let (first, told) = functions.intern(info("f", 1)).unwrap();
        assert!(told.is_some());
        assert_eq!(functions.intern(info("f", 1)).unwrap(), (first, None));
        let (second, told) = functions.intern(info("f", 5)).unwrap();
        assert_ne!(first, second, "another function of the same name");
        assert_eq!(told.unwrap().key(), "python:a:f#1");
    }
}
