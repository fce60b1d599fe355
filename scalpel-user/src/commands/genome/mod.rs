//! `genome` and `cover`: one file a command.

pub(super) mod build;
pub(super) mod check;
pub(super) mod cover;
pub(super) mod diff;
mod laid;
pub(super) mod merge;
pub(super) mod query;
pub(super) mod show;

use crate::exit::Outcome;
use crate::output::Output;
use crate::plan::OverlayPlan;

/// Carries out what lays one over the other.
pub(super) fn run(plan: &OverlayPlan, output: &Output) -> anyhow::Result<Outcome> {
    match plan {
        OverlayPlan::Show(plan) => show::run(plan, output),
        OverlayPlan::Cover(plan) => cover::run(plan, output),
        OverlayPlan::Check(plan, minima) => check::run(plan, *minima, output),
        OverlayPlan::Merge {
            files,
            output: path,
        } => merge::run(files, path, output),
        OverlayPlan::Match {
            files,
            output: path,
        } => merge::run_match(files, path, output),
        OverlayPlan::Diff { .. } => diff::run(plan, output),
        OverlayPlan::Query { file, sql, json } => query::run(file, sql, *json, output),
    }
}
