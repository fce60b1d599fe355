//! The page of `report --html`, opened in a browser and used by keys and mouse.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::tests;
use serde_json::Value;

use crate::tools::{Subject, brought, consume, scalpel, tool};

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "page":
        a_browser_shows_every_call_and_reaches_for_nothing,
        keys_and_mouse_find_their_way,
        a_page_of_a_genome_says_where_single_calls_come_from,
    );
}

/// What the page says of a recording that lost nothing.
const NOTHING_LOST: &str = "Lost, all functions\n\nEvents that found no room. \
    The numbers of the functions concerned are lower bounds.\n\nNone.";

/// What a person saw of the page.
fn seen(subject: &Subject, recording: &Path, name: &str) -> anyhow::Result<Value> {
    opened(&subject.path(name), recording)
}

/// The same of a page that is written to this path.
pub(crate) fn opened(page: &Path, recording: &Path) -> anyhow::Result<Value> {
    let ran = scalpel([
        "report".as_ref(),
        recording.as_os_str(),
        "--html".as_ref(),
        page.as_os_str(),
    ])?;
    ensure!(ran.code == 0, "{}", ran.stderr);
    let pictures = page.with_extension("pictures");
    fs::create_dir_all(&pictures)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exports/page.mjs");
    let said = consume(
        tool("node")?
            .arg(script)
            .arg(tool("chromium")?.get_program())
            .args([page, &*pictures])
            .arg(brought("node_modules")?),
    )?;
    let seen: Value = serde_json::from_str(&said)?;
    ensure!(seen["state"] == "ready", "{seen:#}");
    ensure!(seen["errors"] == serde_json::json!([]), "{seen:#}");
    Ok(seen)
}

pub(crate) fn text<'a>(seen: &'a Value, field: &str) -> anyhow::Result<&'a str> {
    seen[field].as_str().with_context(|| format!("{seen:#}"))
}

fn a_browser_shows_every_call_and_reaches_for_nothing() -> Outcome {
    for subject in Subject::both()? {
        let seen = seen(&subject, &subject.recording, "run.html")?;
        ensure!(seen["requests"] == serde_json::json!(["file:"]), "{seen:#}");
        ensure!(seen["calls"] == subject.sum("calls"), "{seen:#}");
        ensure!(seen["roots"] == 0, "{seen:#}");
        ensure!(
            seen["spans"].as_u64() >= Some(subject.sum("calls")),
            "{seen:#}"
        );
        let first = text(&seen, "first")?;
        let doubted = !subject.said["doubts"].as_array().is_none_or(Vec::is_empty);
        ensure!(doubted != first.contains("Nothing to doubt"), "{first}");
        let lossy = subject.code == 5;
        ensure!(lossy == first.contains("! lost"), "{first}");
        ensure!(
            lossy != text(&seen, "trust")?.contains(NOTHING_LOST),
            "{seen:#}"
        );
    }
    Ok(())
}

fn keys_and_mouse_find_their_way() -> Outcome {
    let subject = Subject::whole()?;
    let seen = seen(&subject, &subject.recording, "run.html")?;
    // More colours than a blank canvas: boxes, their names, patterns.
    ensure!(seen["flame"].as_u64() > Some(3), "{seen:#}");
    ensure!(seen["timeline"]["colours"].as_u64() > Some(3), "{seen:#}");
    let walk = seen["walk"].as_array().context("no walk")?;
    ensure!(
        walk[0] != walk[1] && walk[1].as_str().is_some_and(|text| text.contains("itself")),
        "{seen:#}"
    );
    ensure!(seen["zoomed"] != seen["whole"], "{seen:#}");
    ensure!(text(&seen, "span")?.starts_with("Time: "), "{seen:#}");
    ensure!(text(&seen, "edges")?.contains("exact"), "{seen:#}");
    ensure!(seen["found"] == serde_json::json!(["fib"]), "{seen:#}");
    ensure!(seen["themes"][0] != seen["themes"][1], "{seen:#}");
    Ok(())
}

fn a_page_of_a_genome_says_where_single_calls_come_from() -> Outcome {
    let subject = Subject::whole()?;
    let genome = subject.genome()?;
    let seen = seen(&subject, &genome, "genome.html")?;
    ensure!(seen["spans"].is_null(), "{seen:#}");
    let note = seen["timeline"]["note"].as_str().unwrap_or_default();
    ensure!(note.contains("--keep-stream"), "{note}");
    let part = scalpel([
        "report".as_ref(),
        genome.as_os_str(),
        "--html".as_ref(),
        "-".as_ref(),
        "--from".as_ref(),
        "1".as_ref(),
    ])?;
    ensure!(
        part.code == 2 && part.stderr.contains("--keep-stream"),
        "{}",
        part.stderr
    );
    Ok(())
}
