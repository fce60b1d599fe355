//! `cargo xtask record`: the main job in one command, from a bare checkout.
use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use crate::{apt, cmd};

/// What `record` is given.
#[derive(Args)]
pub(crate) struct Options {
    /// Install a missing compiler without asking (`./x` does it).
    #[arg(long)]
    yes: bool,
    /// Arguments of `scalpel-ebpf record`, for example `--pid 1234`.
    #[arg(allow_hyphen_values = true)]
    arguments: Vec<OsString>,
    /// A command to record from its first instruction.
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// Builds the release binary and runs it; its exit code is ours.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    cmd::build_release("scalpel-user", &[])?;
    let mut command = apt::as_root(
        &cmd::target()
            .join("release/scalpel-ebpf")
            .display()
            .to_string(),
    );
    // The recording lands where the user stands, not in the repository.
    command.current_dir(std::env::current_dir()?);
    let status = command
        .arg("record")
        .args(arguments(options))
        .status()
        .with_context(|| format!("failed to start {command:?}"))?;
    Ok(ExitCode::from(
        status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(1),
    ))
}

fn arguments(options: &Options) -> Vec<OsString> {
    let mut arguments = options.arguments.clone();
    if !options.command.is_empty() {
        arguments.push("--".into());
        arguments.extend(options.command.iter().cloned());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn check(typed: &[&str], passed_on: &[&str]) {
        let line = Line::parse_from([&["record"], typed].concat());
        assert_eq!(arguments(&line.options), passed_on);
    }

    #[test]
    fn what_record_is_given_is_passed_on_as_typed() {
        check(&["--pid", "12", "-F", "99"], &["--pid", "12", "-F", "99"]);
        check(
            &["-f", "*", "--", "ls", "-l"],
            &["-f", "*", "--", "ls", "-l"],
        );
        check(&["--", "ls", "--yes"], &["--", "ls", "--yes"]);
    }

    #[test]
    fn yes_is_ours() {
        check(&["--yes", "--pid", "12"], &["--pid", "12"]);
    }
}
