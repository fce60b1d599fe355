//! SQLite: the library, in the process of its own shell.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::ensure;
use scalpel_tests::child;
use scalpel_tests::real::programs::Programs;
use scalpel_tests::report::Report;
use scalpel_tests::scalpel::Record;
use scalpel_tests::suite::{Outcome, Suite};
use tempfile::TempDir;

pub(crate) fn add(suite: &mut Suite, programs: &Arc<Programs>) {
    let shared = Arc::clone(programs);
    suite.test(
        "sqlite",
        "queries_answer_the_same_and_recordings_streamed_and_counted_have_the_same_calls",
        move || queries(&shared),
    );
}

fn queries(programs: &Programs) -> Outcome {
    let folder = TempDir::with_prefix("scalpel-sqlite-")?;
    let shell = programs.find("usr/bin/sqlite3")?;
    let script = folder.path().join("work.sql");
    fs::write(&script, work(2000)?)?;
    let line = [
        shell.to_string_lossy().into_owned(),
        ":memory:".into(),
        format!(".read {}", script.display()),
    ];
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    let mut unrecorded = programs.command(&shell)?;
    unrecorded.args(line.iter().skip(1));
    let plain = child::run(unrecorded)?.expect_code(0)?.stdout;
    let record = |mode| recorded(programs, folder.path(), mode, &line, &plain);
    let (first, second) = (record("trace")?, record("trace")?);
    let counted = record("count")?;
    let prepared = first.calls("sqlite3_prepare_v2")?;
    ensure!(prepared > 100, "only {prepared} statements were prepared");
    ensure!(
        counts(&first) == counts(&second),
        "two recordings of the same work count differently"
    );
    // Edges by their callees only: of a call from a function without a probe the stream may name the probed function around
    // it, where the kernel's cells name the function that the return address lies in.
    ensure!(
        counts(&first) == counts(&counted) && called(&first) == called(&counted),
        "counted in the kernel: {:#?} {:#?}, streamed: {:#?} {:#?}",
        counts(&counted),
        called(&counted),
        counts(&first),
        called(&first)
    );
    Ok(())
}

/// All exported functions of the library, every call of them.
fn recorded(
    programs: &Programs,
    folder: &Path,
    mode: &str,
    line: &[&str],
    plain: &str,
) -> anyhow::Result<Report> {
    let record = Record::into(folder).args([
        "-F",
        "0",
        "--mode",
        mode,
        "--lib",
        "libsqlite3*",
        "-f",
        "sqlite3_*",
    ]);
    let ended = child::run(programs.with_libraries(record.command_line(line)?)?)?.expect_code(0)?;
    ensure!(
        ended.stdout == plain,
        "the answers differ from those of a run without a recording: {}",
        ended.stdout
    );
    let report = scalpel_tests::scalpel::report(record.genome())?;
    ensure!(report.lost == 0, "{} events lost", report.lost);
    Ok(report)
}

fn counts(report: &Report) -> Vec<(&str, Option<u64>)> {
    let mut counts: Vec<_> = report
        .functions
        .iter()
        .map(|function| (function.key.as_str(), function.calls))
        .collect();
    counts.sort_unstable();
    counts
}

/// Calls of each function over all edges to it.
fn called(report: &Report) -> BTreeMap<&str, u64> {
    let mut called = BTreeMap::new();
    for edge in &report.edges {
        if let Some(calls) = edge.calls.filter(|&calls| calls > 0) {
            *called.entry(edge.callee.as_str()).or_default() += calls;
        }
    }
    called
}

/// Tables, an index, joins, aggregates, a window, full of rows that follow from their numbers.
pub(crate) fn work(orders: u64) -> anyhow::Result<String> {
    let mut sql = String::from(
        "create table orders (id integer primary key, customer int, cents int, note text);\nbegin;\n",
    );
    for id in 0..orders {
        let (customer, cents) = (id * 7919 % 97, id * 104_729 % 10_007);
        writeln!(
            sql,
            "insert into orders values ({id}, {customer}, {cents}, 'order {id} of {customer}');"
        )?;
    }
    sql += "commit;\ncreate index by_customer on orders (customer, cents);\n\
            select customer, count(*), sum(cents) from orders group by customer having sum(cents) > 100000;\n\
            select a.id, b.id from orders a join orders b on a.cents = b.cents and a.id < b.id order by 1, 2;\n\
            select id, sum(cents) over (partition by customer order by id) from orders where note like '%of 13';\n\
            delete from orders where cents % 3 = 0;\nselect count(*), sum(cents) from orders;\npragma integrity_check;\n";
    Ok(sql)
}
