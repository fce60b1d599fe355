//! `scalpel-ebpf`: parse, run, print the error.

use std::process::ExitCode;

use scalpel_user::cli::Cli;
use scalpel_user::output::{Output, last_words};
use scalpel_user::{commands, exit, plan, sandbox};

fn main() -> ExitCode {
    ExitCode::from(run())
}

fn run() -> u8 {
    sandbox::can_be_started();
    let cli = match Cli::typed() {
        Ok(cli) => cli,
        Err(other) => return other.print(),
    };
    let (plan, voice) = match plan::plan(cli) {
        Ok(decided) => decided,
        Err(error) => {
            last_words(&format!(
                "error: {error}\n\nFor more information, try '--help'."
            ));
            return exit::code(&Err(error.into()));
        }
    };
    let output = Output::new(voice.level, voice.color.into());
    let result = commands::run(plan, &output);
    if let Err(error) = &result
        && exit::trouble(error) != exit::Trouble::NobodyReads
    {
        output.error(error);
    }
    exit::code(&result)
}
