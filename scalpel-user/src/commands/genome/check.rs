//! `genome check`: limits for a build server.

use crate::exit::Outcome;
use crate::output::Output;
use crate::plan::{LayPlan, Minima};
use crate::report::Report;
use crate::sink::units::percent;

use super::laid::Laid;
use super::numbers::Numbers;
use super::show::summary;

pub(in super::super) fn run(
    plan: &LayPlan,
    minima: Minima,
    output: &Output,
) -> anyhow::Result<Outcome> {
    let laid = Laid::read(&plan.files, output)?;
    let unknown = Report::of(&laid.genome, 1.0).unknown_share;
    let numbers = Numbers::of(&laid, unknown);
    let text = if plan.json {
        serde_json::to_string_pretty(&numbers)? + "\n"
    } else {
        summary(&numbers, output)
    };
    output.data(text)?;
    let findings = findings(&numbers, minima);
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
fn findings(numbers: &Numbers, minima: Minima) -> Vec<String> {
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
        least("match rate", numbers.match_rate.share, minima.least_match),
        least("coverage", numbers.coverage, minima.least_coverage),
        most(numbers.unknown_share, minima.most_unknown),
    ]
    .into_iter()
    .flatten()
    .collect()
}
