//! `cover`: functions that never ran, and apart from them what could not be seen.

use serde::Serialize;

use crate::catalog::{Catalog, DefId, Definition, State};
use crate::cli::CoverFormatArg;
use crate::exit::Outcome;
use crate::matching::DefState;
use crate::output::Output;
use crate::output::table::{Align, Table};
use crate::plan::CoverPlan;
use crate::report::Report;
use crate::report::known::{Known, written};
use crate::sink::export::covered::{self, PLACELESS};
use crate::sink::export::{Coverage, Covered, cobertura, lcov};
use crate::sink::head::where_it_ran;
use crate::sink::never::{self, Row};
use crate::sink::units::{NOTHING, percent};

use super::super::export::Destination;
use super::laid::Laid;
use super::show::{LOSS_WORTH_SAYING, heading, summary};

#[derive(Serialize)]
struct All<'a> {
    schema: &'static str,
    #[serde(flatten)]
    known: &'a Known,
    functions: Vec<Row>,
}

pub(in super::super) fn run(plan: &CoverPlan, output: &Output) -> anyhow::Result<Outcome> {
    let laid = Laid::read(&plan.lay.files, output)?;
    let known = Known::of(laid.catalog(), &laid.matching);
    let report = Report::of(&laid.genome, LOSS_WORTH_SAYING);
    let mut destination = Destination::open(plan.output.as_deref())?;
    let out = destination.writer();
    let mut notes = Vec::new();
    match plan.format {
        CoverFormatArg::Lcov => notes = lcov::write_coverage(&coverage(&laid, &report), out)?,
        CoverFormatArg::Cobertura => {
            notes = cobertura::write_coverage(&coverage(&laid, &report), out)?;
        }
        CoverFormatArg::Html => never::write(&head(&known, &report), &rows(&laid), out)?,
        CoverFormatArg::Json => {
            let all = All {
                schema: "scalpel.cover/1",
                known: &known,
                functions: rows(&laid),
            };
            serde_json::to_writer_pretty(&mut *out, &all)?;
            writeln!(out)?;
        }
        CoverFormatArg::Text => {
            let text =
                summary(&known, report.unknown_share, output) + &table(&rows(&laid), plan, output);
            out.write_all(text.as_bytes())?;
        }
    }
    destination.finish()?;
    notes.iter().for_each(|note| output.warn(note));
    if let Some(path) = &plan.output {
        output.say(&format!("wrote {}", path.display()));
    }
    Ok(Outcome::Done)
}

fn rows(laid: &Laid) -> Vec<Row> {
    let catalog = laid.catalog();
    let row = |(_, definition, known): (DefId, &Definition, &DefState)| {
        let (state, why) = known.state.words();
        let (file, line) = shown(catalog, definition);
        Row {
            file,
            line,
            name: definition.qualified.clone(),
            kind: definition.kind.word(),
            state,
            why,
            calls: calls(laid, known),
        }
    };
    written(catalog, &laid.matching).map(row).collect()
}

fn calls(laid: &Laid, known: &DefState) -> u64 {
    let calls = known.functions.iter().map(|func| {
        let total = laid.matching.totals.get(func.get() as usize - 1);
        total.map_or(0, |total| total.metrics.calls)
    });
    calls.sum()
}

/// Where a function stands, for people: in its source, else in its executable.
fn shown(catalog: &Catalog, definition: &Definition) -> (String, u32) {
    let of_source = definition
        .native
        .as_ref()
        .and_then(|native| Some((native.source.clone()?, native.line?)));
    of_source.unwrap_or_else(|| {
        let file = catalog.file(definition.file);
        let path = file.map(|file| file.path.clone()).unwrap_or_default();
        (path, definition.span.start.line)
    })
}

/// Where a function stands in a source, for programs: the path as a whole, the line, the column.
fn place(catalog: &Catalog, definition: &Definition) -> Option<(String, u32, Option<u32>)> {
    if let Some(native) = &definition.native {
        return Some((native.source.clone()?, native.line?, None));
    }
    let start = definition.span.start;
    let path = catalog.path_of(catalog.file(definition.file)?);
    (start.line > 0).then_some((path, start.line, Some(start.column)))
}

/// What the formats of coverage have words for: what ran, and what was watched and never did.
fn coverage(laid: &Laid, report: &Report) -> Coverage {
    let catalog = laid.catalog();
    let caveats = report.doubts.iter().map(|doubt| doubt.what.clone());
    let mut coverage = Coverage::new(caveats.collect(), report.run.started / 1_000_000);
    for (_, definition, known) in written(catalog, &laid.matching) {
        let hits = match known.state {
            State::Ran => calls(laid, known).max(1),
            State::NeverRan => 0,
            State::NotVisible(why) => {
                coverage.leave_out(&format!(
                    "functions that could not be seen ({})",
                    why.word()
                ));
                continue;
            }
            State::NotInBuild(why) => {
                coverage.leave_out(&format!(
                    "functions that are not in what was built ({})",
                    why.word()
                ));
                continue;
            }
        };
        let Some((file, line, column)) = place(catalog, definition) else {
            coverage.leave_out(PLACELESS);
            continue;
        };
        let function = Covered {
            key: format!("{}#{}", definition.qualified, definition.ordinal),
            name: covered::name(&definition.qualified, line, column),
            line,
            hits,
        };
        coverage.add(&file, function);
    }
    coverage.finish()
}

fn head(known: &Known, report: &Report) -> never::Head {
    let share = |share: Option<f64>| share.map_or_else(|| NOTHING.to_owned(), percent);
    let run = &report.run;
    never::Head {
        title: format!("{} ({})", run.command, where_it_ran(run.pid, &run.host)),
        numbers: vec![
            (
                "coverage of the functions that could be seen".into(),
                share(known.coverage),
            ),
            (
                "of the user-written functions that ran, found in the sources".into(),
                share(known.match_rate.share),
            ),
        ],
        caveats: report
            .doubts
            .iter()
            .map(|doubt| doubt.what.clone())
            .collect(),
    }
}

fn table(rows: &[Row], plan: &CoverPlan, output: &Output) -> String {
    let never: Vec<&Row> = rows.iter().filter(|row| row.state == "never-ran").collect();
    let shown = never.len().min(plan.lay.limit.unwrap_or(usize::MAX));
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
