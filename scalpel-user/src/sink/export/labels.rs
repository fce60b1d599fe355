//! Names for formats that know a function by its name alone: no two functions may share one, or their numbers merge.

use rustc_hash::FxHashMap;

use crate::event::FuncId;
use crate::function::{FunctionInfo, FunctionTable};
use crate::sink::text::clean;

/// What stands for the calls that the caps folded away.
pub(super) const FOLDED: &str = "[folded]";
/// What was measured below no function.
pub(super) const NO_STACK: &str = "[no stack]";

/// One label a function, each once.
#[derive(Debug)]
pub(super) struct Labels(Vec<String>);

impl Labels {
    /// The plain name where it is the only one of its kind, then with its module, then the whole key.
    pub(super) fn of(functions: &FunctionTable) -> Self {
        let plain = |info: &FunctionInfo| clean(&info.name).into_owned();
        let in_module =
            |info: &FunctionInfo| format!("{} [{}]", clean(&info.name), clean(&info.module));
        let (names, longer) = (count(functions, plain), count(functions, in_module));
        let label = |info: &FunctionInfo| {
            let (short, long) = (plain(info), in_module(info));
            match (names.get(&short), longer.get(&long)) {
                (Some(1), _) => short,
                (_, Some(1)) => long,
                _ => clean(&info.key()).into_owned(),
            }
        };
        Self(functions.iter().map(|(_, info)| label(info)).collect())
    }

    /// The label of a context's function.
    pub(super) fn get(&self, func: Option<FuncId>) -> &str {
        func.map_or(FOLDED, |func| {
            self.0
                .get(func.get() as usize - 1)
                .map_or("?", String::as_str)
        })
    }
}

fn count(
    functions: &FunctionTable,
    name: impl Fn(&FunctionInfo) -> String,
) -> FxHashMap<String, u32> {
    let mut counts = FxHashMap::default();
    for (_, info) in functions.iter() {
        *counts.entry(name(info)).or_insert(0) += 1;
    }
    counts
}
