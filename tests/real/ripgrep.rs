//! ripgrep: a Rust program with symbols, from its first instruction to its last.

use std::process::Command;

use anyhow::ensure;
use scalpel_tests::child;
use scalpel_tests::fixture::{target_directory, workspace};
use scalpel_tests::scalpel::Record;
use scalpel_tests::suite::{Outcome, Skip, Suite};
use scalpel_tests::tests;
use tempfile::TempDir;

use crate::verdict;

pub(crate) fn add(suite: &mut Suite) {
    tests!(suite, "ripgrep": a_search_finds_the_same_with_and_without_a_recording);
}

fn a_search_finds_the_same_with_and_without_a_recording() -> Outcome {
    let built = target_directory().join("tools/bin/rg");
    if !built.exists() {
        return Err(Skip::because(
            "there is no ripgrep: `cargo xtask test --only real` builds it",
        ));
    }
    let folder = TempDir::with_prefix("scalpel-ripgrep-")?;
    let program = folder.path().join("rg");
    scalpel_tests::fixture::copy_program(&built, &program)?;
    let program = program.to_string_lossy().into_owned();
    let place = workspace()
        .join("scalpel-common")
        .to_string_lossy()
        .into_owned();
    let line = [
        program.as_str(),
        "--no-config",
        "--sort",
        "path",
        "-n",
        "-i",
        r"\bevents?\b.*[a-z]{4}",
        &place,
    ];
    let mut plain = Command::new(line[0]);
    plain.args(&line[1..]);
    let plain = child::run(plain)?.expect_code(0)?.stdout;
    ensure!(
        plain.lines().count() > 20,
        "the search finds too little to compare: {plain}"
    );

    let record = Record::into(folder.path());
    let ended = child::run(record.command_line(&line)?)?.expect_code(0)?;
    ensure!(
        ended.stdout == plain,
        "it found something else: {}",
        ended.stdout
    );
    let report = scalpel_tests::scalpel::report(record.genome())?;
    verdict::named(&report)?;
    let names: Vec<_> = report
        .functions
        .iter()
        .map(|function| function.name.as_str())
        .collect();
    ensure!(
        names.iter().any(|name| name.contains("::")),
        "no Rust name was demangled: {names:?}"
    );
    Ok(())
}
