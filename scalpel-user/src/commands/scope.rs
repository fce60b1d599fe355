//! `scope`: the instructions of a trace.

use scalpel_scope::decode::{self, Request};
use scalpel_scope::sink::Kept;

use crate::exit::Outcome;
use crate::output::Output;
use crate::plan::{DecodePlan, ScopePlan};

pub(super) fn run(plan: &ScopePlan, output: &Output) -> anyhow::Result<Outcome> {
    match plan {
        ScopePlan::Live(plan) => crate::scope::run(plan, output),
        ScopePlan::Decode(plan) => decode(plan, output),
    }
}

fn decode(plan: &DecodePlan, output: &Output) -> anyhow::Result<Outcome> {
    let request = Request {
        trace: plan.trace.clone(),
        images: plan.images.clone(),
        folders: plan.symfs.clone(),
        thread: plan.tid,
        processor: None,
    };
    let mut kept = Kept::default();
    let decoded = decode::decode(&request, &mut kept, &mut |_, _| {})?;
    for complaint in &decoded.complaints {
        output.warn(complaint);
    }
    let reasons = decoded.summary.reasons;
    output.say(&format!(
        "{} instructions {reasons}",
        decoded.summary.instructions
    ));
    Ok(if reasons.is_empty() {
        Outcome::Done
    } else {
        Outcome::Partial
    })
}
