//! `list`: what there is to watch.

mod functions;
mod processes;

use crate::exit::Outcome;
use crate::output::Output;
use crate::plan::{Exits, ListPlan, Listing};
use functions::Columns;

pub(super) fn run(plan: &ListPlan, output: &Output) -> anyhow::Result<Outcome> {
    match &plan.what {
        Listing::Processes => processes::run(plan, output),
        Listing::Functions(place) => {
            functions::run(Columns::Functions, place, Exits::Default, plan, output)
        }
        Listing::Sites(place, exits) => functions::run(Columns::Sites, place, *exits, plan, output),
    }
}
