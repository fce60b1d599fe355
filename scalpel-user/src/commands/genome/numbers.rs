//! Match rates, states and doubts as an object: what `genome show`, `check` and `cover` print.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::catalog::Definition;
use crate::genome::share;
use crate::matching::{DefState, Rate, State};

use super::laid::Laid;

/// A match rate that is met by a healthy run.
pub(super) const TARGET: f64 = 0.9;

/// A share with what it is of.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Share {
    /// Found.
    pub(super) matched: u64,
    /// Of so many that ran.
    pub(super) ran: u64,
    /// The share; `null` of nothing.
    pub(super) share: Option<f64>,
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
#[derive(Clone, Debug, Serialize)]
pub(super) struct Unmatched {
    pub(super) why: &'static str,
    pub(super) text: &'static str,
    pub(super) functions: u64,
    pub(super) events: u64,
    /// How many count against the match rate.
    pub(super) written: u64,
}

/// Definitions in a state, for one reason.
#[derive(Clone, Debug, Serialize)]
pub(super) struct InState {
    pub(super) state: &'static str,
    pub(super) why: Option<&'static str>,
    pub(super) functions: u64,
}

/// What was matched, and what became of what exists.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Numbers {
    /// Of the functions that a user wrote and that ran.
    pub(super) match_rate: Share,
    /// Of all that ran.
    pub(super) raw_rate: Share,
    /// Of module and class bodies and comprehensions.
    pub(super) bodies: Share,
    /// The match rate by language.
    pub(super) languages: BTreeMap<&'static str, Share>,
    /// Share without a name.
    pub(super) unknown_share: Option<f64>,
    /// What was not found.
    pub(super) unmatched: Vec<Unmatched>,
    /// User-written functions by state.
    pub(super) states: Vec<InState>,
    /// Of the functions that could be seen, those that ran.
    pub(super) coverage: Option<f64>,
    /// What to check, where the target is not met.
    pub(super) advice: Vec<String>,
}

impl Numbers {
    pub(super) fn of(laid: &Laid, unknown_share: Option<f64>) -> Self {
        let rates = &laid.matching.rates;
        let states = states(laid);
        let mut numbers = Self {
            match_rate: rates.written.into(),
            raw_rate: rates.raw.into(),
            bodies: rates.bodies.into(),
            languages: rates
                .languages
                .iter()
                .map(|(language, rate)| (language.word(), (*rate).into()))
                .collect(),
            unknown_share,
            unmatched: rates
                .unmatched
                .iter()
                .map(|(why, count)| Unmatched {
                    why: why.word(),
                    text: why.text(),
                    functions: count.functions,
                    events: count.events,
                    written: count.written,
                })
                .collect(),
            coverage: coverage(&states),
            states,
            advice: Vec::new(),
        };
        numbers.advise();
        numbers
    }

    /// Below the target it says what to check.
    fn advise(&mut self) {
        let Some(share) = self.match_rate.share.filter(|share| *share < TARGET) else {
            if self.match_rate.ran == 0 {
                self.advice.push(
                    "nothing that ran counts as written by a user: is the right source tree given (--src), and did the probes see the program?".into(),
                );
            }
            return;
        };
        let worst = self
            .unmatched
            .iter()
            .max_by_key(|unmatched| unmatched.written);
        let check = worst.map_or("", |worst| match worst.why {
            "edited" => "the sources are not those that ran: check out the version that ran, or record again",
            "not-compared" => "build with the originals in the source maps (`sourcesContent`), so that they can be compared",
            "no-mapping" => "check the source maps: are they those of this build?",
            "not-listed" => "a file was left out: is it ignored by git, too large, or of a language that is not read?",
            "no-place" => "names were lost: look at the unknown share and at what the probe says",
            _ => "check that offsets, names and maps are those of the program that ran",
        });
        self.advice.push(format!(
            "the match rate is {:.1} %, the target {:.0} %: {check}",
            share * 100.0,
            TARGET * 100.0
        ));
    }
}

/// A word for a state, and the reason.
pub(super) const fn words(state: State) -> (&'static str, Option<&'static str>) {
    match state {
        State::Ran => ("ran", None),
        State::NeverRan => ("never-ran", None),
        State::NotVisible(why) => ("not-visible", Some(why.word())),
        State::NotInBuild(why) => ("not-in-build", Some(why.word())),
    }
}

/// Functions that a user wrote: in sources, and in executables where there are no sources of them.
pub(super) fn written(laid: &Laid) -> impl Iterator<Item = (&Definition, &DefState)> {
    let catalog = laid.catalog();
    let has_sources = catalog.files.iter().any(|file| file.text_hash != 0);
    let definitions = catalog.definitions.iter();
    definitions
        .zip(&laid.matching.states)
        .filter(move |(definition, _)| {
            let counts = match &definition.native {
                Some(_) => !has_sources && definition.kind == crate::catalog::Kind::Native,
                None => definition.kind.is_written(),
            };
            counts && !definition.flags.declared
        })
}

fn states(laid: &Laid) -> Vec<InState> {
    let mut counts: BTreeMap<(&str, Option<&'static str>), (&'static str, u64)> = BTreeMap::new();
    for (_, known) in written(laid) {
        let (state, why) = words(known.state);
        counts.entry((state, why)).or_insert((state, 0)).1 += 1;
    }
    let row = |((_, why), (state, functions))| InState {
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
