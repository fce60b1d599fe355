//! Doubts about how a run meets what exists: they do not belong together, or far too little happened.

use super::{Doubt, doubt, many, percent};
use crate::catalog::Why;

/// Share of the user-written functions that ran below which the match is a doubt.
pub const MATCH_TARGET: f64 = 0.9;

/// Share below which source and program more likely do not belong together.
const MATCH_BROKEN: f64 = 0.5;

/// A project of fewer functions than this may well do little.
const PROJECT_LEAST: u64 = 100;

/// Events a function of the project below which a run is suspiciously quiet: one for ten functions.
const QUIET: u64 = 10;

/// How a run meets what exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matched {
    /// User-written functions that ran and were found.
    pub matched: u64,
    /// User-written functions that ran.
    pub ran: u64,
    /// All functions that ran.
    pub all_ran: u64,
    /// The reason for which most were not found, and how many.
    pub worst: Option<(Why, u64)>,
    /// User-written functions that exist and whose running could be seen.
    pub visible: u64,
    /// Calls and samples of what was found.
    pub events: u64,
}

/// The doubts about how a run meets the static side.
pub fn of_matching(matched: &Matched) -> Vec<Doubt> {
    let checks = [nothing_known, unmatched, quiet];
    checks.iter().filter_map(|check| check(matched)).collect()
}

fn nothing_known(facts: &Matched) -> Option<Doubt> {
    (facts.ran == 0 && facts.all_ran > 0).then(|| {
        doubt(
            format!(
                "none of the {} is of the source tree",
                ran(facts.all_ran)
            ),
            "no function of the source can be said to have run, or not to have run",
            "check that --src names the tree that the program was built from, and, for native programs, --exe the executable; \
             and that a probe was in the program (`scalpel-ebpf list processes`)",
        )
    })
}

fn ran(count: u64) -> String {
    format!("{} that ran", many(count, "function"))
}

fn unmatched(facts: &Matched) -> Option<Doubt> {
    let share = facts.matched as f64 / facts.ran.max(1) as f64;
    let (why, worst) = facts.worst.filter(|(_, count)| *count > 0)?;
    let why_it_matters = if share < MATCH_BROKEN {
        "less than half: source and program more likely do not belong together than that so much is missing; \
         what is said of functions that never ran is not to be trusted"
    } else {
        "the others may be among those that are said not to have run, or not to be visible"
    };
    (share < MATCH_TARGET).then(|| {
        doubt(
            format!(
                "{} of the user-written functions that ran are found in the source ({} of {}; {worst}: {})",
                percent(share),
                facts.matched,
                facts.ran,
                why.text()
            ),
            why_it_matters,
            what_to_check(why),
        )
    })
}

/// What most likely is wrong, by the reason for which most functions were not found.
const fn what_to_check(why: Why) -> &'static str {
    match why {
        Why::Edited => {
            "the sources are not those that ran: check out the version that ran, or build and record again"
        }
        Why::NotCompared => {
            "build with the originals in the source maps (`sourcesContent`), so that they can be compared"
        }
        Why::NoMapping => "check the source maps: are they those of this build, and complete?",
        Why::NotListed => {
            "a file was left out: is it ignored by git, too large, or of a language that is not read?"
        }
        Why::NoPlace => "names were lost: look at the unknown share and at what the probe says",
        Why::NotMatched => {
            "lay the recording over what exists: `scalpel-ebpf genome match RECORDING STATIC -o FILE`"
        }
        _ => {
            "check that offsets, names and maps are those of the program that ran, and that --src names its tree"
        }
    }
}

fn quiet(facts: &Matched) -> Option<Doubt> {
    let is_quiet = facts.ran > 0
        && facts.visible >= PROJECT_LEAST
        && facts.events.saturating_mul(QUIET) < facts.visible;
    is_quiet.then(|| {
        doubt(
            format!(
                "{} of a project of {}",
                many(facts.events, "event"),
                many(facts.visible, "function")
            ),
            "far less happened than the size of the project suggests: that most of it never ran says little",
            "check that the program did its work while it was recorded, in this process and not in a child (-s follows children), \
             and that no filter left its modules out",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{Matched, of_matching};
    use crate::catalog::Why;
    use crate::doubt::tests::expect;

    #[track_caller]
    fn check(matched: &Matched, expected: &[&str]) {
        expect(&of_matching(matched), expected);
    }

    #[test]
    fn a_run_that_does_not_meet_its_sources_says_what_to_check() {
        let matched = |matched, ran, why| Matched {
            matched,
            ran,
            all_ran: 100,
            worst: Some((why, ran - matched)),
            visible: 50,
            events: 1_000,
        };
        check(&(matched(9, 10, Why::NotFound)), &[]);
        let low = matched(8, 10, Why::Edited);
        check(
            &low,
            &[
                "80 % of the user-written functions that ran are found in the source (8 of 10; 2: its file was edited since)",
            ],
        );
        assert!(
            of_matching(&low)[0]
                .do_
                .contains("check out the version that ran")
        );
        assert!(!of_matching(&low)[0].why.contains("do not belong together"));
        let broken = matched(4, 10, Why::NoMapping);
        assert!(
            of_matching(&broken)[0]
                .why
                .contains("do not belong together")
        );
        assert!(of_matching(&broken)[0].do_.contains("source maps"));
        check(
            &(matched(0, 0, Why::OutOfTree)),
            &["none of the 100 functions that ran is of the source tree"],
        );
    }

    #[test]
    fn far_fewer_events_than_the_project_suggests_are_a_doubt() {
        let quiet = |visible, events| Matched {
            matched: 5,
            ran: 5,
            all_ran: 5,
            worst: None,
            visible,
            events,
        };
        check(
            &quiet(2_000, 20),
            &["20 events of a project of 2000 functions"],
        );
        check(&quiet(2_000, 200), &[]);
        check(&quiet(50, 2), &[]);
    }
}
