//! What functions are among what exists, of several files: of two verdicts on one function the better founded is kept,
//! whichever comes first.

use std::collections::BTreeMap;

use super::exists::Taken;
use crate::catalog::{Catalog, DefId, FactsOfFiles, Matches, Outcome};
use crate::event::FuncId;

/// Takes in the verdicts of `other`, whose functions and definitions are found under new numbers.
pub(super) fn join(
    catalog: &Catalog,
    matches: &mut Matches,
    other: Matches,
    functions: &[FuncId],
    taken: &Taken,
) {
    let renumbered = other.outcomes.into_iter().filter_map(|(func, outcome)| {
        let outcome = match outcome {
            Outcome::Matched(id) => Outcome::Matched(taken.definition(id)?),
            unmatched @ Outcome::Unmatched(_) => unmatched,
        };
        Some((super::new_func(functions, func)?, outcome))
    });
    add(catalog, &mut matches.outcomes, renumbered);
    let files = other.bundled.into_iter().map(|file| taken.file(file));
    matches.bundled.extend(files);
    let found = |id: DefId| taken.definition(id);
    matches
        .built
        .extend(other.built.into_iter().filter_map(found));
    matches
        .folded
        .extend(other.folded.into_iter().filter_map(found));
    matches
        .maybe
        .extend(other.maybe.into_iter().filter_map(found));
    // They are of one file with one catalog: what they are together has to be derived anew.
    matches.states.clear();
}

/// Adds verdicts to others on the same functions.
pub(super) fn add(
    catalog: &Catalog,
    outcomes: &mut BTreeMap<FuncId, Outcome>,
    more: impl IntoIterator<Item = (FuncId, Outcome)>,
) {
    for (func, outcome) in more {
        let known = outcomes.entry(func).or_insert(outcome);
        *known = better(catalog, *known, outcome);
    }
}

/// A definition that was found is better than none; a reason that counts against the match rate better than one that does
/// not, so that nothing is left out of it by merging. Between equals what they are decides, not their numbers.
fn better(catalog: &Catalog, one: Outcome, other: Outcome) -> Outcome {
    match (one, other) {
        (Outcome::Matched(a), Outcome::Matched(b)) => {
            Outcome::Matched(if place(catalog, a) >= place(catalog, b) {
                a
            } else {
                b
            })
        }
        (Outcome::Matched(_), _) => one,
        (_, Outcome::Matched(_)) => other,
        (Outcome::Unmatched(a), Outcome::Unmatched(b)) => {
            let rank = |why: crate::catalog::Why| (why.counts(), why);
            Outcome::Unmatched(if rank(a) >= rank(b) { a } else { b })
        }
    }
}

/// A definition by what it is.
fn place(catalog: &Catalog, id: DefId) -> Option<(String, [u8; 32], u32, &str, u32)> {
    let definition = catalog.definition(id)?;
    let file = catalog.file(definition.file)?;
    Some((
        catalog.path_of(file),
        file.content,
        definition.span.start.byte,
        &definition.qualified,
        definition.ordinal,
    ))
}

/// Takes in what the next build needs of each file; of a file that both know the newer.
pub(super) fn join_facts(facts: &mut FactsOfFiles, other: FactsOfFiles, taken: &Taken) {
    for (file, new) in other {
        let known = facts.entry(taken.file(file)).or_default();
        if new > *known {
            *known = new;
        }
    }
}
