//! How much of what ran was found, in numbers that cannot be made better by leaving things out: what a rate does not
//! count stands beside it.

use std::collections::BTreeMap;

use crate::catalog::{Catalog, Kind, Outcome, Why};
use crate::function::{FunctionInfo, Language};
use crate::genome::totals::Total;
use crate::genome::{Genome, share};
use scalpel_common::segment::name_flags;

use super::flagged;
use super::native::Source;

/// Of so many, so many were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Found.
    pub matched: u64,
    /// Ran.
    pub ran: u64,
}

impl Rate {
    /// The share, 0 to 1; `None` of nothing.
    pub fn share(self) -> Option<f64> {
        (self.ran > 0).then(|| share(self.matched, self.ran))
    }

    fn add(&mut self, matched: bool) {
        self.ran += 1;
        self.matched += u64::from(matched);
    }
}

/// Functions that ran and were not found, for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WhyCount {
    /// How many.
    pub functions: u64,
    /// Their calls and samples.
    pub events: u64,
    /// How many of them count as written by the user: they are in the denominator of the match rate.
    pub written: u64,
}

/// The rates of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Of the functions that a user wrote and that ran: the match rate.
    pub written: Rate,
    /// Of all that ran: the raw rate.
    pub raw: Rate,
    /// Of module and class bodies and comprehensions that ran.
    pub bodies: Rate,
    /// The match rate by language.
    pub languages: BTreeMap<Language, Rate>,
    /// What was not found, and why.
    pub unmatched: BTreeMap<Why, WhyCount>,
}

pub(super) fn rates(
    genome: &Genome,
    catalog: &Catalog,
    outcomes: &[Outcome],
    sources: &[Option<Source>],
    totals: &[Total],
) -> Rates {
    let mut rates = Rates::default();
    let functions = genome.functions.iter().map(|(_, info)| info);
    let found = outcomes.iter().zip(sources);
    for ((info, (outcome, source)), total) in functions.zip(found).zip(totals) {
        let events = total.metrics.calls.saturating_add(total.metrics.samples);
        if events > 0 {
            rates.add(info, *outcome, *source, catalog, events);
        }
    }
    rates
}

impl Rates {
    fn add(
        &mut self,
        info: &FunctionInfo,
        outcome: Outcome,
        source: Option<Source>,
        catalog: &Catalog,
        events: u64,
    ) {
        self.raw.add(outcome.definition().is_some());
        let is_body = is_body(info, outcome, catalog);
        let is_elsewhere = matches!(source, Some(Source::Foreign | Source::Made));
        let is_written = !is_body && is_written(outcome) && !is_elsewhere;
        // To be in the executable that was looked at is no news: it has to be found in the sources.
        let outcome = match source {
            Some(Source::Missing) => Outcome::Unmatched(Why::NotFound),
            Some(Source::Ambiguous) => Outcome::Unmatched(Why::Ambiguous),
            _ => outcome,
        };
        let matched = outcome.definition().is_some();
        if is_body {
            self.bodies.add(matched);
        }
        if is_written {
            self.written.add(matched);
            self.languages
                .entry(info.language)
                .or_default()
                .add(matched);
        }
        if let Outcome::Unmatched(why) = outcome {
            let count = self.unmatched.entry(why).or_default();
            count.functions += 1;
            count.events = count.events.saturating_add(events);
            count.written += u64::from(is_written);
        }
    }
}

/// A class body, a module, a comprehension, what runs an enum or a namespace.
fn is_body(info: &FunctionInfo, outcome: Outcome, catalog: &Catalog) -> bool {
    let kind = outcome
        .definition()
        .and_then(|id| catalog.definition(id))
        .map(|definition| definition.kind);
    let is_comprehension = ["<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"]
        .iter()
        .any(|name| info.raw_name.ends_with(name));
    flagged(info, name_flags::CLASS_BODY | name_flags::MODULE)
        || is_comprehension
        || matches!(
            kind,
            Some(Kind::Module | Kind::Class | Kind::Comprehension | Kind::Enum | Kind::Namespace)
        )
}

/// Whether a user wrote it, as far as can be told.
const fn is_written(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Matched(_) => true,
        Outcome::Unmatched(why) => why.counts(),
    }
}
