//! What the static side adds to a run: how much of what ran it knows, and what became of what it knows.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::catalog::{Catalog, DefId, Definition, Kind, Outcome, State};
use crate::doubt::{self, Matched};
use crate::genome::share;
use crate::matching::{DefState, Matching, Rate, Rates};

/// A share with what it is of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Share {
    /// Found.
    pub matched: u64,
    /// Of so many that ran.
    pub ran: u64,
    /// The share, 0 to 1; `null` of nothing.
    pub share: Option<f64>,
}

impl From<Rate> for Share {
    fn from(rate: Rate) -> Self {
        Self {
            matched: rate.matched,
            ran: rate.ran,
            share: rate.share(),
        }
    }
}

/// Functions that ran and were not found, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unmatched {
    /// Reason word.
    pub why: &'static str,
    /// For people.
    pub text: &'static str,
    /// How many functions.
    pub functions: u64,
    /// Their calls and samples.
    pub events: u64,
    /// How many count against the match rate.
    pub written: u64,
}

/// User-written functions in one state, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InState {
    /// `ran`, `never-ran`, `not-visible`, `not-in-build`.
    pub state: &'static str,
    /// Why it could not be seen, or is not in what was built.
    pub why: Option<&'static str>,
    /// How many.
    pub functions: u64,
}

/// What was matched, and what became of what exists.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Known {
    /// Of the functions that a user wrote and that ran.
    pub match_rate: Share,
    /// Of all that ran.
    pub raw_rate: Share,
    /// Of module and class bodies and comprehensions that ran.
    pub bodies: Share,
    /// The match rate by language.
    pub languages: BTreeMap<&'static str, Share>,
    /// What ran and was not found.
    pub unmatched: Vec<Unmatched>,
    /// User-written functions by state.
    pub states: Vec<InState>,
    /// Of the functions that could be seen, those that ran.
    pub coverage: Option<f64>,
    /// What to check, where a target is not met.
    pub advice: Vec<String>,
}

/// A user-written function that did not run, as far as can be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnseenRow {
    /// File, relative to its source tree.
    pub file: String,
    /// Line of its declaration, from 1; `null` in executables.
    pub line: Option<u32>,
    /// Name within the file, with `#` and the ordinal after the first of that name.
    pub name: String,
    /// `function`, `method`, `closure` ...
    pub kind: &'static str,
    /// `never-ran`, `not-visible`, `not-in-build`.
    pub state: &'static str,
    /// Why it could not be seen, or is not in what was built.
    pub why: Option<&'static str>,
}

impl Known {
    /// What `matching` tells of a run with `catalog`.
    pub fn of(catalog: &Catalog, matching: &Matching) -> Self {
        let rates = &matching.rates;
        let states = states(catalog, matching);
        let doubts = doubt::of_matching(&facts(catalog, matching));
        let advice = |doubt: doubt::Doubt| format!("{}: {}", doubt.what, doubt.do_);
        Self {
            match_rate: rates.written.into(),
            raw_rate: rates.raw.into(),
            bodies: rates.bodies.into(),
            languages: rates
                .languages
                .iter()
                .map(|(language, rate)| (language.word(), (*rate).into()))
                .collect(),
            unmatched: unmatched(rates),
            coverage: coverage(&states),
            states,
            advice: doubts.into_iter().map(advice).collect(),
        }
    }
}

fn unmatched(rates: &Rates) -> Vec<Unmatched> {
    let row = |(why, count): (&crate::catalog::Why, &crate::matching::WhyCount)| Unmatched {
        why: why.word(),
        text: why.text(),
        functions: count.functions,
        events: count.events,
        written: count.written,
    };
    rates.unmatched.iter().map(row).collect()
}

/// What is to be judged.
pub(super) fn facts(catalog: &Catalog, matching: &Matching) -> Matched {
    let rates = &matching.rates;
    let worst = rates
        .unmatched
        .iter()
        .max_by_key(|(_, count)| count.written);
    let visible = written(catalog, matching)
        .filter(|(_, _, known)| matches!(known.state, State::Ran | State::NeverRan));
    let found = matching.outcomes.iter().zip(&matching.totals);
    let found = found.filter(|(outcome, _)| outcome.definition().is_some());
    let events = found.fold(0u64, |sum, (_, total)| {
        sum.saturating_add(total.metrics.calls)
            .saturating_add(total.metrics.samples)
    });
    Matched {
        matched: rates.written.matched,
        ran: rates.written.ran,
        all_ran: rates.raw.ran,
        worst: worst.map(|(why, count)| (*why, count.written)),
        visible: visible.count() as u64,
        events,
    }
}

/// Functions that a user wrote: in sources, and in executables where there are no sources of them.
pub fn written<'a>(
    catalog: &'a Catalog,
    matching: &'a Matching,
) -> impl Iterator<Item = (DefId, &'a Definition, &'a DefState)> {
    let has_sources = catalog.files.iter().any(|file| file.text_hash != 0);
    let definitions = catalog.numbered().zip(&matching.states);
    definitions
        .map(|((id, definition), known)| (id, definition, known))
        .filter(move |(_, definition, _)| {
            let counts = match &definition.native {
                Some(_) => !has_sources && definition.kind == Kind::Native,
                None => definition.kind.is_written(),
            };
            counts && !definition.flags.declared
        })
}

/// Those of them that did not run.
pub fn unseen(catalog: &Catalog, matching: &Matching) -> Vec<UnseenRow> {
    let row = |(_, definition, known): (DefId, &Definition, &DefState)| {
        let (state, why) = known.state.words();
        let file = catalog.file(definition.file);
        UnseenRow {
            file: file.map(|file| file.path.clone()).unwrap_or_default(),
            line: Some(definition.span.start.line).filter(|line| *line > 0),
            name: named(definition),
            kind: definition.kind.word(),
            state,
            why,
        }
    };
    written(catalog, matching)
        .filter(|(_, _, known)| known.state != State::Ran)
        .map(row)
        .collect()
}

/// What a function of the run is: `file:line name`; or why that is not known.
pub(super) fn found(
    catalog: &Catalog,
    outcome: Option<&Outcome>,
) -> (Option<String>, Option<&'static str>) {
    match outcome {
        None => (None, None),
        Some(Outcome::Matched(id)) => (Some(place(catalog, *id)), None),
        Some(Outcome::Unmatched(why)) => (None, Some(why.word())),
    }
}

/// `file:line name`, with the ordinal where several have the name.
pub fn place(catalog: &Catalog, id: DefId) -> String {
    let Some(definition) = catalog.definition(id) else {
        return "-".into();
    };
    let file = catalog.file(definition.file);
    let file = file.map_or("", |file| &*file.path);
    let name = named(definition);
    match definition.span.start.line {
        0 => format!("{file} {name}"),
        line => format!("{file}:{line} {name}"),
    }
}

/// The name within the file, with the ordinal where several have it.
fn named(definition: &Definition) -> String {
    match definition.ordinal {
        0 => definition.qualified.clone(),
        ordinal => format!("{}#{ordinal}", definition.qualified),
    }
}

fn states(catalog: &Catalog, matching: &Matching) -> Vec<InState> {
    let mut counts: BTreeMap<(&'static str, Option<&'static str>), u64> = BTreeMap::new();
    for (_, _, known) in written(catalog, matching) {
        *counts.entry(known.state.words()).or_default() += 1;
    }
    let row = |((state, why), functions)| InState {
        state,
        why,
        functions,
    };
    counts.into_iter().map(row).collect()
}

fn coverage(states: &[InState]) -> Option<f64> {
    let of = |word: &str| {
        let rows = states.iter().filter(|row| row.state == word);
        rows.map(|row| row.functions).sum::<u64>()
    };
    let (ran, never) = (of("ran"), of("never-ran"));
    (ran + never > 0).then(|| share(ran, ran + never))
}
