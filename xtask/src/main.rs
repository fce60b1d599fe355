//! `cargo xtask`: what builds, tests and measures scalpel. One subcommand, one module.
mod apt;
mod bench;
mod build_ebpf;
mod cmd;
mod debs;
mod picture;
mod probes;
mod record;
mod soak;
mod test;
mod tidy;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Builds, tests and measures scalpel.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Measure ours, the peers and the floors in turn; writes docs/benchmarks.md and its data.
    Bench(bench::Options),
    /// Build the BPF object from its source, or check that the committed one belongs to it.
    BuildEbpf(build_ebpf::Options),
    /// Build the in-process probes for every language runtime that is found here.
    BuildProbes(probes::Options),
    /// Draw the README's picture from a real recording.
    Picture(picture::Options),
    /// Build scalpel-ebpf in release mode and run `scalpel-ebpf record` as root.
    Record(record::Options),
    /// Run every fuzz target for some minutes; writes docs/soak.md.
    Soak(soak::Options),
    /// Run every check and every test, installing what they need.
    Test(test::Options),
    /// Check the rules of the house: rooms and directions, dependencies, file lengths, documents.
    Tidy(tidy::Options),
}

fn run(task: Task) -> Result<ExitCode> {
    match task {
        Task::Bench(options) => bench::run(&options),
        Task::BuildEbpf(options) => build_ebpf::run(&options),
        Task::BuildProbes(options) => probes::run(&options),
        Task::Picture(options) => picture::run(&options),
        Task::Record(options) => record::run(&options),
        Task::Soak(options) => soak::run(&options),
        Task::Test(options) => test::run(&options),
        Task::Tidy(options) => tidy::run(&options),
    }
}

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(code) => code,
        Err(error) => {
            cmd::say(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent_and_every_flag_has_help() {
        super::Cli::command().help_expected(true).debug_assert();
    }
}
