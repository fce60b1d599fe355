//! `scope decode` as it is typed: what it prints, and how it ends.
#![expect(
    clippy::indexing_slicing,
    reason = "JSON answers null for what is not there"
)]
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

use anyhow::{Context, ensure};
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::tests;
use serde_json::Value;

fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures")
}

fn decode(words: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scalpel-ebpf"));
    command
        .args(["scope", "decode"])
        .args(words)
        .current_dir(recordings());
    Ok(command.output()?)
}

fn json(output: &Output) -> anyhow::Result<Value> {
    serde_json::from_slice(&output.stdout).context("stdout is no JSON")
}

fn a_whole_trace_is_complete_and_ends_with_0() -> Outcome {
    let image = ["--image", "pt/dynamorio-simple/hello@0x400000", "--json"];
    let output = decode(&[&["pt/dynamorio-simple/pt.bin"], &image[..]].concat())?;
    ensure!(output.status.code() == Some(0), "{output:?}");
    let whole = json(&output)?;
    ensure!(
        whole["status"] == "complete" && whole["instructions"] == 8,
        "{whole}"
    );
    ensure!(
        whole["tier"] == "intel-pt" && whole["skip_reason"].is_null(),
        "{whole}"
    );
    let rows = whole["trace"].as_array().context("no rows")?;
    ensure!(rows.len() == 8 && rows[0]["addr"] == "0x401000", "{whole}");
    ensure!(
        rows[0]["bytes"].is_string() && rows[0]["count"] == 1,
        "{whole}"
    );
    Ok(())
}

fn a_part_of_a_trace_ends_with_5_and_says_why() -> Outcome {
    let output = decode(&["pt/lldb-multi-file/multi-file-no-ld.json", "--json"])?;
    ensure!(output.status.code() == Some(5), "{output:?}");
    let whole = json(&output)?;
    ensure!(
        whole["status"] == "truncated" && whole["instructions"] == 45,
        "{whole}"
    );
    let reasons = whole["reasons"].to_string();
    ensure!(reasons.contains("code missing"), "{reasons}");
    Ok(())
}

fn names_and_lines_are_those_of_the_program() -> Outcome {
    let output = decode(&["pt/lldb-single", "--full", "--syntax", "att"])?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        text.contains("main:\n") && text.contains("main.cpp:4\n"),
        "{text}"
    );
    ensure!(text.contains("cmpl $3, -8(%rbp) x5"), "{text}");
    Ok(())
}

fn one_thread_can_be_asked_for() -> Outcome {
    let output = decode(&["pt/lldb-single", "--tid", "1", "--json"])?;
    ensure!(json(&output)?["instructions"] == 0, "{output:?}");
    Ok(())
}

fn garbage_is_refused_with_what_to_give() -> Outcome {
    for (words, told) in [
        (&["README.md", "--json"][..], "give a perf.data"),
        (&["/nowhere/x"], "No such file"),
        (
            &["pt/dynamorio-simple/pt.bin", "--json"],
            "--image FILE@ADDR",
        ),
        (&["perf-data", "--json"], "give a perf.data"),
        (
            &["pt/dynamorio-simple/pt.bin", "--image", "a@b"],
            "it is FILE@ADDR",
        ),
        (&["x", "--processor", "6"], "FAMILY/MODEL/STEPPING"),
    ] {
        let output = decode(words)?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(2), "{words:?} {output:?}");
        ensure!(
            error.contains(told) && output.stdout.is_empty(),
            "{words:?} {output:?}"
        );
    }
    Ok(())
}

fn a_survey_says_that_it_is_one() -> Outcome {
    let output = decode(&["perf-data/perf.data.branch_stack_spec"])?;
    ensure!(output.status.code() == Some(5), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        text.contains("(lbr), truncated") && text.contains("sampled"),
        "{text}"
    );
    Ok(())
}

fn main() -> ExitCode {
    let missing = match scalpel_scope::pt::available() {
        Err(why) => Some(why),
        Ok(()) => {
            (!recordings().is_dir()).then(|| "the recordings are not beside the repository".into())
        }
    };
    let mut suite = Suite::new("fixtures", missing);
    tests!(
        suite,
        "decode": a_whole_trace_is_complete_and_ends_with_0,
        a_part_of_a_trace_ends_with_5_and_says_why,
        names_and_lines_are_those_of_the_program,
        one_thread_can_be_asked_for,
        garbage_is_refused_with_what_to_give,
        a_survey_says_that_it_is_one,
    );
    suite.run()
}
