//! The end of a recording on a terminal: a few aligned lines, then the doubts.

use std::io::{self, Write};

use super::style::Tone;
use super::{Page, doubts, kept, text, units};
use crate::doubt::{Doubt, MATCH_TARGET, UNKNOWN_LIMIT};
use crate::report::summary::Summary;
use crate::report::{Known, Share, TriggerRow};

/// Writes the summary and every doubt.
pub fn write(
    summary: &Summary,
    found: &[Doubt],
    page: Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    let command = text::clean(&summary.command);
    let title = format!(
        "{} for {}",
        text::shorten(&command, page.width.saturating_sub(30).max(16)),
        units::duration(summary.duration_ns)
    );
    writeln!(out, "{}", page.style.paint(Tone::Strong, title))?;
    write_lines(lines(summary), page, out)?;
    doubts::write(found, page, out)
}

/// Writes what was lost and what the measurement cost.
pub fn write_trust(summary: &Summary, page: Page, out: &mut dyn Write) -> io::Result<()> {
    write_lines(vec![lost(summary), cost(summary)], page, out)
}

fn write_lines(lines: Vec<Labelled>, page: Page, out: &mut dyn Write) -> io::Result<()> {
    for (label, value, tone) in lines {
        let lines = text::wrap_pieces(&value, ", ", page.width.saturating_sub(14).max(20));
        for (at, line) in lines.iter().enumerate() {
            let label = if at == 0 { label } else { "" };
            writeln!(
                out,
                "  {}  {}",
                page.style.paint(Tone::Faint, format_args!("{label:<10}")),
                page.style.paint(tone, line)
            )?;
        }
    }
    Ok(())
}

type Labelled = (&'static str, Vec<String>, Tone);

fn lines(summary: &Summary) -> Vec<Labelled> {
    let found = |row: &TriggerRow| ("trigger", kept::found(row), Tone::Plain);
    let mut lines: Vec<Labelled> = summary.triggers.iter().map(found).collect();
    lines.extend([
        functions(summary),
        calls(summary),
        lost(summary),
        names(summary),
        matched(summary),
        cost(summary),
    ]);
    lines.extend(clocks(summary));
    lines
}

fn clocks(summary: &Summary) -> Option<Labelled> {
    let error = summary.clock_error_ns?;
    let text = format!("times of probes within {}", units::duration(error));
    Some(("clocks", vec![text], Tone::Plain))
}

fn functions(summary: &Summary) -> Labelled {
    let (ran, never, hidden) = summary.functions;
    let mut pieces = vec![format!("{ran} ran")];
    if never > 0 {
        pieces.push(format!("{never} watched and never ran"));
    }
    if hidden > 0 {
        pieces.push(format!("{hidden} not watched"));
    }
    for state in summary.known.iter().flat_map(|known| &known.states) {
        let count = units::count(state.functions);
        match (state.state, state.why) {
            ("never-ran", _) => pieces.push(format!("{count} of the source never ran")),
            ("not-visible", Some(why)) => {
                pieces.push(format!("{count} of the source not visible ({why})"));
            }
            ("not-in-build", _) => pieces.push(format!("{count} of the source not in this build")),
            _ => {}
        }
    }
    if summary.bounded > 0 {
        pieces.push(format!("{} switched off on the way", summary.bounded));
    }
    ("functions", pieces, Tone::Plain)
}

fn calls(summary: &Summary) -> Labelled {
    let mut pieces = vec![format!("{} events", units::count(summary.events))];
    if summary.samples > 0 {
        pieces.push(format!("{} samples", units::count(summary.samples)));
    }
    if summary.waits > 0 {
        pieces.push(format!("{} waits", units::count(summary.waits)));
    }
    pieces.push(format!("{} call edges", units::count(summary.edges as u64)));
    pieces.push(format!("{} threads", summary.threads));
    ("seen", pieces, Tone::Plain)
}

fn lost(summary: &Summary) -> Labelled {
    match summary.lost {
        (0, _) => ("lost", vec!["nothing".into()], Tone::Plain),
        (lost, share) => (
            "lost",
            vec![format!(
                "{} events ({})",
                units::count(lost),
                units::percent(share)
            )],
            Tone::Bad,
        ),
    }
}

fn names(summary: &Summary) -> Labelled {
    match &summary.unknown {
        None => ("no name", vec!["- (nothing ran)".into()], Tone::Plain),
        Some(unknown) => {
            let mut pieces = vec![
                format!("{} of the functions", units::percent(unknown.functions)),
                format!("{} of the events", units::percent(unknown.events)),
            ];
            pieces.extend(
                unknown
                    .reasons
                    .iter()
                    .map(|count| format!("{} {}", count.functions, count.reason)),
            );
            let much = unknown.functions.max(unknown.events) > UNKNOWN_LIMIT;
            let tone = if much { Tone::Uncertain } else { Tone::Plain };
            ("no name", pieces, tone)
        }
    }
}

fn matched(summary: &Summary) -> Labelled {
    let Some(known) = &summary.known else {
        let text = "- (no source: give its folder with --src)";
        return ("matched", vec![text.into()], Tone::Plain);
    };
    let low = known
        .match_rate
        .share
        .is_none_or(|share| share < MATCH_TARGET);
    let tone = if low { Tone::Uncertain } else { Tone::Plain };
    ("matched", matched_pieces(known), tone)
}

/// The match rate with what it is of, and the raw rate beside it.
pub(super) fn matched_pieces(known: &Known) -> Vec<String> {
    let rate = |share: &Share| {
        let shown = share
            .share
            .map_or_else(|| units::NOTHING.to_owned(), units::percent);
        let (matched, ran) = (units::count(share.matched), units::count(share.ran));
        format!("{shown} ({matched} of {ran})")
    };
    vec![
        format!(
            "{} of the user-written functions that ran",
            rate(&known.match_rate)
        ),
        format!("{} of all", rate(&known.raw_rate)),
    ]
}

fn cost(summary: &Summary) -> Labelled {
    let mut pieces = Vec::new();
    match summary.cost.target_share {
        Some((low, high)) => pieces.push(format!(
            "{} to {} of the target's CPU time",
            units::percent(low),
            units::percent(high)
        )),
        None => pieces.push("- of the target's CPU time".into()),
    }
    pieces.extend(summary.cost.programs_ns.map(|ns| {
        format!(
            "{} of it sampling and watching threads",
            units::duration(ns)
        )
    }));
    pieces.extend(
        summary
            .cost
            .collector_cpu_ns
            .map(|ns| format!("{} CPU of the collector", units::duration(ns))),
    );
    ("overhead", pieces, Tone::Plain)
}
