//! Kept calls as text: what each trigger found, and the slowest calls, a line each.

use std::io::{self, Write};

use super::style::Tone;
use super::{Page, text, units};
use crate::report::{KeptRow, TriggerRow};

/// What a trigger found, in a few words.
pub fn found(row: &TriggerRow) -> Vec<String> {
    let mut pieces = vec![
        format!("{} kept", units::count(row.kept)),
        format!(
            "{} of {} calls over {}",
            units::count(row.over),
            units::count(row.calls),
            text::clean(&row.trigger)
        ),
    ];
    if let Some(slowest) = row.slowest_ns {
        pieces.push(format!("slowest {}", units::duration(slowest)));
    }
    pieces
}

/// What a kept call was made of.
pub fn parts(row: &KeptRow) -> String {
    let mut parts = units::duration(row.wall_ns);
    if let (Some(cpu), Some(off)) = (row.cpu_ns, row.off_cpu_ns) {
        parts.push_str(&format!(
            " = {} CPU + {} off it",
            units::duration(cpu),
            units::duration(off)
        ));
    }
    if row.waits > 0 {
        let waits = if row.waits == 1 { "wait" } else { "waits" };
        parts.push_str(&format!(
            " ({} in {} {waits})",
            units::duration(row.waited_ns),
            units::count(row.waits)
        ));
    }
    parts
}

/// What there is to doubt of a kept call.
pub fn marks(row: &KeptRow) -> String {
    let mut marks = String::new();
    if row.end != "returned" {
        marks.push_str(&format!(" [{}]", row.end));
    }
    if row.lost > 0 {
        marks.push_str(&format!(" [lost {}]", row.lost));
    }
    if row.left_out > 0 {
        marks.push_str(&format!(" [left out {}]", row.left_out));
    }
    marks
}

/// Writes the triggers and the slowest of their calls, `limit` of them (0 = ten).
pub fn write(
    triggers: &[TriggerRow],
    kept: &[KeptRow],
    limit: usize,
    page: Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    if triggers.is_empty() {
        return Ok(());
    }
    for row in triggers {
        writeln!(
            out,
            "{}",
            page.style.paint(Tone::Strong, found(row).join(", "))
        )?;
    }
    let most = if limit == 0 { 10 } else { limit };
    for row in kept.iter().take(most) {
        let (seconds, micros) = (
            row.start_ns / 1_000_000_000,
            row.start_ns / 1000 % 1_000_000,
        );
        let line = format!(
            "{seconds:>5}.{micros:06} s  {:>8}  {}: {}",
            row.tid,
            text::clean(&row.name),
            parts(row)
        );
        let marks = marks(row);
        let room = page.width.saturating_sub(text::width(&marks)).max(40);
        writeln!(
            out,
            "{}{}",
            text::shorten(&line, room),
            page.style.paint(Tone::Uncertain, marks)
        )?;
    }
    if kept.len() > most {
        let more = format!("and {} more", units::count((kept.len() - most) as u64));
        writeln!(out, "{}", page.style.paint(Tone::Faint, more))?;
    }
    writeln!(out)
}
