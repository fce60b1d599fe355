//! What every recording of a real project must show.

use std::path::Path;

use anyhow::{Context, ensure};
use scalpel_tests::report::Report;
use scalpel_tests::residue;
use scalpel_tests::scalpel::Recorded;

/// The default of `--max-loss`, as a share.
const MOST_LOST: f64 = 0.001;

/// Highest share of calls and samples without a name, where symbols exist.
const MOST_UNKNOWN: f64 = 0.05;

/// The report of a recording that saw something; what has no name says so. Its exit code tells whether it is whole.
pub(crate) fn seen(recorded: &Recorded) -> anyhow::Result<Report> {
    let report = recorded
        .report()
        .with_context(|| format!("record said: {}", recorded.ended.stderr))?;
    ensure!(
        report.events > 0,
        "nothing was seen; record said: {}",
        recorded.ended.stderr
    );
    let share = report.lost as f64 / (report.lost + report.events) as f64;
    let expect = if share > MOST_LOST { 5 } else { 0 };
    let code = recorded.ended.code();
    ensure!(
        code == expect,
        "exit code {code} with {:.3} % lost: {}",
        share * 100.0,
        recorded.ended.stderr
    );
    Ok(report)
}

/// Fails unless nearly all of what ran has a name.
pub(crate) fn named(report: &Report) -> anyhow::Result<()> {
    ensure!(
        report.events > 0,
        "nothing was seen; doubts: {:#?}",
        report.doubts
    );
    let unknown = report.unknown_share.unwrap_or(1.0);
    ensure!(
        unknown < MOST_UNKNOWN,
        "{:.1} % without a name: {:#?}",
        unknown * 100.0,
        unnamed(report)
    );
    Ok(())
}

/// Neither breakpoint nor link is left in a process that lives on.
pub(crate) fn unharmed(pid: u32, program: &Path) -> anyhow::Result<()> {
    residue::text_is_clean(pid)?;
    let links = residue::links_on(program)?;
    ensure!(
        links == 0,
        "{links} links are still open on {}",
        program.display()
    );
    Ok(())
}

fn unnamed(report: &Report) -> Vec<&str> {
    let unknown = report
        .functions
        .iter()
        .filter(|function| function.name.contains("+0x"));
    unknown
        .map(|function| function.name.as_str())
        .take(20)
        .collect()
}
