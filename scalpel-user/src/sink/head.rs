//! The lines above a table: which recording it is, and how far to trust it.

use std::io::{self, Write};

use super::style::Tone;
use super::{Page, doubts, summary, text, units};
use crate::report::Report;

/// Writes the head, the doubts and an empty line.
pub fn write(report: &Report, page: Page, out: &mut dyn Write) -> io::Result<()> {
    let run = &report.run;
    let pieces = [
        format!("pid {} on {}", run.pid, text::clean(&run.host)),
        format!(
            "{} of {}",
            units::duration(run.duration_ns),
            text::clean(&run.mode)
        ),
        format!("{} events", units::count(report.events)),
    ];
    let command = text::clean(&run.command);
    writeln!(
        out,
        "{}",
        page.style
            .paint(Tone::Strong, text::shorten(&command, page.width))
    )?;
    for line in text::wrap_pieces(&pieces, ", ", page.width) {
        writeln!(out, "{}", page.style.paint(Tone::Faint, line))?;
    }
    if let Some(known) = &report.known {
        let mut pieces = summary::matched_pieces(known);
        pieces.extend(
            report
                .unknown_share
                .map(|share| format!("{} without a name", units::percent(share))),
        );
        let lines = text::wrap_pieces(&pieces, ", ", page.width.saturating_sub(8).max(20));
        for (at, line) in lines.iter().enumerate() {
            let lead = if at == 0 { "matched " } else { "        " };
            writeln!(
                out,
                "{}",
                page.style.paint(Tone::Faint, format_args!("{lead}{line}"))
            )?;
        }
    }
    doubts::write_brief(&report.doubts, page, out)?;
    writeln!(out)
}
