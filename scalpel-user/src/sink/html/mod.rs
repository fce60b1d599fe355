//! A recording as one page: no network, no other file, a viewer of our own on canvas.
//!
//! The page holds the object of `report --json`, the calling-context tree and, of a kept stream, the calls one by one;
//! all of it packed, and opened by `viewer/`. Names come from the traced program: the page shows them as text only,
//! and its policy allows no script but the viewer, which is named there by its hash.

mod calls;
mod cells;
mod column;

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::genome::Genome;
use crate::report::Report;
pub use calls::{Calls, MOST_CALLS};

const PAGE: &str = include_str!("viewer/page.html");
const STYLE: &str = include_str!("viewer/style.css");

/// The viewer: one script, in parts by duty. `start.js` is last, because it runs.
const SCRIPT: &str = concat!(
    include_str!("viewer/data.js"),
    include_str!("viewer/words.js"),
    include_str!("viewer/tree.js"),
    include_str!("viewer/paint.js"),
    include_str!("viewer/flame.js"),
    include_str!("viewer/sandwich.js"),
    include_str!("viewer/timeline.js"),
    include_str!("viewer/tables.js"),
    include_str!("viewer/first.js"),
    include_str!("viewer/start.js"),
);

/// Writes the page of a genome, with the single calls if the recording has them.
pub fn write(
    genome: &Genome,
    report: &Report,
    calls: Option<&Calls>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut parts = Parts::new(out);
    parts.until("TITLE")?;
    parts.text(&genome.run.command)?;
    parts.until("POLICY")?;
    write!(
        parts.out,
        "default-src 'none'; script-src '{}'; style-src '{}'",
        hash(SCRIPT),
        hash(STYLE)
    )?;
    parts.until("STYLE")?;
    parts.out.write_all(STYLE.as_bytes())?;
    parts.until("DATA")?;
    data(genome, report, parts.out)?;
    if let Some(calls) = calls {
        calls.write(&genome.tree.threads, parts.out)?;
    }
    parts.until("SCRIPT")?;
    parts.out.write_all(SCRIPT.as_bytes())?;
    parts.rest()
}

fn data(genome: &Genome, report: &Report, out: &mut dyn Write) -> io::Result<()> {
    column::block("report", 1, &serde_json::to_vec(report)?, out)?;
    let joined = cells::write(&genome.tree, cells::MOST_CELLS, out)?;
    let about = json!({
        "window_ns": joined.window_ns,
        "threads_joined": joined.threads,
        "windows_joined": joined.window_ns > genome.tree.window_ns,
        "folded_calls": genome.tree.folded_calls,
        "sample_hz": genome.run.sample_hz,
        "probe_cost_ns": genome.run.probe_cost_ns,
    });
    column::block("about", 1, &serde_json::to_vec(&about)?, out)
}

/// A source expression of a content security policy: the hash of an inline element.
fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

/// The page around what is put into it.
struct Parts<'a> {
    out: &'a mut dyn Write,
    rest: &'static str,
}

impl<'a> Parts<'a> {
    fn new(out: &'a mut dyn Write) -> Self {
        Self { out, rest: PAGE }
    }

    /// Writes the page up to the place of this name.
    fn until(&mut self, place: &str) -> io::Result<()> {
        let mark = format!("{{{{{place}}}}}");
        let (before, after) = self.rest.split_once(mark.as_str()).ok_or_else(|| {
            io::Error::other(format!("the page of the viewer has no place {mark}"))
        })?;
        self.rest = after;
        self.out.write_all(before.as_bytes())
    }

    /// Foreign text, as text.
    fn text(&mut self, text: &str) -> io::Result<()> {
        for part in text.split_inclusive(['&', '<', '>']) {
            let special = part.chars().next_back();
            let plain = part.trim_end_matches(['&', '<', '>']);
            self.out.write_all(plain.as_bytes())?;
            self.out.write_all(match special {
                Some('&') => b"&amp;",
                Some('<') => b"&lt;",
                Some('>') => b"&gt;",
                _ => b"",
            })?;
        }
        Ok(())
    }

    fn rest(self) -> io::Result<()> {
        self.out.write_all(self.rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::{SCRIPT, STYLE, hash, write};
    use crate::genome::tests::example;
    use crate::report::Report;

    fn page(change: impl FnOnce(&mut crate::genome::Genome)) -> String {
        let mut genome = example();
        change(&mut genome);
        let mut out = Vec::new();
        write(&genome, &Report::of(&genome, 0.001), None, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_page_is_whole_and_reaches_for_nothing() {
        let page = page(|_| ());
        assert!(page.contains("id=\"cell.context\"") && page.contains("id=\"report\""));
        assert!(!page.contains("{{"), "a place is left empty");
        for away in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(away), "{away}");
        }
    }

    #[test]
    fn only_the_viewer_may_run() {
        let page = page(|_| ());
        let policy = format!(
            "default-src 'none'; script-src '{}'; style-src '{}'",
            hash(SCRIPT),
            hash(STYLE)
        );
        assert!(page.contains(&policy));
        assert!(!SCRIPT.contains("</script") && !STYLE.contains("</style"));
        assert!(!SCRIPT.contains("innerHTML"));
    }

    #[test]
    fn a_command_cannot_write_into_the_page() {
        let page = page(|genome| genome.run.command = "a & </title><script>evil()".into());
        assert!(page.contains("<title>a &amp; &lt;/title&gt;&lt;script&gt;evil()"));
        assert!(!page.contains("<script>evil"));
    }
}
