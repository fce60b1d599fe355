//! `cargo xtask build-probes`: the in-process probes of the languages, for every runtime that this machine has. They come
//! to lie in `target/probes`, where a `scalpel-ebpf` of `target/release` looks for them.
pub(crate) mod environment;
pub(crate) mod interpreters;
pub(crate) mod newest;
pub(crate) mod node;
pub(crate) mod python;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::cmd;

/// What `build-probes` is given.
#[derive(Args)]
pub(crate) struct Options {
    /// Install missing system packages without asking.
    #[arg(long)]
    yes: bool,
    /// Build only these languages (repeatable).
    #[arg(long, value_name = "LANGUAGE")]
    only: Vec<Language>,
}

/// A language with a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Language {
    /// `CPython`, one extension a version.
    Python,
    /// `Node.js`, one addon for all versions.
    Node,
}

/// Builds what is asked for.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    for &language in Language::value_variants() {
        if options.only.is_empty() || options.only.contains(&language) {
            match language {
                Language::Python => drop(python::build(options.yes)?),
                Language::Node => drop(node::build()?),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Where the probes come to lie.
pub(crate) fn home() -> PathBuf {
    cmd::target().join("probes")
}
