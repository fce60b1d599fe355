//! `record`: what must be true before a recording is begun.

use anyhow::bail;

use crate::caps::Abilities;
use crate::exit::Outcome;
use crate::host;
use crate::output::Output;
use crate::plan::RecordPlan;

pub(super) fn run(plan: RecordPlan, output: &Output) -> anyhow::Result<Outcome> {
    let able = Abilities::of(&host::facts());
    // A dry run only reads.
    if let Some(blocker) = able.first_blocker().filter(|_| !plan.dry_run) {
        return Err(blocker.clone().into());
    }
    output.detail(&format!("{plan:#?}"));
    bail!("not built in yet")
}
