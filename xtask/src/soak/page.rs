//! docs/soak.md: the last run as a table. What was found and fixed is written by people and kept.
use std::fs;

use anyhow::{Context, Result};

use super::stats::Stats;
use crate::cmd;

const PAGE: &str = "docs/soak.md";

/// From here on the page is kept as it is.
const KEPT: &str = "## Found and fixed";

/// The runs as a table.
pub(super) fn table(rows: &[Stats]) -> String {
    let mut table = String::from(
        "| target | executions | blocks | features | inputs kept | most memory (MiB) | finding |\n\
         |---|---:|---:|---:|---:|---:|---|\n",
    );
    for row in rows {
        table += &format!(
            "| {} | {} | {} | {} | {} | {} | {} |\n",
            row.target,
            row.executions,
            row.blocks,
            row.features,
            row.corpus,
            row.memory_mib,
            row.finding.as_deref().unwrap_or("none")
        );
    }
    table
}

/// Writes the page.
pub(super) fn write(minutes: u32, sanitizer: &str, rows: &[Stats]) -> Result<()> {
    let path = cmd::root().join(PAGE);
    let old = fs::read_to_string(&path).unwrap_or_default();
    let head = head(minutes, sanitizer)?;
    let page = format!("{head}\n{}\n{}", table(rows), kept(&old));
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))
}

fn head(minutes: u32, sanitizer: &str) -> Result<String> {
    let date = cmd::output(cmd::command("date").args(["-u", "+%F"]))?;
    let kernel = cmd::output(cmd::command("uname").args(["-r", "-m"]))?;
    let cpus = std::thread::available_parallelism()?;
    let rustc = cmd::output(cmd::command("rustup").args(["run", "nightly", "rustc", "--version"]))?;
    Ok(format!(
        "# Soak\n\nWhat comes from outside (files, rings, recorded streams) never panics, never runs for ever and never \
takes memory without bound. `cargo xtask soak --minutes {minutes}` gives each fuzz target that long, from small sound \
inputs that it makes itself. Debug assertions and overflow checks are on; an input that takes more than {} s or {} MiB \
is a finding.\n\n{}, Linux {}, {cpus} processors, {}, sanitizer: {sanitizer}. One process a target.\n",
        super::LONGEST,
        super::MOST_MIB,
        date.trim(),
        kernel.trim(),
        rustc.trim(),
    ))
}

fn kept(old: &str) -> &str {
    old.find(KEPT).and_then(|at| old.get(at..)).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::{Stats, kept, table};

    #[test]
    fn what_people_wrote_is_kept() {
        assert_eq!(
            kept("# Soak\n| a |\n\n## Found and fixed\n\nA loop.\n"),
            "## Found and fixed\n\nA loop.\n"
        );
        assert_eq!(kept(""), "");
    }

    #[test]
    fn a_run_without_a_finding_says_so() {
        assert!(table(&[Stats::default()]).ends_with("| none |\n"));
    }
}
