//! `stat`: the numbers of a recording, with no file left behind.

use std::process::Command;

use anyhow::{Context as _, ensure};
use rustix::process::Signal;
use scalpel_tests::catalog::CALLS;
use scalpel_tests::child::{self, Running};
use scalpel_tests::report::Report;
use scalpel_tests::scalpel::program;
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::target::Target;
use scalpel_tests::tests;
use scalpel_tests::truth::Truth;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "stat":
        counts_of_a_command_are_exact_and_its_streams_are_its_own,
        the_table_of_a_running_process_tells_counts_times_loss_and_cost,
    );
}

fn counts_of_a_command_are_exact_and_its_streams_are_its_own() -> Outcome {
    let copy = CALLS.copy()?;
    let json = copy.directory().join("stat.json");
    let mut command = Command::new(program()?);
    command
        .args(["stat", "--max-overhead", "off", "--json", "-o"])
        .arg(&json)
        .arg("--")
        .arg(copy.path())
        .current_dir(copy.directory());
    let ended = child::run(command)?.expect_code(3)?;
    let truth = Truth::of(&ended.stdout).context("the program's own output")?;
    let text = std::fs::read_to_string(&json)?;
    let report = Report::parse(&text)?;
    report.agrees_with(&truth)?;
    let value: serde_json::Value = serde_json::from_str(&text)?;
    let share = value
        .pointer("/overhead/target_share_high")
        .and_then(serde_json::Value::as_f64);
    ensure!(share.is_some_and(|share| share > 0.0), "{share:?}");
    let functions = value.get("functions").and_then(|all| all.as_array());
    let named = |f: &&serde_json::Value| f.get("name").is_some_and(|name| name == "leaf");
    let leaf = functions
        .and_then(|all| all.iter().find(named))
        .context("leaf")?;
    let number = |path: &str| leaf.pointer(path).and_then(serde_json::Value::as_u64);
    let calls = number("/calls");
    ensure!(number("/per_call_wall/calls") == calls, "{leaf:#}");
    let ns = |key: &str| {
        number(&format!("/per_call_wall/{key}")).with_context(|| format!("{key}: {leaf:#}"))
    };
    ensure!(
        ns("p50_ns")? <= ns("p90_ns")? && ns("p90_ns")? <= ns("p99_ns")?,
        "{leaf:#}"
    );
    let total = number("/total_wall_ns");
    ensure!(
        Some(ns("avg_ns")?) == total.zip(calls).map(|(total, calls)| total / calls),
        "{leaf:#}"
    );
    let files = std::fs::read_dir(copy.directory())?.count();
    ensure!(
        files == 2,
        "{files} files beside the program and its numbers"
    );
    Ok(())
}

fn the_table_of_a_running_process_tells_counts_times_loss_and_cost() -> Outcome {
    let copy = CALLS.copy()?;
    let mut target = Target::start(copy.path(), &[])?;
    let mut command = Command::new(program()?);
    command
        .args(["stat", "--max-overhead", "off", "-n", "0", "--pid"])
        .arg(target.pid().to_string())
        .current_dir(copy.directory());
    let mut running = Running::start(command)?;
    running.stderr_line(|line| line.contains("Ctrl-C"))?;
    let truth = target.work()?;
    running.signal(Signal::INT)?;
    let ended = running.wait()?.expect_code(0)?;
    target.finish()?.expect_code(3)?;
    let table = ended.stdout;
    for heading in [
        "CALLS",
        "AVG WALL",
        "P99 WALL",
        "lost        nothing",
        "overhead",
    ] {
        ensure!(table.contains(heading), "{heading}: {table}");
    }
    let calls = truth.calls("leaf")?.to_string();
    let row = |line: &str| line.contains(" leaf ") || line.ends_with(" leaf");
    let row = table
        .lines()
        .find(|line| row(line))
        .context(table.clone())?;
    ensure!(
        row.split_whitespace().any(|word| word == calls),
        "{calls}: {row}"
    );
    Ok(())
}
