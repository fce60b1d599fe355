//! `cargo xtask tidy`: the rules of the house that no compiler checks, by text.
mod dependencies;
mod documents;
mod reach;
mod repo;
mod rooms;
mod shape;
mod tokens;

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::cmd;
use repo::Repo;

/// What `tidy` is given.
#[derive(Args)]
pub(crate) struct Options {}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    /// File from the root of the repository.
    path: String,
    /// Line from 1; 0 = the file as a whole.
    line: usize,
    /// What is wrong, and what would be right.
    message: String,
}

/// Each looks at the whole repository and names what breaks it.
const RULES: [fn(&Repo) -> Vec<Finding>; 5] = [
    rooms::check,
    reach::check,
    dependencies::check,
    shape::check,
    documents::check,
];

/// Prints the findings; a finding is exit code 1.
pub(crate) fn run(_options: &Options) -> Result<ExitCode> {
    Ok(if check()? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Prints the findings and returns whether there are none.
pub(crate) fn check() -> Result<bool> {
    let repo = Repo::read()?;
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&repo)).collect();
    findings.sort();
    for Finding {
        path,
        line,
        message,
    } in &findings
    {
        cmd::print(&format!("{path}:{line}: {message}"));
    }
    cmd::print(&format!(
        "tidy: {} files, {} findings",
        repo.files.len(),
        findings.len()
    ));
    Ok(findings.is_empty())
}

/// Runs one rule over made-up files and compares (path, line) of what it finds.
#[cfg(test)]
fn expect(rule: fn(&Repo) -> Vec<Finding>, files: &[(&str, &str)], found: &[(&str, usize)]) {
    let findings = rule(&Repo::of(files));
    let places: Vec<_> = findings
        .iter()
        .map(|finding| (finding.path.as_str(), finding.line))
        .collect();
    assert_eq!(places, found, "{findings:#?}");
}
