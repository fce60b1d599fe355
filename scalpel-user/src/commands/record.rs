//! `record`: what must be true before a recording is begun.

use crate::caps::Abilities;
use crate::exit::Outcome;
use crate::host;
use crate::output::Output;
use crate::plan::RecordPlan;
use crate::record::{self, Show};

pub(super) fn run(plan: &RecordPlan, output: &Output) -> anyhow::Result<Outcome> {
    recorded(
        plan,
        &|recorded| record::say_summary(recorded, output),
        output,
    )
}

/// Records, if this host and user can.
pub(super) fn recorded(
    plan: &RecordPlan,
    show: &Show<'_>,
    output: &Output,
) -> anyhow::Result<Outcome> {
    let able = Abilities::of(&host::facts());
    // A dry run only reads, and probes in the runtimes need no privilege.
    let asks_kernel = !plan.dry_run && !plan.runtimes.alone;
    if let Some(blocker) = able.first_blocker().filter(|_| asks_kernel) {
        return Err(blocker.clone().into());
    }
    record::run(plan, &able, show, output)
}
