//! `genome check`: limits for a build server.

use serde::Serialize;

use crate::exit::Outcome;
use crate::output::Output;
use crate::plan::{LayPlan, Minima};
use crate::report::{Known, Report};
use crate::sink::units::percent;

use super::laid::Laid;
use super::show::summary;

#[derive(Serialize)]
struct Checked<'a> {
    #[serde(flatten)]
    known: &'a Known,
    unknown_share: Option<f64>,
}

pub(in super::super) fn run(
    plan: &LayPlan,
    minima: Minima,
    output: &Output,
) -> anyhow::Result<Outcome> {
    let laid = Laid::read(&plan.files, output)?;
    let unknown = Report::of(&laid.genome, 1.0).unknown_share;
    let known = Known::of(laid.catalog(), &laid.matching);
    let text = if plan.json {
        let checked = Checked {
            known: &known,
            unknown_share: unknown,
        };
        serde_json::to_string_pretty(&checked)? + "\n"
    } else {
        summary(&known, unknown, output)
    };
    output.data(text)?;
    let findings = findings(&known, unknown, minima);
    for finding in &findings {
        output.warn(finding);
    }
    Ok(if findings.is_empty() {
        Outcome::Done
    } else {
        Outcome::Finding
    })
}

/// What was not measured does not meet a limit.
fn findings(known: &Known, unknown: Option<f64>, minima: Minima) -> Vec<String> {
    let least = |what: &str, share: Option<f64>, limit: Option<f64>| {
        let limit = limit?;
        let met = share.is_some_and(|share| share >= limit);
        let shown = share.map_or_else(|| "not known".to_owned(), percent);
        (!met).then(|| format!("the {what} is {shown}, less than {}", percent(limit)))
    };
    let most = |share: Option<f64>, limit: Option<f64>| {
        let limit = limit?;
        let met = share.is_some_and(|share| share <= limit);
        let shown = share.map_or_else(|| "not known".to_owned(), percent);
        (!met).then(|| format!("the unknown share is {shown}, more than {}", percent(limit)))
    };
    [
        least("match rate", known.match_rate.share, minima.least_match),
        least("coverage", known.coverage, minima.least_coverage),
        most(unknown, minima.most_unknown),
    ]
    .into_iter()
    .flatten()
    .collect()
}
