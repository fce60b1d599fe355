//! Return values: every call has its value or is counted as one without, and nobody who did not ask gets to see one.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use rustix::process::Signal;
use scalpel_tests::catalog::{GOROUTINES, RETURNS, THROWS};
use scalpel_tests::fixture::Fixture;
use scalpel_tests::scalpel::{self, Record};
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::target::Target;
use scalpel_tests::tests;
use scalpel_tests::truth::Truth;
use serde_json::Value;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "values":
        every_way_to_see_a_return_gives_the_same_values,
        a_call_that_an_exception_leaves_has_no_value_and_says_so,
        no_value_is_written_that_nobody_asked_for,
        a_killed_recording_still_has_its_values,
        two_recordings_add_up_to_both,
        slow_calls_alone_keep_their_values,
        what_cannot_be_seen_to_return_is_refused_by_name,
    );
}

/// What `returns.c` returns but once, as a secret would be.
const SECRET: u64 = 0x5ec2_e7c0_ffee_5eed;

fn report(file: &Path) -> anyhow::Result<Value> {
    let json = scalpel::run(&["report", &file.to_string_lossy(), "--json"])?.expect_code(0)?;
    Ok(serde_json::from_str(&json.stdout)?)
}

fn function<'a>(report: &'a Value, name: &str) -> anyhow::Result<&'a Value> {
    let rows = report.get("functions").and_then(Value::as_array);
    let is = |row: &&Value| row.get("name").is_some_and(|own| own == name);
    let row = rows.context("no functions")?.iter().find(is);
    row.with_context(|| format!("no {name}: {report}"))
}

fn number(row: &Value, pointer: &str) -> anyhow::Result<u64> {
    let number = row.pointer(pointer).and_then(Value::as_u64);
    number.with_context(|| format!("no {pointer}: {row}"))
}

/// The values of a function with their counts, whose sum with the others and the calls without one is checked.
fn values(report: &Value, name: &str) -> anyhow::Result<BTreeMap<i64, u64>> {
    let row = function(report, name)?;
    let rows = row.pointer("/returned/values").and_then(Value::as_array);
    let mut values = BTreeMap::new();
    for value in rows.with_context(|| format!("nothing returned: {row}"))? {
        let text = value.get("value").and_then(Value::as_str);
        let register: i64 = text
            .with_context(|| format!("no value: {value}"))?
            .parse()?;
        ensure!(
            value.get("exact").is_some_and(|exact| exact == true),
            "{row}"
        );
        values.insert(register, number(value, "/calls")?);
    }
    let (other, without) = (
        number(row, "/returned/other")?,
        number(row, "/returned/without")?,
    );
    let all = values.values().sum::<u64>() + other + without;
    ensure!(all == number(row, "/calls")?, "{row}");
    Ok(values)
}

/// As the register has a negative `int`.
fn int(number: i32) -> i64 {
    i64::from(number.cast_unsigned())
}

fn check(report: &Value, truth: &Truth, jumps_are_seen: bool) -> Outcome {
    let expect = |name: &str, expect: &[(i64, u64)]| -> Outcome {
        let values = values(report, name)?;
        ensure!(
            values == expect.iter().copied().collect(),
            "{name}: {values:?}"
        );
        let calls = number(function(report, name)?, "/calls")?;
        ensure!(calls == truth.calls(name)?, "{name}: {calls}");
        Ok(())
    };
    expect("negative", &[-1, -2, -3, -4, -5].map(|n| (int(n), 1000)))?;
    expect("wide", &[(-0x0123_4567_89ab_cdef, 300), (i64::MAX, 100)])?;
    let place = truth.measured("place")?.cast_signed();
    expect("place", &[0, 8, 16].map(|offset| (place + offset, 30)))?;
    let depths: Vec<_> = (0..10).map(|depth| (depth, 20)).collect();
    expect("depth", &depths)?;
    expect("secret", &[(SECRET.cast_signed(), 6)])?;
    expect("target", &[(0, 3), (1, 3)])?;
    let jumps: &[_] = if jumps_are_seen {
        &[(0, 3), (1, 3)]
    } else {
        &[]
    };
    expect("jumps", jumps)?;
    // Of a bool the lowest byte counts.
    let mut bools = BTreeMap::new();
    for (value, calls) in values(report, "odd")? {
        *bools.entry(value & 0xff).or_insert(0) += calls;
    }
    ensure!(bools == [(0, 15), (1, 15)].into(), "odd: {bools:?}");
    // The most frequent ones, and of the others the least: all calls are counted, and the range is of all.
    let first = (0..15).map(|n| (n * 1_000_003, 1));
    expect("many", &first.chain([(7, 50)]).collect::<Vec<_>>())?;
    let many = function(report, "many")?;
    ensure!(number(many, "/returned/other")? == 985, "{many}");
    let greatest = many.pointer("/returned/greatest/value");
    ensure!(greatest.is_some_and(|value| value == "999002997"), "{many}");
    let least = function(report, "wide")?.pointer("/returned/least/value");
    ensure!(
        least.is_some_and(|value| value == "-81985529216486895"),
        "{least:?}"
    );
    let ints = function(report, "negative")?.pointer("/returned/values/0/int");
    ensure!(ints.is_some_and(|int| int.as_i64() < Some(0)), "{ints:?}");
    // Nothing there says that it returns nothing: its calls are counted as those of all others.
    values(report, "nothing")?;
    Ok(())
}

fn every_way_to_see_a_return_gives_the_same_values() -> Outcome {
    for options in [&[][..], &["--exits", "ret"], &["--attach", "perf"]] {
        let copy = RETURNS.copy()?;
        let recorded = Record::into(copy.directory())
            .args(["-R", "*", "--max-overhead", "off"])
            .args(options.iter().copied())
            .command(copy.path(), &[])?
            .expect_code(0)?;
        let truth = Truth::of(&recorded.ended.stdout)?;
        let jumps_are_seen = !options.contains(&"ret");
        check(&report(&recorded.genome)?, &truth, jumps_are_seen)
            .with_context(|| format!("{options:?}: {}", recorded.ended.stderr))?;
    }
    Ok(())
}

fn a_call_that_an_exception_leaves_has_no_value_and_says_so() -> Outcome {
    let copy = THROWS.copy()?;
    let recorded = Record::into(copy.directory())
        .args(["-R", "catcher*", "-R", "thrower*", "-R", "first*"])
        .args(["--exits", "ret"])
        .command(copy.path(), &[])?
        .expect_code(0)?;
    let report = report(&recorded.genome)?;
    let caught = values(&report, "catcher(int)")?;
    ensure!(caught == [(0, 100), (1, 900)].into(), "{caught:?}");
    let thrower = function(&report, "thrower(int)")?;
    values(&report, "thrower(int)")?;
    ensure!(number(thrower, "/returned/without")? == 900, "{thrower}");
    let reason = thrower.pointer("/returned/reasons/0");
    let expect = "900 left by an exception or a jump";
    ensure!(reason.is_some_and(|reason| reason == expect), "{thrower}");
    Ok(())
}

/// Whether a file has the secret anywhere, in either order of bytes.
fn has_secret(file: &Path) -> anyhow::Result<bool> {
    let bytes = std::fs::read(file)?;
    let orders = [SECRET.to_le_bytes(), SECRET.to_be_bytes()];
    let has = |order: &[u8; 8]| bytes.windows(8).any(|window| window == order);
    Ok(orders.iter().any(has))
}

fn no_value_is_written_that_nobody_asked_for() -> Outcome {
    for (options, expect) in [
        (&[][..], false),
        (&["-R", "many"], false),
        (&["-R", "sec*"], true),
    ] {
        let copy = RETURNS.copy()?;
        let stream = copy.directory().join("run.stream");
        let recorded = Record::into(copy.directory())
            .args(["-f", "*", "--keep-stream", &stream.to_string_lossy()])
            .args(options.iter().copied())
            .command(copy.path(), &[])?
            .expect_code(0)?;
        for file in [&recorded.genome, &stream] {
            let has = has_secret(file)?;
            ensure!(has == expect, "{options:?}: {}: {has}", file.display());
        }
        let report = report(&recorded.genome)?;
        ensure!(number(function(&report, "secret")?, "/calls")? == 6);
        let returned = function(&report, "secret")?.get("returned");
        let is_null = returned.is_some_and(Value::is_null);
        ensure!(is_null != expect, "{options:?}: {returned:?}");
    }
    Ok(())
}

fn a_killed_recording_still_has_its_values() -> Outcome {
    let copy = RETURNS.copy()?;
    let mut target = Target::start(copy.path(), &[])?;
    let mut recording = Record::into(copy.directory())
        .args(["-R", "negative", "-R", "depth"])
        .attach(target.pid())?;
    target.work()?;
    recording.has_written()?;
    recording.running().signal(Signal::KILL)?;
    let killed = recording.ended()?;
    target.finish()?.expect_code(0)?;
    let report = report(&killed.genome)?;
    let seen = values(&report, "negative")?;
    ensure!(!seen.is_empty(), "{report}");
    ensure!(
        seen.iter()
            .all(|(value, calls)| (int(-5)..=int(-1)).contains(value) && *calls <= 1000),
        "{seen:?}"
    );
    Ok(())
}

fn two_recordings_add_up_to_both() -> Outcome {
    let (copy, again) = (RETURNS.copy()?, RETURNS.copy()?);
    let record = |directory: &Path, options: &[&str]| {
        Record::into(directory)
            .args(options.iter().copied())
            .command(copy.path(), &[])?
            .expect_code(0)
    };
    let asked = record(copy.directory(), &["-R", "negative", "-R", "many"])?;
    let other = record(again.directory(), &["-R", "negative", "-f", "many"])?;
    let merged = copy.directory().join("merged.genome");
    let files = [&merged, &asked.genome, &other.genome].map(|file| file.to_string_lossy());
    let [merged_text, first, second] = &files;
    scalpel::run(&["genome", "merge", "-o", merged_text, first, second, first])?.expect_code(0)?;
    let report = report(&merged)?;
    let sum = values(&report, "negative")?;
    ensure!(
        sum == [-1, -2, -3, -4, -5].map(|n| (int(n), 2000)).into(),
        "{sum:?}"
    );
    values(&report, "many")?;
    let many = function(&report, "many")?;
    let reason = many.pointer("/returned/reasons/0");
    let expect = "1050 in recordings without --return-values";
    ensure!(reason.is_some_and(|reason| reason == expect), "{many}");
    Ok(())
}

fn slow_calls_alone_keep_their_values() -> Outcome {
    let copy = RETURNS.copy()?;
    // Each call lasts longer than no time at all, so all are kept.
    let recorded = Record::into(copy.directory())
        .args([
            "--trigger",
            "depth>0us",
            "-R",
            "depth",
            "--max-overhead",
            "off",
        ])
        .command(copy.path(), &[])?
        .expect_code(0)?;
    let depths = values(&report(&recorded.genome)?, "depth")?;
    let expect: BTreeMap<i64, u64> = (0..10).map(|depth| (depth, 20)).collect();
    ensure!(depths == expect, "{depths:?}");
    Ok(())
}

fn what_cannot_be_seen_to_return_is_refused_by_name() -> Outcome {
    let refused = |program: &Fixture, options: &[&str], parts: &[&str]| -> anyhow::Result<String> {
        let copy = program.copy()?;
        let refused = Record::into(copy.directory())
            .args(options.iter().copied())
            .command(copy.path(), &[])?;
        let told = refused.ended.stderr.clone();
        ensure!(refused.ended.code() != 0, "{told}");
        for part in parts {
            ensure!(told.contains(part), "no {part}: {told}");
        }
        Ok(told)
    };
    let ret = "--exits ret watches";
    refused(
        &THROWS,
        &["-R", "thrower*"],
        &["thrower", ret, "list sites"],
    )?;
    refused(
        &THROWS,
        &["-R", "no_such_function"],
        &["no function matches"],
    )?;
    refused(
        &THROWS,
        &["-R", "thrower*", "--mode", "count"],
        &["one by one"],
    )?;
    let go = ["-R", "main.*", "--exits", "ret"];
    let told = refused(
        &GOROUTINES,
        &go,
        &["main.leaf: Go moves stacks", "list sites"],
    )?;
    ensure!(!told.contains(ret), "that was tried: {told}");
    Ok(())
}
