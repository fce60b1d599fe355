//! What functions returned, as text: the values of each with their counts, and what became of calls that have none.

use std::io::{self, Write};

use super::style::Tone;
use super::{Page, text};
use crate::report::returned::Value;
use crate::report::{FunctionRow, ReturnedRow};

/// Writes the values of every row that has some, `limit` rows of them (0 = all).
pub fn write(
    rows: &[FunctionRow],
    limit: usize,
    page: Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    let asked = |row: &'_ FunctionRow| row.returned.is_some();
    let all = rows.iter().filter(|row| asked(row)).count();
    let most = if limit == 0 { all } else { limit };
    let pairs = rows
        .iter()
        .filter_map(|row| Some((row, row.returned.as_ref()?)));
    for (row, returned) in pairs.take(most) {
        function(row, returned, page, out)?;
    }
    if all > most {
        let more = format!("\n… {} more: --limit 0 shows all", all - most);
        writeln!(out, "{}", page.style.paint(Tone::Faint, more))?;
    }
    Ok(())
}

/// Says that there are values, where they are not shown.
pub fn hint(rows: &[FunctionRow], page: Page, out: &mut dyn Write) -> io::Result<()> {
    let asked = rows.iter().filter(|row| row.returned.is_some()).count();
    if asked == 0 {
        return Ok(());
    }
    let functions = if asked == 1 { "function" } else { "functions" };
    let hint = format!("return values of {asked} {functions}: --return-values shows them");
    writeln!(out, "{}", page.style.paint(Tone::Faint, hint))
}

fn function(
    row: &FunctionRow,
    returned: &ReturnedRow,
    page: Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    let name = format!(
        "{} [{}] returned",
        text::clean(&row.name),
        text::clean(&row.module)
    );
    let name = text::shorten(&name, page.width.max(40)).into_owned();
    writeln!(out, "\n{}", page.style.paint(Tone::Strong, name))?;
    writeln!(
        out,
        "{}",
        page.style
            .paint(Tone::Faint, format!("({})", returned.register))
    )?;
    for value in &returned.values {
        let least = if value.exact { "" } else { "≥" };
        let count = format!("{least}{}", value.calls);
        line(&count, &shown(&value.value), out)?;
    }
    if returned.other > 0 {
        line(&returned.other.to_string(), "other values", out)?;
    }
    if returned.without > 0 || returned.values.is_empty() {
        let why = returned.reasons.join("; ");
        let why = if why.is_empty() {
            why
        } else {
            format!(": {why}")
        };
        let text = format!("no value{}", text::clean(&why));
        let lines = text::wrap(&text, page.width.saturating_sub(INDENT).max(40));
        let mut count = returned.without.to_string();
        for text in &lines {
            line(&std::mem::take(&mut count), text, out)?;
        }
    }
    if let (Some(least), Some(greatest)) = (&returned.least, &returned.greatest)
        && returned.other > 0
    {
        let range = format!("from {} to {}", shown(least), shown(greatest));
        line("", &range, out)?;
    }
    Ok(())
}

/// Columns before the text of a line.
const INDENT: usize = 12;

fn line(count: &str, text: &str, out: &mut dyn Write) -> io::Result<()> {
    let width = INDENT - 2;
    writeln!(out, "{count:>width$}  {text}")
}

/// In decimal; as bits where they say more; as an `int` where that is another number.
fn shown(value: &Value) -> String {
    let mut more = Vec::new();
    if value.value.len() > SMALL {
        more.push(value.bits.clone());
    }
    if let Some(int) = value.int.map(|int| int.to_string())
        && int != value.value
    {
        more.push(format!("as int {int}"));
    }
    if more.is_empty() {
        value.value.clone()
    } else {
        format!("{} ({})", value.value, more.join(", "))
    }
}

/// Digits of a number that nobody reads as bits.
const SMALL: usize = 5;
