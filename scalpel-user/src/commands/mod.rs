//! One file a command: carries a plan out and says how it went.

mod glue;

use crate::exit::Outcome;
use crate::output::Output;
use crate::plan::Plan;

/// Carries `plan` out.
pub fn run(plan: Plan, output: &Output) -> anyhow::Result<Outcome> {
    match plan {
        Plan::Completions(shell) => glue::completions(shell, output),
        Plan::Man(dir) => glue::man(&dir),
        _ => anyhow::bail!("not built in yet"),
    }
}
