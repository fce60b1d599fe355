//! `genome diff`: two recordings compared.

use std::path::Path;

use crate::exit::Outcome;
use crate::genome::Genome;
use crate::genome::diff::{Diff, DiffRow, Limits, Pair, Runs, Verdict, diff};
use crate::output::Output;
use crate::output::table::{Align, Table};
use crate::plan::OverlayPlan;
use crate::sink::units::{NOTHING, count, duration};

use super::super::recording;
use super::show::heading;

pub(in super::super) fn run(plan: &OverlayPlan, output: &Output) -> anyhow::Result<Outcome> {
    let OverlayPlan::Diff {
        base,
        new,
        threshold,
        least_share,
        json,
        limit,
    } = plan
    else {
        return Ok(Outcome::Done);
    };
    let limits = Limits {
        threshold: *threshold,
        least_share: *least_share,
    };
    let (base, new) = (read(base, output)?, read(new, output)?);
    let diff = diff((&base.0, base.1), (&new.0, new.1), limits);
    let text = if *json {
        serde_json::to_string_pretty(&diff)? + "\n"
    } else {
        text(&diff, limit.unwrap_or(usize::MAX), output)
    };
    output.data(text)?;
    for doubt in &diff.doubts {
        output.warn(doubt);
    }
    Ok(if diff.has_regressions() {
        Outcome::Finding
    } else {
        Outcome::Done
    })
}

fn read(path: &Path, output: &Output) -> anyhow::Result<(Genome, Runs)> {
    let merged = recording::open_merged(path, output)?;
    let runs = merged.runs.len();
    if runs == 0 {
        return Err(crate::genome::GenomeError::NoRecording {
            path: path.to_owned(),
        }
        .into());
    }
    Ok((merged.into_genome(), Runs(runs)))
}

fn text(diff: &Diff, limit: usize, output: &Output) -> String {
    let changed: Vec<&DiffRow> = diff
        .functions
        .iter()
        .filter(|row| row.verdict != Verdict::Unchanged)
        .collect();
    let columns = [
        ("VERDICT", Align::Left),
        ("CODE", Align::Left),
        ("CALLS", Align::Right),
        ("SELF", Align::Right),
        ("+-", Align::Right),
        ("TOTAL", Align::Right),
        ("FUNCTION", Align::Left),
    ];
    let mut table = Table::new(&columns, output.stdout());
    let shown = changed.len().min(limit);
    for row in changed.iter().take(shown) {
        table.row([
            verdict(row.verdict).into(),
            row.code.into(),
            both(&row.calls, count),
            both(&row.self_ns, duration),
            row.self_ns
                .noise
                .map_or_else(|| NOTHING.into(), |ns| duration(ns as u64)),
            both(&row.total_ns, duration),
            format!("{} ({})", row.name, row.module),
        ]);
    }
    let unchanged = diff.functions.len() - changed.len();
    format!(
        "{}{table}{unchanged} functions did not change by more than the threshold and the noise\n",
        heading(
            "functions that differ, numbers per run",
            shown,
            changed.len()
        )
    )
}

const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Regression => "regression",
        Verdict::Improvement => "improvement",
        Verdict::Unsure => "unsure",
        Verdict::New => "new",
        Verdict::Gone => "gone",
        Verdict::Unchanged => "unchanged",
    }
}

fn both(pair: &Pair, show: fn(u64) -> String) -> String {
    let one = |side: Option<f64>| side.map_or_else(|| NOTHING.to_owned(), |side| show(side as u64));
    format!("{} -> {}", one(pair.base), one(pair.new))
}
