//! Doubts about a result: what happened, why it matters, and what to do about it.
//!
//! A run diagnoses itself, so that nobody takes an empty or a partial result for an answer. Pure: facts in, doubts
//! out; must not know where the facts come from.

mod kept;
mod matched;

use serde::Serialize;

use crate::input::Trigger;

pub use matched::{MATCH_TARGET, Matched, of_matching};

/// Share of functions or events without a name above which names are a doubt.
pub const UNKNOWN_LIMIT: f64 = 0.05;

/// One doubt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Doubt {
    /// What happened.
    pub what: String,
    /// Why it matters.
    pub why: String,
    /// What to do about it.
    #[serde(rename = "do")]
    pub do_: String,
}

/// What is known of a result. Counts are totals of the recording, shares are 0 to 1.
#[derive(Clone, Debug, Default)]
pub struct Facts<'a> {
    /// Events that arrived.
    pub events: u64,
    /// Samples that arrived.
    pub samples: u64,
    /// Whether samples were asked for.
    pub sampling: bool,
    /// Events lost.
    pub lost: u64,
    /// Lost entries that no function could be charged with.
    pub lost_without_function: u64,
    /// Share of lost events that the user accepts.
    pub max_loss: f64,
    /// Length of the recording in ns.
    pub duration_ns: u64,
    /// Functions that were to be watched.
    pub watched: u64,
    /// Functions that never were attached.
    pub refused: u64,
    /// Functions that were detached while recording.
    pub bounded: u64,
    /// Share of nameless functions and of their events; `None` if nothing ran.
    pub unknown: Option<(f64, f64)>,
    /// Why, and how many functions.
    pub unknown_reasons: Vec<(&'a str, u64)>,
    /// Functions that ran and whose ends are not watched.
    pub entry_only: u64,
    /// Of those, functions that no sample hit.
    pub entry_only_unsampled: u64,
    /// Returns without an entry.
    pub missed_enter: u64,
    /// Returns beyond the kernel's depth of return probes.
    pub depth_limited: u64,
    /// Returns that the stack guard refused to watch.
    pub return_refused: u64,
    /// Counted calls for which no cell was left.
    pub without_cell: u64,
    /// Counted calls for which no histogram was left.
    pub without_histogram: u64,
    /// Waits that were told.
    pub waits: u64,
    /// Waits that were told without their stack, for want of room.
    pub waits_without_stack: u64,
    /// Calls that the tree's caps folded together.
    pub folded_calls: u64,
    /// The recording did not end by itself.
    pub cut: bool,
    /// Events that name function 0.
    pub zero_ids: u64,
    /// Records that are no event.
    pub decode_faults: u64,
    /// Events older than an earlier one of their thread.
    pub clock_backwards: u64,
    /// Events that came after their time was released.
    pub late_events: u64,
    /// Probe hits that the kernel dropped.
    pub recursion_misses: u64,
    /// Times the kernel throttled the sampler.
    pub samples_throttled: u64,
    /// The target ended while probes were being attached.
    pub target_ended_in_attach: bool,
    /// Things the session wants said.
    pub notes: &'a [String],
    /// Triggers: only the calls that they kept are in the recording.
    pub triggers: &'a [Trigger],
    /// Events left out of kept calls for want of memory.
    pub left_out: u64,
    /// How the run meets the static side; `None` without one.
    pub matched: Option<Matched>,
}

/// All doubts, the gravest first.
pub fn judge(facts: &Facts<'_>) -> Vec<Doubt> {
    let checks: [fn(&Facts<'_>) -> Option<Doubt>; 24] = [
        cut,
        kept::alone,
        kept::left_out,
        kept::unjudged,
        nothing,
        target_ended,
        zero_ids,
        lost,
        homeless,
        recursion_misses,
        bounded,
        refused,
        unknown,
        untimed,
        missed_enter,
        depth_limited,
        return_refused,
        without_cell,
        without_histogram,
        waits_without_stack,
        clock,
        undecoded,
        throttled,
        folded,
    ];
    let mut doubts: Vec<Doubt> = checks.iter().filter_map(|check| check(facts)).collect();
    doubts.extend(facts.matched.iter().flat_map(of_matching));
    doubts.extend(facts.notes.iter().map(|note| doubt(note.clone(), "", "")));
    doubts
}

fn doubt(what: impl Into<String>, why: &str, do_: &str) -> Doubt {
    Doubt {
        what: what.into(),
        why: why.into(),
        do_: do_.into(),
    }
}

/// `3 functions`, `1 function`.
fn many(count: u64, one: &str) -> String {
    if count == 1 {
        format!("1 {one}")
    } else {
        format!("{count} {one}s")
    }
}

/// A share as `12 %`; what is not nothing is never shown as 0.
fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p > 0.0 && p < 0.01 => "less than 0.01 %".to_owned(),
        p if p < 10.0 => format!("{p:.2} %"),
        p => format!("{p:.0} %"),
    }
}

fn cut(facts: &Facts<'_>) -> Option<Doubt> {
    facts.cut.then(|| {
        doubt(
            "the recording was cut: the recorder did not end by itself",
            "what happened after the last second on disk is missing, and calls open then have no time",
            "record again; counts up to the cut are right",
        )
    })
}

fn nothing(facts: &Facts<'_>) -> Option<Doubt> {
    // That no call was slow is an answer.
    if facts.triggers.iter().any(|trigger| trigger.calls > 0) {
        return None;
    }
    if facts.events > 0 || facts.samples > 0 || facts.waits > 0 {
        return None;
    }
    let do_ = if facts.watched == 0 && !facts.sampling {
        "no function was chosen: look at what there is with `scalpel-ebpf list functions`, then at the patterns of -f and -N"
    } else if facts.watched > 0 && facts.refused >= facts.watched {
        "no probe could be attached: `scalpel-ebpf doctor` tells what this kernel allows"
    } else if facts.target_ended_in_attach {
        "start the program under scalpel instead: `record -- CMD`"
    } else if facts.duration_ns < 1_000_000_000 {
        "record for longer: it was less than a second"
    } else {
        "check that the process does its work now, and in this process and not in a child (-s follows children)"
    };
    let what = format!(
        "no events came from {}",
        many(
            facts.watched - facts.refused.min(facts.watched),
            "watched function"
        )
    );
    Some(doubt(
        what,
        "an empty result does not tell that nothing ran",
        do_,
    ))
}

fn target_ended(facts: &Facts<'_>) -> Option<Doubt> {
    facts.target_ended_in_attach.then(|| {
        doubt(
            "the target ended while probes were being attached",
            "what ran before is missing",
            "start the program under scalpel instead: `record -- CMD`",
        )
    })
}

fn zero_ids(facts: &Facts<'_>) -> Option<Doubt> {
    (facts.zero_ids > 0).then(|| {
        let all = if facts.zero_ids >= facts.events { "all events name" } else { "some events name" };
        doubt(
            format!("{all} function 0 ({})", many(facts.zero_ids, "event")),
            "they belong to no function and are counted nowhere",
            "this is a fault of scalpel or of a probe: please report it with the output of `scalpel-ebpf doctor`",
        )
    })
}

fn lost(facts: &Facts<'_>) -> Option<Doubt> {
    let share = facts.lost as f64 / facts.events.saturating_add(facts.lost).max(1) as f64;
    (facts.lost > 0).then(|| {
        let over = if share > facts.max_loss { ", more than --max-loss allows" } else { "" };
        doubt(
            format!("{} lost ({}{over})", many(facts.lost, "event"), percent(share)),
            "counts of the marked functions are lower bounds, and calls around a gap have no time",
            "watch fewer functions (-f, -N), give more memory (--ring-size), or lower --max-overhead",
        )
    })
}

fn homeless(facts: &Facts<'_>) -> Option<Doubt> {
    (facts.lost_without_function > 0).then(|| {
        doubt(
            format!(
                "{} of no known function",
                many(facts.lost_without_function, "lost call")
            ),
            "any count may be too low by as much",
            "watch fewer functions (-f, -N)",
        )
    })
}

fn recursion_misses(facts: &Facts<'_>) -> Option<Doubt> {
    (facts.recursion_misses > 0).then(|| {
        doubt(
            format!("the kernel skipped {}", many(facts.recursion_misses, "probe hit")),
            "a probe hit while another program ran on that processor: those calls are missing, and nobody knows whose they were",
            "leave out functions that run inside signal or fault handlers (-N)",
        )
    })
}

fn bounded(facts: &Facts<'_>) -> Option<Doubt> {
    (facts.bounded > 0).then(|| {
        doubt(
            format!("{} switched off while recording", many(facts.bounded, "function")),
            "their numbers are lower bounds from that time on",
            "raise --max-overhead, or watch only them with -f; --max-overhead off counts everything at any cost",
        )
    })
}

fn refused(facts: &Facts<'_>) -> Option<Doubt> {
    (facts.refused > 0).then(|| {
        doubt(
            format!("{} of {} not watched", facts.refused, many(facts.watched, "function")),
            "whether they ran is not known",
            "`report --json` names each with its reason (bounds); `scalpel-ebpf list sites` shows why a site is refused",
        )
    })
}

fn unknown(facts: &Facts<'_>) -> Option<Doubt> {
    let (functions, events) = facts.unknown?;
    (functions.max(events) > UNKNOWN_LIMIT).then(|| {
        let why: Vec<String> = facts.unknown_reasons.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        doubt(
            format!(
                "{} of the functions that ran and {} of their events have no name ({})",
                percent(functions),
                percent(events),
                why.join(", ")
            ),
            "what they are can only be told by their addresses",
            "install the debug symbols of the program and its libraries, or use binaries that are not stripped",
        )
    })
}

fn untimed(facts: &Facts<'_>) -> Option<Doubt> {
    let all = if facts.sampling {
        facts.entry_only_unsampled
    } else {
        facts.entry_only
    };
    (all > 0).then(|| {
        let (reason, do_) = if facts.sampling {
            (
                "no sample hit them: they took little time, or ran seldom",
                "record longer, or sample faster with -F",
            )
        } else {
            (
                "watching their returns is not proven safe, and nothing was sampled",
                "sample as well (-F 99), or ask for RET probes with --exits ret",
            )
        };
        doubt(
            format!("{} entries only, without any time", many_counted(all)),
            reason,
            do_,
        )
    })
}

fn many_counted(count: u64) -> String {
    if count == 1 {
        "1 function has".to_owned()
    } else {
        format!("{count} functions have")
    }
}

fn missed_enter(facts: &Facts<'_>) -> Option<Doubt> {
    (facts.missed_enter > 0).then(|| {
        doubt(
            format!("{} without an entry", many(facts.missed_enter, "return")),
            "these calls began before their function was watched, or their entry was lost: they are not counted",
            "start the program under scalpel (`record -- CMD`) if their number matters",
        )
    })
}

fn depth_limited(facts: &Facts<'_>) -> Option<Doubt> {
    (facts.depth_limited > 0).then(|| {
        doubt(
            format!("{} deeper than 64 return probes", many(facts.depth_limited, "call")),
            "the kernel watches 64 returns a thread: deeper calls are counted, and end with their caller",
            "watch fewer of the recursive functions with -f, or ask for RET probes with --exits ret",
        )
    })
}

fn waits_without_stack(facts: &Facts<'_>) -> Option<Doubt> {
    (facts.waits_without_stack > 0).then(|| {
        doubt(
            format!(
                "{} without a stack",
                many(facts.waits_without_stack, "wait")
            ),
            "there was no room to tell where: the time is in the thread's sum, and in no function",
            "tell longer waits only (--off-cpu-min)",
        )
    })
}

fn without_cell(facts: &Facts<'_>) -> Option<Doubt> {
    (facts.without_cell > 0).then(|| {
        doubt(
            format!("{} without a caller and without time", many(facts.without_cell, "counted call")),
            "the kernel's table of call edges was full: the functions' calls are exact, their edges and times are not",
            "watch fewer functions (-f, -N)",
        )
    })
}

fn without_histogram(facts: &Facts<'_>) -> Option<Doubt> {
    (facts.without_histogram > 0).then(|| {
        doubt(
            format!("{} in no histogram", many(facts.without_histogram, "timed call")),
            "the kernel's table of histograms was full: percentiles of some functions are missing, sums are exact",
            "watch fewer functions (-f, -N)",
        )
    })
}

fn return_refused(facts: &Facts<'_>) -> Option<Doubt> {
    (facts.return_refused > 0).then(|| {
        doubt(
            format!("{} not watched, to protect the program", many(facts.return_refused, "return")),
            "the stack was not the thread's own (coroutine, signal stack), where a return probe can kill, or more than 64 returns were pending, the kernel's limit; these calls are counted without time",
            "nothing has to be done; sampling (-F 99) estimates their time",
        )
    })
}

fn clock(facts: &Facts<'_>) -> Option<Doubt> {
    let odd = facts.clock_backwards.saturating_add(facts.late_events);
    (odd > 0).then(|| {
        doubt(
            format!("{} out of time order ({} late)", many(odd, "event"), facts.late_events),
            "times of the calls around them are not reliable",
            "if the machine was not suspended meanwhile, please report it with the output of `scalpel-ebpf doctor`",
        )
    })
}

fn undecoded(facts: &Facts<'_>) -> Option<Doubt> {
    (facts.decode_faults > 0).then(|| {
        doubt(
            format!("{} not understood", many(facts.decode_faults, "record")),
            "they come from another version, or are damaged, and are counted nowhere",
            "record and report with the same version of scalpel",
        )
    })
}

fn throttled(facts: &Facts<'_>) -> Option<Doubt> {
    (facts.samples_throttled > 0).then(|| {
        doubt(
            format!(
                "the kernel throttled the sampler {}",
                many(facts.samples_throttled, "time")
            ),
            "samples are missing: estimated times are too low",
            "sample more slowly with -F, or raise /proc/sys/kernel/perf_cpu_time_max_percent",
        )
    })
}

fn folded(facts: &Facts<'_>) -> Option<Doubt> {
    (facts.folded_calls > 0).then(|| {
        doubt(
            format!("{} folded into [folded]", many(facts.folded_calls, "call")),
            "the tree reached its size limit: their functions and callers are not told apart",
            "watch fewer functions (-f, -N)",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{Doubt, Facts, judge};

    /// A result without a flaw.
    fn sound() -> Facts<'static> {
        Facts {
            events: 1_000_000,
            watched: 10,
            duration_ns: 5_000_000_000,
            max_loss: 0.001,
            unknown: Some((0.0, 0.0)),
            ..Facts::default()
        }
    }

    /// Just these doubts, and each says why it matters and what to do.
    #[track_caller]
    pub(super) fn expect(doubts: &[Doubt], expect: &[&str]) {
        let found: Vec<&str> = doubts.iter().map(|doubt| doubt.what.as_str()).collect();
        assert_eq!(found, expect);
        assert!(
            doubts
                .iter()
                .all(|doubt| !doubt.why.is_empty() && !doubt.do_.is_empty())
        );
    }

    #[track_caller]
    fn check(facts: &Facts<'_>, expected: &[&str]) {
        expect(&judge(facts), expected);
    }

    #[test]
    fn a_sound_result_has_no_doubts() {
        check(&sound(), &[]);
    }

    #[test]
    fn nothing_at_all_names_its_likely_cause() {
        let empty = Facts {
            events: 0,
            ..sound()
        };
        check(&empty, &["no events came from 10 watched functions"]);
        let action = |facts: Facts<'_>| {
            judge(&facts)
                .first()
                .map(|doubt| doubt.do_.clone())
                .unwrap()
        };
        assert!(
            action(Facts {
                watched: 0,
                ..empty.clone()
            })
            .contains("list functions")
        );
        assert!(
            action(Facts {
                refused: 10,
                ..empty.clone()
            })
            .contains("doctor")
        );
        assert!(
            action(Facts {
                duration_ns: 1000,
                ..empty.clone()
            })
            .contains("longer")
        );
        assert!(action(empty).contains("-s follows children"));
    }

    #[test]
    fn loss_is_a_doubt_even_where_it_is_accepted() {
        check(
            &Facts { lost: 1, ..sound() },
            &["1 event lost (less than 0.01 %)"],
        );
        check(
            &Facts {
                lost: 10_000,
                ..sound()
            },
            &["10000 events lost (0.99 %, more than --max-loss allows)"],
        );
    }

    #[test]
    fn names_are_a_doubt_above_five_percent() {
        check(
            &Facts {
                unknown: Some((0.05, 0.01)),
                ..sound()
            },
            &[],
        );
        let nameless = Facts {
            unknown: Some((0.02, 0.3)),
            unknown_reasons: vec![("stripped", 2), ("unmapped", 1)],
            ..sound()
        };
        check(
            &nameless,
            &[
                "2.00 % of the functions that ran and 30 % of their events have no name (stripped 2, unmapped 1)",
            ],
        );
    }

    #[test]
    fn functions_with_entries_only_need_samples_for_a_time() {
        let facts = Facts {
            entry_only: 3,
            entry_only_unsampled: 1,
            ..sound()
        };
        check(&facts, &["3 functions have entries only, without any time"]);
        check(
            &Facts {
                sampling: true,
                ..facts
            },
            &["1 function has entries only, without any time"],
        );
    }

    #[test]
    fn every_fault_of_the_mechanism_is_said_gravest_first() {
        let facts = Facts {
            cut: true,
            target_ended_in_attach: true,
            zero_ids: 2,
            lost_without_function: 1,
            recursion_misses: 1,
            bounded: 2,
            refused: 1,
            missed_enter: 1,
            depth_limited: 5,
            return_refused: 7,
            clock_backwards: 1,
            late_events: 2,
            decode_faults: 4,
            samples_throttled: 3,
            folded_calls: 9,
            ..sound()
        };
        check(
            &facts,
            &[
                "the recording was cut: the recorder did not end by itself",
                "the target ended while probes were being attached",
                "some events name function 0 (2 events)",
                "1 lost call of no known function",
                "the kernel skipped 1 probe hit",
                "2 functions switched off while recording",
                "1 of 10 functions not watched",
                "1 return without an entry",
                "5 calls deeper than 64 return probes",
                "7 returns not watched, to protect the program",
                "3 events out of time order (2 late)",
                "4 records not understood",
                "the kernel throttled the sampler 3 times",
                "9 calls folded into [folded]",
            ],
        );
    }
}
