//! Coverage as one page: functions that were watched and never ran, file by file, and apart from them what could not be
//! seen, with the reason. No script, no network; names come from the traced program and are shown as text only.

use std::collections::BTreeMap;
use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quick_xml::escape::escape;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::text::clean;

const STYLE: &str = include_str!("never.css");

/// A function that exists, and what became of it.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// File, from its root.
    pub file: String,
    /// First line, from 1; 0 = none.
    pub line: u32,
    /// Qualified name.
    pub name: String,
    /// What it is.
    pub kind: &'static str,
    /// `ran`, `never-ran`, `not-visible`, `not-in-build`.
    pub state: &'static str,
    /// Why it could not be seen, or is not there.
    pub why: Option<&'static str>,
    /// Calls.
    pub calls: u64,
}

/// What stands above the lists.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// What was recorded.
    pub title: String,
    /// Numbers: what, and how much.
    pub numbers: Vec<(String, String)>,
    /// What to doubt, a line each.
    pub caveats: Vec<String>,
}

/// Writes the page.
pub fn write(head: &Head, rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    let title = text(&head.title);
    let style = STANDARD.encode(Sha256::digest(STYLE.as_bytes()));
    writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{style}'\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>never ran: {title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>What never ran</h1>\n<p class=\"run\">{title}</p>"
    )?;
    numbers(head, rows, out)?;
    for caveat in &head.caveats {
        writeln!(out, "<p class=\"doubt\">{}</p>", text(caveat))?;
    }
    never(rows, out)?;
    apart(rows, "not-visible", "Could not be seen", NOT_VISIBLE, out)?;
    apart(rows, "not-in-build", "Not in this build", NOT_IN_BUILD, out)?;
    writeln!(out, "</body>\n</html>")
}

const NEVER: &str = "They were watched from beginning to end and were not called once.";
const NOT_VISIBLE: &str = "Whether they ran is not known, for the reason given.";
const NOT_IN_BUILD: &str =
    "The source has them, what ran has not: left out, folded away, or never compiled.";

fn numbers(head: &Head, rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    let count = |state: &str| rows.iter().filter(|row| row.state == state).count();
    writeln!(out, "<table class=\"numbers\">")?;
    for (what, much) in &head.numbers {
        writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td></tr>",
            text(what),
            text(much)
        )?;
    }
    for (state, what) in [
        ("ran", "ran"),
        ("never-ran", "never ran"),
        ("not-visible", "could not be seen"),
        ("not-in-build", "not in this build"),
    ] {
        writeln!(
            out,
            "<tr><th scope=\"row\">functions that {what}</th><td>{}</td></tr>",
            count(state)
        )?;
    }
    writeln!(out, "</table>")
}

/// By file: those with most first.
fn never(rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    let mut files: BTreeMap<&str, (usize, Vec<&Row>)> = BTreeMap::new();
    for row in rows {
        let (seen, never) = files.entry(&row.file).or_default();
        *seen += usize::from(matches!(row.state, "ran" | "never-ran"));
        if row.state == "never-ran" {
            never.push(row);
        }
    }
    files.retain(|_, (_, never)| !never.is_empty());
    let mut files: Vec<_> = files.into_iter().collect();
    files.sort_by_key(|(_, (_, never))| std::cmp::Reverse(never.len()));
    let all: usize = files.iter().map(|(_, (_, never))| never.len()).sum();
    writeln!(out, "<h2>Never ran: {all}</h2>\n<p>{NEVER}</p>")?;
    for (file, (seen, mut never)) in files {
        never.sort_by_key(|row| row.line);
        writeln!(
            out,
            "<details open><summary><code>{}</code> <span>{} of {seen}</span></summary>",
            text(file),
            never.len()
        )?;
        table(&never, false, out)?;
        writeln!(out, "</details>")?;
    }
    Ok(())
}

/// What is not known, by reason and file.
fn apart(
    rows: &[Row],
    state: &str,
    heading: &str,
    meaning: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut reasons: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.state == state) {
        reasons.entry(row.why.unwrap_or("")).or_default().push(row);
    }
    let all: usize = reasons.values().map(Vec::len).sum();
    if all == 0 {
        return Ok(());
    }
    writeln!(out, "<h2>{heading}: {all}</h2>\n<p>{meaning}</p>")?;
    for (why, mut rows) in reasons {
        rows.sort_by_key(|row| (&row.file, row.line));
        writeln!(
            out,
            "<details><summary>{} <span>{}</span></summary>",
            text(why),
            rows.len()
        )?;
        table(&rows, true, out)?;
        writeln!(out, "</details>")?;
    }
    Ok(())
}

fn table(rows: &[&Row], with_file: bool, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "<table>")?;
    for row in rows {
        let line = match row.line {
            0 => String::new(),
            line => line.to_string(),
        };
        let place = match (with_file, line.is_empty()) {
            (true, false) => format!("{}:{line}", row.file),
            (true, true) => row.file.clone(),
            (false, _) => line,
        };
        writeln!(
            out,
            "<tr><td class=\"place\">{}</td><td>{}</td><td><code>{}</code></td></tr>",
            text(&place),
            text(row.kind),
            text(&row.name)
        )?;
    }
    writeln!(out, "</table>")
}

fn text(raw: &str) -> String {
    escape(&*clean(raw)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(file: &str, name: &str, state: &'static str, why: Option<&'static str>) -> Row {
        Row {
            file: file.into(),
            line: 3,
            name: name.into(),
            kind: "function",
            state,
            why,
            calls: 0,
        }
    }

    fn page(rows: &[Row]) -> String {
        let mut out = Vec::new();
        write(&Head::default(), rows, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_could_not_be_seen_is_not_among_what_never_ran() {
        let page = page(&[
            row("a.py", "idle", "never-ran", None),
            row("a.py", "busy", "ran", None),
            row("b.py", "hidden", "not-visible", Some("no-probe")),
            row("c.py", "folded", "not-in-build", Some("no-code")),
        ]);
        let (never, apart) = page.split_once("<h2>Could not be seen: 1</h2>").unwrap();
        assert!(never.contains("idle") && never.contains("1 of 2"), "{page}");
        assert!(!never.contains("hidden") && !never.contains("folded"));
        assert!(apart.contains("hidden") && apart.contains("no-probe"));
        assert!(!page.contains("busy"), "what ran is counted, not listed");
    }

    #[test]
    fn foreign_names_are_text() {
        let page = page(&[row("<a>.py", "<script>&\u{1b}", "never-ran", None)]);
        assert!(page.contains("&lt;script&gt;&amp;\u{fffd}"), "{page}");
        assert!(!page.contains("<script"));
        assert!(page.contains("&lt;a&gt;.py"));
    }
}
