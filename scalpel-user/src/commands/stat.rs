//! `stat`: a recording of counts that is shown as a table, and forgotten.

use std::io::Write;
use std::path::Path;

use serde::Serialize;

use super::record;
use super::report::{LOSS_WORTH_SAYING, sort};
use crate::exit::Outcome;
use crate::output::{Output, Stream, write_private_with};
use crate::plan::{RecordPlan, StatPlan};
use crate::record::Recorded;
use crate::report::summary::Overhead;
use crate::report::{Report, Sort};
use crate::sink::{By, Choice, Columns, Form, Page, choice, summary};

/// The object of `report --json`, and what the measurement cost.
#[derive(Serialize)]
struct StatJson<'a> {
    #[serde(flatten)]
    report: &'a Report,
    overhead: Overhead,
}

/// What is shown of a recording that has ended, and where.
pub(super) struct Numbers<'a> {
    /// Which numbers.
    pub(super) columns: Columns,
    /// Order; `None` = what there is to order by.
    pub(super) sort: Option<Sort>,
    /// Most rows; 0 = all.
    pub(super) limit: usize,
    /// As JSON.
    pub(super) json: bool,
    /// Where to; `None` = what stream the target has not.
    pub(super) file: Option<&'a Path>,
}

pub(super) fn run(plan: &StatPlan, output: &Output) -> anyhow::Result<Outcome> {
    let numbers = Numbers {
        columns: Columns::PerCall,
        sort: plan.sort.map(sort),
        limit: plan.limit.unwrap_or(0),
        json: plan.json,
        file: plan.output.as_deref(),
    };
    record::recorded(
        &plan.record,
        &|recorded| show(recorded, &plan.record, &numbers, output),
        output,
    )
}

/// Shows a recording that has ended.
pub(super) fn show(
    recorded: Recorded<'_>,
    plan: &RecordPlan,
    numbers: &Numbers<'_>,
    output: &Output,
) -> anyhow::Result<()> {
    if let Some(path) = numbers.file {
        let plain = Stream {
            color: false,
            terminal: false,
            ..output.stdout()
        };
        let write = |out: &mut dyn Write| write(recorded, numbers, plain, out);
        return Ok(write_private_with(path, write)?);
    }
    record::beside_the_target(&plan.target, output, |stream, out| {
        Ok(write(recorded, numbers, stream, out)?)
    })
}

fn write(
    recorded: Recorded<'_>,
    numbers: &Numbers<'_>,
    stream: Stream,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    if numbers.json {
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
        columns: numbers.columns,
        sort: numbers.sort,
        limit: numbers.limit,
        returned: false,
        func: None,
        only_seen: false,
        max_loss: LOSS_WORTH_SAYING,
    };
    choice::write(recorded.genome, &wanted, page, out)?;
    writeln!(out)?;
    summary::write_trust(recorded.summary, page, out)
}
