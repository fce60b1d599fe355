//! `genome show`: match rates, the states of all functions, and the calls that only one side knows.

use serde::Serialize;

use crate::catalog::Outcome as Found;
use crate::exit::Outcome;
use crate::matching::{EdgeOverlay, Source, overlay};
use crate::output::Output;
use crate::output::table::{Align, Table};
use crate::plan::LayPlan;
use crate::report::Report;
use crate::report::known::{Known, Share, place};
use crate::sink::units::{NOTHING, count, duration, or_nothing, percent};
use crate::tree::Metrics;

use super::laid::Laid;

/// Above this share of lost events a report says so.
pub(super) const LOSS_WORTH_SAYING: f64 = 0.001;

#[derive(Serialize)]
struct Shown<'a> {
    schema: &'static str,
    #[serde(flatten)]
    known: &'a Known,
    unknown_share: Option<f64>,
    /// Calls that ran and that the text proves.
    calls_in_both: u64,
    calls_found_only_at_run_time: Vec<FoundCall>,
    calls_never_taken: Vec<UntakenCall>,
    functions: Vec<Function>,
}

#[derive(Serialize)]
struct FoundCall {
    caller: String,
    callee: String,
    calls: u64,
    total_wall_ns: Option<u64>,
    total_cpu_ns: Option<u64>,
    /// `exact`, `call-site` or `sampled`; what is inlined is no call.
    confidence: &'static str,
}

#[derive(Serialize)]
struct UntakenCall {
    caller: String,
    callee: String,
    line: u32,
    how: &'static str,
    /// `did-not-happen`: both ends were watched; `could-not-be-seen`.
    confidence: &'static str,
}

#[derive(Serialize)]
struct Function {
    key: String,
    /// Its calls and samples.
    events: u64,
    /// What it is, in the sources or in an executable; `null` if nothing.
    definition: Option<String>,
    /// Of a function of an executable: what it was made of in the sources; `null` if that was not found.
    source: Option<String>,
    /// Its source file was searched, and has no definition where it begins.
    missing: bool,
    /// Why nothing.
    why: Option<&'static str>,
}

pub(in super::super) fn run(plan: &LayPlan, output: &Output) -> anyhow::Result<Outcome> {
    let laid = Laid::read(&plan.files, output)?;
    let unknown = Report::of(&laid.genome, LOSS_WORTH_SAYING).unknown_share;
    let known = Known::of(laid.catalog(), &laid.matching);
    let edges = overlay(&laid.genome, laid.catalog(), &laid.matching);
    let text = if plan.json {
        json(&laid, &known, unknown, &edges)?
    } else {
        text(plan, &laid, (&known, unknown), &edges, output)
    };
    output.data(text)?;
    Ok(Outcome::Done)
}

fn json(
    laid: &Laid,
    known: &Known,
    unknown_share: Option<f64>,
    edges: &EdgeOverlay,
) -> anyhow::Result<String> {
    let shown = Shown {
        schema: "scalpel.overlay/1",
        known,
        unknown_share,
        calls_in_both: edges.both,
        calls_found_only_at_run_time: found(laid, edges).collect(),
        calls_never_taken: untaken(laid, edges).collect(),
        functions: functions(laid).collect(),
    };
    Ok(serde_json::to_string_pretty(&shown)? + "\n")
}

fn functions(laid: &Laid) -> impl Iterator<Item = Function> {
    let matching = &laid.matching;
    let found = matching.outcomes.iter().zip(&matching.sources);
    let all = laid.genome.functions.iter().zip(&matching.totals);
    all.zip(found)
        .map(|(((_, info), total), (outcome, source))| Function {
            key: info.key(),
            events: total.metrics.calls.saturating_add(total.metrics.samples),
            definition: outcome.definition().map(|id| place(laid.catalog(), id)),
            source: match source {
                Some(Source::Found(id)) => Some(place(laid.catalog(), *id)),
                _ => None,
            },
            missing: matches!(source, Some(Source::Missing | Source::Ambiguous)),
            why: match outcome {
                Found::Matched(_) => None,
                Found::Unmatched(why) => Some(why.word()),
            },
        })
}

fn found<'a>(laid: &'a Laid, edges: &'a EdgeOverlay) -> impl Iterator<Item = FoundCall> + 'a {
    edges.found.iter().map(|edge| {
        let m: &Metrics = &edge.metrics;
        FoundCall {
            caller: place(laid.catalog(), edge.caller),
            callee: place(laid.catalog(), edge.callee),
            calls: m.calls,
            total_wall_ns: (m.timed > 0).then_some(m.total_wall_ns),
            total_cpu_ns: (m.cpu_timed > 0).then_some(m.total_cpu_ns),
            confidence: edge.source.word(),
        }
    })
}

fn untaken<'a>(laid: &'a Laid, edges: &'a EdgeOverlay) -> impl Iterator<Item = UntakenCall> + 'a {
    edges.untaken.iter().map(|untaken| UntakenCall {
        caller: place(laid.catalog(), untaken.edge.caller),
        callee: place(laid.catalog(), untaken.edge.callee),
        line: untaken.edge.line,
        how: untaken.edge.how.word(),
        confidence: if untaken.sure {
            "did-not-happen"
        } else {
            "could-not-be-seen"
        },
    })
}

fn text(
    plan: &LayPlan,
    laid: &Laid,
    (known, unknown): (&Known, Option<f64>),
    edges: &EdgeOverlay,
    output: &Output,
) -> String {
    let mut text = summary(known, unknown, output);
    let limit = plan.limit.unwrap_or(usize::MAX);
    if !edges.found.is_empty() {
        let shown: Vec<FoundCall> = found(laid, edges).take(limit).collect();
        text += &heading("calls that no text proves", shown.len(), edges.found.len());
        text += &found_table(&shown, output);
    }
    if !edges.untaken.is_empty() {
        let shown: Vec<UntakenCall> = untaken(laid, edges).take(limit).collect();
        text += &heading(
            "calls that the text proves and that were not seen",
            shown.len(),
            edges.untaken.len(),
        );
        text += &untaken_table(&shown, output);
    }
    text
}

pub(super) fn heading(what: &str, shown: usize, all: usize) -> String {
    let of = if shown < all {
        format!("{shown} of {all}, -n 0 shows all")
    } else {
        all.to_string()
    };
    format!("\n{what} ({of})\n")
}

/// Match rates, what was not found, and the states: also at the head of `cover` and `check`.
pub(super) fn summary(known: &Known, unknown: Option<f64>, output: &Output) -> String {
    let mut text = rates(known);
    text += &format!(
        "unknown       {} of what ran has no name\n",
        unknown.map_or_else(|| NOTHING.to_owned(), percent),
    );
    for advice in &known.advice {
        text += &format!("!             {advice}\n");
    }
    text += &not_found(known, output);
    text += &states(known, output);
    text
}

/// The rates alone.
pub(super) fn rates(known: &Known) -> String {
    let rate = |share: &Share| {
        let shown = share.share.map_or_else(|| NOTHING.to_owned(), percent);
        format!("{shown} ({} of {})", share.matched, share.ran)
    };
    let mut text = format!(
        "match rate    {} of the user-written functions that ran\nraw rate      {} of all that ran; {} of module and class bodies\n",
        rate(&known.match_rate),
        rate(&known.raw_rate),
        rate(&known.bodies),
    );
    if known.languages.len() > 1 {
        for (language, share) in &known.languages {
            text += &format!("  {language:<11} {}\n", rate(share));
        }
    }
    text += &format!(
        "coverage      {} of the functions that could be seen\n",
        known.coverage.map_or_else(|| NOTHING.to_owned(), percent)
    );
    text
}

fn not_found(known: &Known, output: &Output) -> String {
    if known.unmatched.is_empty() {
        return String::new();
    }
    let columns = [
        ("RAN AND NOT FOUND", Align::Right),
        ("EVENTS", Align::Right),
        ("COUNTED", Align::Right),
        ("WHY", Align::Left),
    ];
    let mut table = Table::new(&columns, output.stdout());
    for row in &known.unmatched {
        table.row([
            count(row.functions),
            count(row.events),
            count(row.written),
            row.text.into(),
        ]);
    }
    format!("\n{table}")
}

fn states(known: &Known, output: &Output) -> String {
    let columns = [
        ("FUNCTIONS", Align::Right),
        ("STATE", Align::Left),
        ("WHY", Align::Left),
    ];
    let mut table = Table::new(&columns, output.stdout());
    for row in &known.states {
        table.row([
            count(row.functions),
            row.state.into(),
            row.why.unwrap_or("").into(),
        ]);
    }
    format!("\n{table}")
}

fn found_table(calls: &[FoundCall], output: &Output) -> String {
    let columns = [
        ("CALLS", Align::Right),
        ("WALL", Align::Right),
        ("KNOWN", Align::Left),
        ("CALLER", Align::Left),
        ("CALLEE", Align::Left),
    ];
    let mut table = Table::new(&columns, output.stdout());
    for call in calls {
        table.row([
            count(call.calls),
            or_nothing(call.total_wall_ns, duration),
            call.confidence.into(),
            call.caller.clone(),
            call.callee.clone(),
        ]);
    }
    table.to_string()
}

fn untaken_table(calls: &[UntakenCall], output: &Output) -> String {
    let columns = [
        ("KNOWN", Align::Left),
        ("LINE", Align::Right),
        ("CALLER", Align::Left),
        ("CALLEE", Align::Left),
    ];
    let mut table = Table::new(&columns, output.stdout());
    for call in calls {
        table.row([
            call.confidence.into(),
            call.line.to_string(),
            call.caller.clone(),
            call.callee.clone(),
        ]);
    }
    table.to_string()
}
