//! `scalpel-ebpf`: parse, run, print the error.

use std::process::ExitCode;

use clap::Parser;

use scalpel_user::cli::Cli;
use scalpel_user::output::{Output, last_words};
use scalpel_user::{commands, exit, plan};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return said_by_clap(&error),
    };
    let (plan, voice) = match plan::plan(cli) {
        Ok(decided) => decided,
        Err(error) => return refused(error.into()),
    };
    let output = Output::new(voice.level, voice.color.into());
    let result = commands::run(plan, &output);
    let code = exit::code(&result);
    if let Err(error) = &result
        && exit::trouble(error) != exit::Trouble::NobodyReads
    {
        output.error(error);
    }
    ExitCode::from(code)
}

/// `--help` and `--version` go to stdout with code 0, wrong usage to stderr with code 2.
fn said_by_clap(error: &clap::Error) -> ExitCode {
    // Whoever closed the stream does not want to read it.
    drop(error.print());
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

fn refused(error: anyhow::Error) -> ExitCode {
    last_words(&format!(
        "error: {error:#}\n\nFor more information, try '--help'."
    ));
    ExitCode::from(exit::code(&Err(error)))
}
