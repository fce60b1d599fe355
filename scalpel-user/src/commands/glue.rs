//! `completions` and `man`: what packages install.

use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::Outcome;
use crate::output::Output;

pub(super) fn completions(shell: Shell, output: &Output) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "scalpel-ebpf", &mut script);
    output.data(script)?;
    Ok(Outcome::Done)
}

pub(super) fn man(dir: &Path) -> anyhow::Result<Outcome> {
    let command = Cli::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, dir)
        .with_context(|| format!("cannot write manual pages to {}", dir.display()))?;
    Ok(Outcome::Done)
}
