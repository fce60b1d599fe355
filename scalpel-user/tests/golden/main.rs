//! The whole program over a recorded stream: no root, no kernel, no clock. What it prints is compared to the letter.
//!
//! `small.stream` is a recording of a program whose truth is known: `main` calls `mid` 5 times, which calls `leaf` 3
//! times each; `fib(5)` makes 15 calls.

use std::process::{Command, Stdio};

const STREAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/small.stream");

fn run(args: &[&str]) -> String {
    let program = env!("CARGO_BIN_EXE_scalpel-ebpf");
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("the program starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{args:?}: {}: {told}",
        output.status
    );
    String::from_utf8(output.stdout).expect("it prints UTF-8")
}

#[test]
fn the_report_of_a_stream_is_known_to_the_letter() {
    insta::assert_snapshot!("table", run(&["report", STREAM]));
    insta::assert_snapshot!("callees", run(&["report", STREAM, "--tree", "callees"]));
    insta::assert_snapshot!("csv", run(&["report", STREAM, "--csv"]));
}

#[test]
fn the_timeline_of_a_stream_is_known_to_the_letter() {
    insta::assert_snapshot!("timeline", run(&["replay", STREAM]));
}

#[test]
fn the_json_of_a_stream_counts_the_calls_that_were_made() {
    let report: serde_json::Value =
        serde_json::from_str(&run(&["report", STREAM, "--json"])).unwrap();
    let calls = |name: &str| {
        let functions = report["functions"].as_array().unwrap();
        functions
            .iter()
            .find(|function| function["name"] == name)
            .unwrap()["calls"]
            .as_u64()
    };
    for (name, expect) in [("main", 1), ("mid", 5), ("leaf", 15), ("fib", 15)] {
        assert_eq!(calls(name), Some(expect), "{name}");
    }
    assert_eq!(report["lost"], 0);
    assert_eq!(report["schema"], "scalpel.report/1");
    insta::assert_snapshot!("json", serde_json::to_string_pretty(&report).unwrap());
}

#[test]
fn a_genome_built_again_from_the_stream_reports_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let genome = folder.path().join("again.genome");
    let genome = genome.to_str().unwrap();
    run(&["replay", STREAM, "-o", genome]);
    assert_eq!(
        run(&["report", STREAM, "--json"]),
        run(&["report", genome, "--json"])
    );
}
