//! One file a command: carries a plan out and says how it went.

mod doctor;
mod dump;
mod export;
mod genome;
mod glue;
mod graph;
mod kept;
mod list;
mod moments;
mod record;
mod recording;
mod replay;
mod report;
mod scope;
mod stat;
mod top;

use crate::exit::Outcome;
use crate::output::Output;
use crate::plan::Plan;
use crate::{sandbox, survey};

/// Carries `plan` out.
pub fn run(plan: Plan, output: &Output) -> anyhow::Result<Outcome> {
    match plan {
        Plan::List(plan) => list::run(&plan, output),
        Plan::Doctor { pid, json } => doctor::run(pid, json, output),
        Plan::Completions(shell) => glue::completions(shell, output),
        Plan::Man(dir) => glue::man(&dir),
        Plan::Record(plan) => record::run(&plan, output),
        Plan::Top(plan) => top::run(&plan, output),
        Plan::Stat(plan) => stat::run(&plan, output),
        Plan::Scope(plan) => scope::run(&plan, output),
        Plan::Dump(plan) => dump::run(plan, output),
        Plan::Overlay(plan) => genome::run(&plan, output),
        Plan::Build(plan) => genome::build::run(&plan, output),
        Plan::Reader => {
            survey::serve(sandbox::enter()?)?;
            Ok(Outcome::Done)
        }
        Plan::Meter => {
            sandbox::serve_meter(crate::kernel::run_time::account)?;
            Ok(Outcome::Done)
        }
        Plan::Guardian => crate::scope::be_the_guardian(),
        Plan::Graph(plan) => graph::run(&plan, output),
        Plan::Report(plan) => report::run(&plan, output),
        Plan::Export(plan) => export::run(&plan, output),
        Plan::Replay(plan) => replay::run(&plan, output),
    }
}
