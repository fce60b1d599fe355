//! `completions` and `man`: what packages install.

use std::path::Path;

use anyhow::Context;
use clap_complete::Shell;

use crate::cli::{completion_script, write_manual};
use crate::exit::Outcome;
use crate::output::Output;

pub(super) fn completions(shell: Shell, output: &Output) -> anyhow::Result<Outcome> {
    output.data(completion_script(shell))?;
    Ok(Outcome::Done)
}

pub(super) fn man(dir: &Path) -> anyhow::Result<Outcome> {
    write_manual(dir).with_context(|| format!("cannot write manual pages to {}", dir.display()))?;
    Ok(Outcome::Done)
}
