//! `--trigger FUNC>TIME`: which calls are kept, and what that asks of a recording.

use std::time::Duration;

use super::words::{Pattern, Seconds};
use super::{Exits, Mode, PlanError, ProbeMode, RecordPlan};

/// Most triggers of a recording: `stack::trigger` has a bit for each.
const MOST_TRIGGERS: usize = 64;

/// Waits whose stacks are told with triggers are at least so long, and at most as without.
const SHORTEST_WAIT: Duration = Duration::from_micros(20);
const LONGEST_WAIT: Duration = Duration::from_millis(1);

/// Which calls are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// As typed.
    pub text: String,
    /// Functions.
    pub func: Pattern,
    /// Calls that last longer are kept.
    pub threshold: Duration,
}

/// `FUNC>TIME`: the last `>` counts, as names have some too.
pub(super) fn parse(texts: Vec<String>) -> Result<Vec<Trigger>, PlanError> {
    const FLAG: &str = "--trigger";
    let refuse = |text: &str, reason: String| PlanError::Pattern {
        flag: FLAG,
        text: text.to_owned(),
        reason,
    };
    if texts.len() > MOST_TRIGGERS {
        return Err(PlanError::Conflict(format!(
            "--trigger: at most {MOST_TRIGGERS} of them"
        )));
    }
    let parse = |text: String| {
        let Some((func, time)) = text.rsplit_once('>') else {
            return Err(refuse(
                &text,
                "a trigger looks like handle_request>10ms".into(),
            ));
        };
        let func = Pattern::of_names(func.trim_end()).map_err(|reason| refuse(&text, reason))?;
        let time = time.trim_start();
        if !time.ends_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(refuse(
                &text,
                "the time needs its unit: us, ms or s, as in handle_request>10ms".into(),
            ));
        }
        let threshold: Seconds = time.parse().map_err(|reason| refuse(&text, reason))?;
        Ok(Trigger {
            text,
            func,
            threshold: threshold.0,
        })
    };
    texts.into_iter().map(parse).collect()
}

/// Where threads wait is recorded with triggers: it is why most slow calls are slow. A tenth of what makes a call slow is
/// worth its stack.
pub(super) fn wait_of(triggers: &[Trigger]) -> Option<Duration> {
    let least = triggers
        .iter()
        .map(|trigger| trigger.threshold / 10)
        .min()?;
    Some(least.clamp(SHORTEST_WAIT, LONGEST_WAIT))
}

/// What triggers cannot be with.
pub(super) fn check(plan: &RecordPlan) -> Result<(), PlanError> {
    let conflict = |text: &str| Err(PlanError::Conflict(text.into()));
    if plan.triggers.is_empty() {
        return Ok(());
    }
    if plan.measurement.complete {
        return conflict(
            "--trigger needs each call's beginning in its place: leave out --complete",
        );
    }
    if plan.measurement.exits == Exits::None {
        return conflict(
            "--trigger judges calls by their ends, --exits none sees none: leave one out",
        );
    }
    if plan.measurement.mode != Mode::Trace && !plan.runtimes.alone {
        return conflict(
            "--trigger keeps a stream of calls: leave out --mode, or say --mode trace",
        );
    }
    if plan.runtimes.mode == ProbeMode::Count {
        return conflict("--trigger needs calls one by one: leave out --probe-mode count");
    }
    Ok(())
}
