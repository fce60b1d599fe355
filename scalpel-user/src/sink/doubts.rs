//! Doubts as text: what happened, why it matters, and what to do.

use std::io::{self, Write};

use super::style::Tone;
use super::{Page, text};
use crate::doubt::Doubt;

/// Writes every doubt, wrapped to the page.
pub fn write(doubts: &[Doubt], page: Page, out: &mut dyn Write) -> io::Result<()> {
    for doubt in doubts {
        block("! ", "  ", &doubt.what, Tone::Uncertain, page, out)?;
        block("  ", "  ", &doubt.why, Tone::Faint, page, out)?;
        block("  → ", "    ", &doubt.do_, Tone::Plain, page, out)?;
    }
    Ok(())
}

/// Writes what happened only, a line each.
pub fn write_brief(doubts: &[Doubt], page: Page, out: &mut dyn Write) -> io::Result<()> {
    doubts
        .iter()
        .try_for_each(|doubt| block("! ", "  ", &doubt.what, Tone::Uncertain, page, out))
}

fn block(
    first: &str,
    next: &str,
    words: &str,
    tone: Tone,
    page: Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    let room = page.width.saturating_sub(text::width(first)).max(20);
    for (at, line) in text::wrap(&text::clean(words), room).iter().enumerate() {
        let lead = if at == 0 { first } else { next };
        writeln!(
            out,
            "{}{}",
            page.style.paint(tone, lead),
            page.style.paint(tone, line)
        )?;
    }
    Ok(())
}
