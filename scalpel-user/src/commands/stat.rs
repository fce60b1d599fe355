//! `stat`: a recording of counts that is shown as a table, and forgotten.

use std::io::Write;

use serde::Serialize;

use super::record;
use super::report::{LOSS_WORTH_SAYING, sort};
use crate::exit::Outcome;
use crate::output::{Output, Stream, write_private_with};
use crate::plan::StatPlan;
use crate::record::Recorded;
use crate::report::Report;
use crate::report::summary::Overhead;
use crate::sink::{By, Choice, Columns, Form, Page, choice, summary};

/// The object of `report --json`, and what the measurement cost.
#[derive(Serialize)]
struct StatJson<'a> {
    #[serde(flatten)]
    report: &'a Report,
    overhead: Overhead,
}

pub(super) fn run(plan: &StatPlan, output: &Output) -> anyhow::Result<Outcome> {
    record::recorded(
        &plan.record,
        &|recorded| show(recorded, plan, output),
        output,
    )
}

fn show(recorded: Recorded<'_>, plan: &StatPlan, output: &Output) -> anyhow::Result<()> {
    let plain = Stream {
        color: false,
        terminal: false,
        ..output.stdout()
    };
    if let Some(path) = &plan.output {
        return Ok(write_private_with(path, |out| {
            write(recorded, plan, plain, out)
        })?);
    }
    record::beside_the_target(&plan.record.target, output, |stream, out| {
        Ok(write(recorded, plan, stream, out)?)
    })
}

fn write(
    recorded: Recorded<'_>,
    plan: &StatPlan,
    stream: Stream,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    if plan.json {
        let json = StatJson {
            report: recorded.report,
            overhead: recorded.summary.cost.into(),
        };
        serde_json::to_writer(&mut *out, &json)?;
        return writeln!(out);
    }
    let page = Page::new(stream.width, stream.color);
    let wanted = Choice {
        form: Form::Table,
        by: By::Function,
        columns: Columns::PerCall,
        sort: plan.sort.map(sort),
        limit: plan.limit.unwrap_or(0),
        func: None,
        max_loss: LOSS_WORTH_SAYING,
    };
    choice::write(recorded.genome, &wanted, page, out)?;
    writeln!(out)?;
    summary::write_trust(recorded.summary, page, out)
}
