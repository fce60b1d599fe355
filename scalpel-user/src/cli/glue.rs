//! `completions` and `man`: what packages install.

use std::path::PathBuf;

use clap::Args;
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
