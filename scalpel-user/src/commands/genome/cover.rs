//! `cover`: functions that never ran, and apart from them what could not be seen.

use serde::Serialize;

use crate::catalog::{DefId, Definition};
use crate::exit::Outcome;
use crate::matching::DefState;
use crate::output::Output;
use crate::output::table::{Align, Table};
use crate::plan::LayPlan;
use crate::report::Report;
use crate::report::known::{Known, written};

use super::laid::Laid;
use super::show::{heading, summary};

#[derive(Serialize)]
struct Covered<'a> {
    schema: &'static str,
    #[serde(flatten)]
    known: &'a Known,
    functions: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    file: String,
    line: u32,
    name: String,
    kind: &'static str,
    state: &'static str,
    why: Option<&'static str>,
    calls: u64,
}

pub(in super::super) fn run(plan: &LayPlan, output: &Output) -> anyhow::Result<Outcome> {
    let laid = Laid::read(&plan.files, output)?;
    let known = Known::of(laid.catalog(), &laid.matching);
    let unknown = Report::of(&laid.genome, 1.0).unknown_share;
    let rows = rows(&laid);
    let text = if plan.json {
        let covered = Covered {
            schema: "scalpel.cover/1",
            known: &known,
            functions: rows,
        };
        serde_json::to_string_pretty(&covered)? + "\n"
    } else {
        summary(&known, unknown, output) + &never(&rows, plan, output)
    };
    output.data(text)?;
    Ok(Outcome::Done)
}

fn rows(laid: &Laid) -> Vec<Row> {
    let catalog = laid.catalog();
    let row = |(_, definition, known): (DefId, &Definition, &DefState)| {
        let (state, why) = known.state.words();
        let calls = known.functions.iter().map(|func| {
            let total = laid.matching.totals.get(func.get() as usize - 1);
            total.map_or(0, |total| total.metrics.calls)
        });
        let file = catalog.file(definition.file);
        Row {
            file: file.map(|file| file.path.clone()).unwrap_or_default(),
            line: definition.span.start.line,
            name: definition.qualified.clone(),
            kind: definition.kind.word(),
            state,
            why,
            calls: calls.sum(),
        }
    };
    written(catalog, &laid.matching).map(row).collect()
}

fn never(rows: &[Row], plan: &LayPlan, output: &Output) -> String {
    let never: Vec<&Row> = rows.iter().filter(|row| row.state == "never-ran").collect();
    let shown = never.len().min(plan.limit.unwrap_or(usize::MAX));
    let columns = [
        ("NEVER RAN", Align::Left),
        ("KIND", Align::Left),
        ("FUNCTION", Align::Left),
    ];
    let mut table = Table::new(&columns, output.stdout());
    for row in never.iter().take(shown) {
        table.row([
            format!("{}:{}", row.file, row.line),
            row.kind.into(),
            row.name.clone(),
        ]);
    }
    format!(
        "{}{table}",
        heading(
            "functions that were watched and never ran",
            shown,
            never.len()
        )
    )
}
