//! The lines above a table: which recording it is, and how far to trust it.

use std::io::{self, Write};

use super::style::Tone;
use super::{Page, doubts, summary, text, units};
use crate::report::Report;

/// Whose recording it is: of a process, or of all that a host has.
pub fn where_it_ran(pid: u32, host: &str) -> String {
    match pid {
        0 => format!("on {}", text::clean(host)),
        pid => format!("pid {pid} on {}", text::clean(host)),
    }
}

/// Writes the head, the doubts and an empty line.
pub fn write(report: &Report, page: Page, out: &mut dyn Write) -> io::Result<()> {
    let run = &report.run;
    let pieces = [
        where_it_ran(run.pid, &run.host),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_no_process() {
        assert_eq!(where_it_ran(7, "here"), "pid 7 on here");
        assert_eq!(where_it_ran(0, "here"), "on here");
    }
}
