//! `list`: what there is to watch.

mod processes;

use crate::exit::Outcome;
use crate::output::Output;
use crate::plan::{ListPlan, Listing};

pub(super) fn run(plan: &ListPlan, output: &Output) -> anyhow::Result<Outcome> {
    match &plan.what {
        Listing::Processes => processes::run(plan, output),
        Listing::Functions(_) | Listing::Sites(..) => anyhow::bail!("not built in yet"),
    }
}
