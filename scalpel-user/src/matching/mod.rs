//! What ran, laid over what exists: which function of the source each function that ran is, and what became of each
//! function of the source.
//!
//! Pure: a genome, a catalog and source maps in, verdicts out. A doubtful match is no match: a function that is taken for
//! another is worse than one that is not known.

mod compiled;
mod edges;
mod hidden;
mod index;
mod java;
mod javascript;
mod lines;
mod native;
mod rates;
mod states;

use std::collections::BTreeSet;

use crate::catalog::{Catalog, DefId, FileId, Matches, Outcome, Why};
use crate::event::FuncId;
use crate::function::{ExitStrategy, FunctionInfo, FunctionTable, Language};
use crate::genome::Genome;
use crate::genome::totals::{self, Total};
use crate::maps::{Map, Maps};
use scalpel_common::segment::name_flags;

pub use edges::{EdgeOverlay, FoundEdge, UntakenEdge, overlay};
pub use native::Source;
pub use rates::{Rate, Rates, WhyCount};
pub use states::DefState;

use index::Index;

/// Everything that comes of laying a run over a catalog.
#[derive(Debug)]
pub struct Matching {
    /// Of each function of the run, by its number less 1.
    pub outcomes: Vec<Outcome>,
    /// What the sources have of each function of the run that is known by an executable.
    pub sources: Vec<Option<Source>>,
    /// Of each definition, by its number.
    pub states: Vec<DefState>,
    /// What was matched, in numbers.
    pub rates: Rates,
    /// Sums of each function of the run, by its number less 1.
    pub totals: Vec<Total>,
}

impl Matching {
    /// What the matches that are kept in `genome` tell; `None` if nobody has looked for anything, or nothing exists.
    pub fn kept(genome: &Genome) -> Option<Self> {
        let nothing = genome.catalog.is_empty() || genome.matches.is_empty();
        (!nothing).then(|| Self::of(genome, &genome.catalog, &genome.matches))
    }

    /// What `matches` of `genome` with `catalog` tell.
    pub fn of(genome: &Genome, catalog: &Catalog, matches: &Matches) -> Self {
        let index = Index::of(catalog);
        let own = totals::per_context(&genome.tree, |_| true);
        let totals = totals::functions(&genome.tree, &own, &genome.functions);
        let outcome = |(id, _)| {
            let found = matches.outcomes.get(&id).copied();
            found.unwrap_or(Outcome::Unmatched(Why::NotMatched))
        };
        let outcomes: Vec<Outcome> = genome.functions.iter().map(outcome).collect();
        let states = states::states(genome, &index, matches, &outcomes, &totals);
        let sources = native::sources(&index, &outcomes);
        let rates = rates::rates(genome, catalog, &outcomes, &sources, &totals);
        Self {
            outcomes,
            sources,
            states,
            rates,
            totals,
        }
    }
}

/// Looks for every function in `catalog`.
pub fn find(functions: &FunctionTable, catalog: &Catalog, maps: &Maps) -> Matches {
    let index = Index::of(catalog);
    let mut maybe = BTreeSet::new();
    let mut outcomes = outcomes(functions, &index, maps, &mut maybe);
    keep_one_each(functions, &mut outcomes, &mut maybe);
    let ids = functions.iter().map(|(id, _)| id);
    let (built, folded) = javascript::built(functions, &index, maps);
    Matches {
        outcomes: ids.zip(outcomes).collect(),
        bundled: bundled(functions, &index, maps),
        built,
        folded,
        maybe,
        states: Vec::new(),
    }
}

/// Originals that are in a bundle that ran.
fn bundled(functions: &FunctionTable, index: &Index<'_>, maps: &Maps) -> BTreeSet<FileId> {
    let infos = functions.iter().map(|(_, info)| info);
    let texts: BTreeSet<u64> = infos.map(|info| info.place.text_hash).collect();
    let maps = texts.into_iter().filter_map(|text| maps.of(text));
    maps.flat_map(Map::sources)
        .filter_map(|source| index.file_at(source))
        .collect()
}

fn outcomes(
    functions: &FunctionTable,
    index: &Index<'_>,
    maps: &Maps,
    maybe: &mut BTreeSet<DefId>,
) -> Vec<Outcome> {
    let edited = lines::edited_files(functions, index);
    let outcome = |(_, info): (FuncId, &std::sync::Arc<FunctionInfo>)| {
        let found = match info.language {
            Language::JavaScript => javascript::find(index, maps, info, maybe),
            Language::Kernel => Err(Why::System),
            _ if java::is_compiled(info) => java::find(index, info, maybe),
            language if is_text(language, info) => lines::find(index, &edited, info, maybe),
            _ => native::find(index, info),
        };
        match found {
            Ok(id) => Outcome::Matched(id),
            Err(why) => Outcome::Unmatched(why),
        }
    };
    functions.iter().map(outcome).collect()
}

/// Whether it is known by its place in a text, and not by its place in an image.
fn is_text(language: Language, info: &FunctionInfo) -> bool {
    info.exit == ExitStrategy::Probe
        || matches!(
            language,
            Language::Python
                | Language::Ruby
                | Language::Php
                | Language::Java
                | Language::Dotnet
                | Language::Lua
        )
}

/// Two functions of one loaded text that are taken for one definition cannot both be it, and which is not known.
fn keep_one_each(functions: &FunctionTable, outcomes: &mut [Outcome], maybe: &mut BTreeSet<DefId>) {
    let mut seen: rustc_hash::FxHashMap<(DefId, u64), (usize, bool)> =
        rustc_hash::FxHashMap::default();
    let infos: Vec<_> = functions.iter().map(|(_, info)| info).collect();
    for (at, outcome) in outcomes.iter().enumerate() {
        let text = infos.get(at).map_or(0, |info| info.place.text_hash);
        if let Some(id) = outcome.definition().filter(|_| text != 0) {
            let first = seen.entry((id, text)).or_insert((at, false));
            first.1 |= first.0 != at;
        }
    }
    for (at, outcome) in outcomes.iter_mut().enumerate() {
        let text = infos.get(at).map_or(0, |info| info.place.text_hash);
        let shared = outcome.definition().and_then(|id| seen.get(&(id, text)));
        if shared.is_some_and(|(_, several)| *several) {
            maybe.extend(outcome.definition());
            *outcome = Outcome::Unmatched(Why::Ambiguous);
        }
    }
}

/// Whether its probe says that it is no function of the program's own text.
fn flagged(info: &FunctionInfo, flag: u16) -> bool {
    info.place.flags & flag != 0
}

/// What its flags alone tell about where it comes from.
fn foreign(info: &FunctionInfo) -> Option<Why> {
    if flagged(info, name_flags::GENERATED) {
        Some(Why::Eval)
    } else if flagged(info, name_flags::NATIVE) {
        Some(Why::System)
    } else if flagged(info, name_flags::STANDARD_LIBRARY) {
        Some(Why::StandardLibrary)
    } else {
        None
    }
}

/// Why a file is not in the catalog.
fn absent(index: &Index<'_>, info: &FunctionInfo, path: &str) -> Why {
    let vendored = [
        "/node_modules/",
        "/site-packages/",
        "/dist-packages/",
        "/vendor/",
    ];
    if flagged(info, name_flags::THIRD_PARTY) || vendored.iter().any(|part| path.contains(part)) {
        Why::Vendored
    } else if index.is_in_tree(path) {
        Why::NotListed
    } else {
        Why::OutOfTree
    }
}

#[cfg(test)]
mod tests;
