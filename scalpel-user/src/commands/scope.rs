//! `scope`: the instructions of a trace.

use scalpel_scope::decode::{self, DecodeError};

use crate::exit::Outcome;
use crate::output::Output;
use crate::plan::{DecodePlan, ScopePlan};

pub(super) fn run(plan: &ScopePlan, _output: &Output) -> anyhow::Result<Outcome> {
    match plan {
        ScopePlan::Decode(plan) => decode(plan),
    }
}

fn decode(plan: &DecodePlan) -> anyhow::Result<Outcome> {
    let kind = decode::kind(&plan.trace)?;
    Err(DecodeError::NotRead(kind).into())
}
