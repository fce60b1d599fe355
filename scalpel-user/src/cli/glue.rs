//! `completions` and `man`: what packages install.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// `completions`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Example:
  scalpel-ebpf completions bash > /etc/bash_completion.d/scalpel-ebpf")]
pub struct CompletionsArgs {
    /// Shell to complete for.
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// `man`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Example:
  scalpel-ebpf man /usr/local/share/man/man1")]
pub struct ManArgs {
    /// Folder to write to; it must exist.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// A completion script.
pub fn completion_script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(
        shell,
        &mut super::Cli::command(),
        "scalpel-ebpf",
        &mut script,
    );
    script
}

/// Writes a manual page for the program and one for each command.
pub fn write_manual(dir: &Path) -> io::Result<()> {
    clap_mangen::generate_to(super::Cli::command().disable_help_subcommand(true), dir)
}
