//! Slow calls alone: of a loop of requests exactly those are kept that were slow, and each shows why.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use scalpel_tests::catalog::{REQUESTS, THROWS};
use scalpel_tests::child::PATIENCE;
use scalpel_tests::scalpel::{self, Record};
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::target::Target;
use scalpel_tests::tests;
use scalpel_tests::truth::Truth;
use serde_json::Value;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "trigger":
        exactly_the_slow_requests_are_kept_and_show_why,
        a_call_that_goes_on_at_the_end_is_kept_and_marked,
        a_function_whose_end_cannot_be_seen_is_refused_by_name,
    );
}

/// What each slow request takes at least.
const SLOW_NS: u64 = 300_000_000;

fn number(row: &Value, name: &str) -> anyhow::Result<u64> {
    let number = row.get(name).and_then(Value::as_u64);
    number.with_context(|| format!("no {name}: {row}"))
}

fn rows<'a>(report: &'a Value, name: &str) -> anyhow::Result<&'a Vec<Value>> {
    let rows = report.get(name).and_then(Value::as_array);
    rows.with_context(|| format!("no {name}: {report}"))
}

fn calls(report: &Value, name: &str) -> anyhow::Result<u64> {
    let is = |row: &&Value| row.get("name").is_some_and(|own| own == name);
    let row = rows(report, "functions")?.iter().find(is);
    let calls = row.and_then(|row| row.get("calls")).and_then(Value::as_u64);
    Ok(calls.unwrap_or(0))
}

/// The part of a replay that is about the kept call with this line in it.
fn block<'a>(replay: &'a str, line: &str) -> anyhow::Result<&'a str> {
    let found = replay.split("\n#").find(|block| block.contains(line));
    found.with_context(|| format!("no kept call with {line}: {replay}"))
}

fn exactly_the_slow_requests_are_kept_and_show_why() -> Outcome {
    let copy = REQUESTS.copy()?;
    let recorded = Record::into(copy.directory())
        .args(["--trigger", "handle>100ms", "-f", "serve_*", "-f", "run_*"])
        .command(copy.path(), &[])?
        .expect_code(0)?;
    let truth = Truth::of(&recorded.ended.stdout)?;
    let file = recorded.genome.to_string_lossy().into_owned();
    let json = scalpel::run(&["report", &file, "--json"])?.expect_code(0)?;
    let report: Value = serde_json::from_str(&json.stdout)?;

    let trigger = rows(&report, "triggers")?.first().context("no trigger")?;
    let (all, over, kept) = (
        number(trigger, "calls")?,
        number(trigger, "over")?,
        number(trigger, "kept")?,
    );
    ensure!(all == truth.calls("handle")?, "{trigger}");
    ensure!(over == kept, "{trigger}");
    // Measured from inside a call lasts shorter than it was, from outside longer.
    let (least, most) = (truth.measured("over:inner")?, truth.measured("over:outer")?);
    ensure!((least..=most).contains(&kept), "{kept} of {least}..={most}");
    ensure!(rows(&report, "kept")?.len() as u64 == kept, "{report}");

    for name in ["serve_sleep", "serve_lock", "serve_burn"] {
        ensure!(calls(&report, name)? == 1, "{name}: {report}");
    }
    ensure!(calls(&report, "handle")? == kept, "{report}");
    ensure!(calls(&report, "serve_quick")? == 3 * kept, "{report}");
    ensure!(calls(&report, "run_requests")? == 0, "a caller: {report}");
    let doubts = format!("{:?}", rows(&report, "doubts")?);
    ensure!(
        doubts.contains("only kept calls are in this recording"),
        "{doubts}"
    );

    let slow = |what: &str, least: u64| -> anyhow::Result<usize> {
        let calls = rows(&report, "kept")?.iter();
        Ok(calls
            .filter(|row| number(row, what).is_ok_and(|ns| ns >= least))
            .count())
    };
    // Both clocks agree to a hundredth.
    let least = SLOW_NS - SLOW_NS / 50;
    ensure!(
        slow("off_cpu_ns", least)? >= 2,
        "asleep, and at the lock: {report}"
    );
    ensure!(
        slow("waited_ns", least)? >= 2,
        "asleep, and at the lock: {report}"
    );
    ensure!(slow("cpu_ns", least)? >= 1, "burning: {report}");

    let stream = recorded.genome.with_extension("stream");
    let replay = scalpel::run(&["replay", &stream.to_string_lossy()])?.expect_code(0)?;
    let text = &replay.stdout;
    for name in ["serve_sleep", "serve_lock"] {
        let block = block(text, name)?;
        let told = block.contains("[waited") && block.contains("in run_requests");
        ensure!(told, "{block}");
    }
    ensure!(
        block(text, "serve_burn")?.contains("in run_requests"),
        "{text}"
    );
    ensure!(text.matches("\n#").count() as u64 == kept, "{text}");

    // Built again from the stream it is the same.
    let again = copy.directory().join("again.genome");
    let (from, to) = (stream.to_string_lossy(), again.to_string_lossy());
    scalpel::run(&["replay", &from, "-o", &to])?.expect_code(0)?;
    let json = scalpel::run(&["report", &to, "--json"])?.expect_code(0)?;
    let rebuilt: Value = serde_json::from_str(&json.stdout)?;
    for part in ["triggers", "kept", "functions", "edges"] {
        ensure!(
            rebuilt.get(part) == report.get(part),
            "{part} differ: {rebuilt}"
        );
    }
    Ok(())
}

fn a_call_that_goes_on_at_the_end_is_kept_and_marked() -> Outcome {
    let copy = REQUESTS.copy()?;
    let mut target = Target::start(copy.path(), &["endless"])?;
    let recording = Record::into(copy.directory())
        .args(["--trigger", "handle_endless>1ms", "-f", "serve_sleep"])
        .attach(target.pid())?;
    target.running().say("go\n")?;
    // Long over the threshold by then: the program's only way is into the call.
    let stat = format!("/proc/{}/wchan", target.pid());
    let deadline = Instant::now() + PATIENCE;
    while !std::fs::read_to_string(&stat)?.contains("nanosleep") {
        ensure!(Instant::now() < deadline, "it does not fall asleep");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(50));
    let recorded = recording.stop()?.expect_code(0)?;
    let file = recorded.genome.to_string_lossy().into_owned();
    let json = scalpel::run(&["report", &file, "--json"])?.expect_code(0)?;
    let report: Value = serde_json::from_str(&json.stdout)?;
    let [kept] = rows(&report, "kept")?.as_slice() else {
        anyhow::bail!("not one kept call: {report}");
    };
    ensure!(
        kept.get("end").is_some_and(|end| end == "still open"),
        "{kept}"
    );
    ensure!(calls(&report, "serve_sleep")? >= 1, "{report}");
    Ok(())
}

fn a_function_whose_end_cannot_be_seen_is_refused_by_name() -> Outcome {
    let copy = THROWS.copy()?;
    let refused = Record::into(copy.directory())
        .args(["--trigger", "thrower*>1ms"])
        .command(copy.path(), &[])?;
    let told = &refused.ended.stderr;
    ensure!(refused.ended.code() != 0, "{told}");
    for part in ["thrower", "--exits ret", "list sites"] {
        ensure!(told.contains(part), "no {part}: {told}");
    }
    Ok(())
}
