//! `genome build`: what exists.

use std::path::PathBuf;

use clap::Args;

/// `genome build`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  scalpel-ebpf genome build --src ~/shop -o shop.genome   again: only what changed is read
  scalpel-ebpf genome build --exe ./server -o server.genome

Files that .gitignore excludes, and folders named node_modules, are not looked at.")]
pub struct BuildArgs {
    /// Folder of sources; may be given several times.
    #[arg(long, value_name = "DIR", required_unless_present = "exe")]
    pub src: Vec<PathBuf>,
    /// Executable or shared library; may be given several times.
    #[arg(long, value_name = "FILE")]
    pub exe: Vec<PathBuf>,
    /// File to write. What it already knows of unchanged files is used again.
    #[arg(short, long, value_name = "FILE", default_value = "static.genome")]
    pub output: PathBuf,
}
