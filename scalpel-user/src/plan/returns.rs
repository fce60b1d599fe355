//! `--return-values FUNC`: whose values are kept, and what that asks of a recording.

use super::words::Pattern;
use super::{Exits, Mode, PlanError, RecordPlan};

const FLAG: &str = "--return-values";

/// Functions whose return values are kept.
pub(super) fn parse(texts: Vec<String>) -> Result<Vec<Pattern>, PlanError> {
    let parse = |text: String| {
        Pattern::of_names(&text).map_err(|reason| PlanError::Pattern {
            flag: FLAG,
            text,
            reason,
        })
    };
    texts.into_iter().map(parse).collect()
}

/// What return values cannot be with.
pub(super) fn check(plan: &RecordPlan) -> Result<(), PlanError> {
    let conflict = |text: &str| Err(PlanError::Conflict(format!("{FLAG} {text}")));
    if plan.returns.is_empty() {
        return Ok(());
    }
    if plan.measurement.mode != Mode::Trace {
        return conflict(
            "needs calls one by one, where --mode count adds them up in the kernel and --mode sample sees none: leave out --mode, \
             or say --mode trace",
        );
    }
    if plan.measurement.complete {
        return conflict("has no room in the one record of a call: leave out --complete");
    }
    if plan.measurement.exits == Exits::None {
        return conflict("reads calls at their ends, --exits none sees none: leave one out");
    }
    Ok(())
}
