//! `cargo xtask test`: every check and every test, with what they need, and one closing line that counts them.
mod aarch64;
mod bindings;
mod counts;
mod docs;
mod exports;
mod leftovers;
mod node;
pub(crate) mod projects;
pub(crate) mod python;
mod steps;
mod truth;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::cmd;
use counts::Counts;
pub(crate) use exports::drivers_of_pages;

/// What `test` is given.
#[derive(Args)]
pub(crate) struct Options {
    /// Install missing system packages without asking.
    #[arg(long)]
    yes: bool,
    /// Run only these steps (repeatable).
    #[arg(long, value_name = "STEP")]
    only: Vec<Step>,
}

/// One step, in the order in which they run: the cheapest answers first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Step {
    /// rustfmt.
    Fmt,
    /// Rooms, dependencies, lengths, documents.
    Tidy,
    /// clippy over everything, warnings denied.
    Clippy,
    /// Unit tests, property tests and golden files.
    Unit,
    /// What lanes do with shared memory, interpreted by Miri (needs a nightly Rust that has it).
    Miri,
    /// rustdoc, and README against `--help`.
    Docs,
    /// The Python probe, under every interpreter that is found.
    Python,
    /// The Node.js probe, under the installed Node.js and newer ones.
    Node,
    /// Programs whose functions are labelled by hand, matched with their sources.
    Truth,
    /// The scopes of C, C++, Python and Node.js, each in its own test runner.
    Bindings,
    /// Scopes and their bindings, compiled for aarch64 Linux.
    Aarch64,
    /// Exports, opened by the programs that they are for.
    Exports,
    /// Programs with known truth, by themselves (compilers).
    Fixtures,
    /// Programs with known truth, recorded (root and BPF).
    Kernel,
    /// Real projects, recorded (root and BPF).
    Real,
    /// Licences, sources and versions of the dependencies.
    Deny,
    /// The committed BPF object belongs to its source.
    BuildEbpf,
}

/// Runs the steps; a step that fails does not stop the next.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    leftovers::adopt()?;
    let mut total = Counts::default();
    let mut table = Vec::new();
    for &step in Step::value_variants()
        .iter()
        .filter(|step| wanted(options, **step))
    {
        let name = name(step);
        cmd::print(&format!("\n=== {name}"));
        let start = Instant::now();
        let mut counts = steps::run(step, options.yes).unwrap_or_else(|error| {
            cmd::print(&format!("error: {error:#}"));
            Counts::failed()
        });
        counts += leftovers::end(&name);
        table.push(line(&name, counts, start.elapsed()));
        total += counts;
    }
    cmd::print("\n=== summary");
    for line in table {
        cmd::print(&line);
    }
    cmd::print(&total.to_string());
    Ok(if total.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn wanted(options: &Options, step: Step) -> bool {
    options.only.is_empty() || options.only.contains(&step)
}

fn name(step: Step) -> String {
    step.to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

fn line(name: &str, counts: Counts, took: Duration) -> String {
    format!("{name:<12} {:>6.1} s   {counts}", took.as_secs_f64())
}
