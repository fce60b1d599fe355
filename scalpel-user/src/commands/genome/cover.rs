//! `cover`: functions that never ran, and apart from them what could not be seen.

use serde::Serialize;

use crate::exit::Outcome;
use crate::output::Output;
use crate::output::table::{Align, Table};
use crate::plan::LayPlan;

use super::laid::Laid;
use super::numbers::{Numbers, words, written};
use super::show::{heading, summary};

#[derive(Serialize)]
struct Covered<'a> {
    schema: &'static str,
    #[serde(flatten)]
    numbers: &'a Numbers,
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
    let numbers = Numbers::of(&laid, None);
    let rows = rows(&laid);
    let text = if plan.json {
        let covered = Covered {
            schema: "scalpel.cover/1",
            numbers: &numbers,
            functions: rows,
        };
        serde_json::to_string_pretty(&covered)? + "\n"
    } else {
        summary(&numbers, output) + &never(&rows, plan, output)
    };
    output.data(text)?;
    Ok(Outcome::Done)
}

fn rows(laid: &Laid) -> Vec<Row> {
    let catalog = laid.catalog();
    let row = |(definition, known): (&crate::catalog::Definition, &crate::matching::DefState)| {
        let (state, why) = words(known.state);
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
    written(laid).map(row).collect()
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
