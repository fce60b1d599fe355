//! `list`: what there is to watch.

use clap::{Args, ValueEnum};

/// `list`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  scalpel-ebpf list functions /usr/bin/redis-server 'dict*'
  scalpel-ebpf list sites -p 4711 'http_*'      where each probe would sit, why, and how its end is seen
  scalpel-ebpf list processes redis")]
pub struct ListArgs {
    /// What to list.
    #[arg(value_name = "WHAT")]
    pub what: ListKind,
    /// FILE to look in (not with --pid or `processes`), then a PATTERN: a glob, or /REGEX/.
    #[arg(value_name = "FILE|PATTERN", num_args = 0..=2)]
    pub rest: Vec<String>,
    /// Look in what this process has mapped.
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
    /// With --pid: mapped files whose name or path matches, instead of the main program. Repeatable.
    #[arg(long, value_name = "GLOB", requires = "pid")]
    pub lib: Vec<String>,
    /// `sites`: how to see calls end, as in `record`.
    #[arg(long, value_name = "HOW", default_value = "default")]
    pub exits: super::ExitsArg,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// What to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListKind {
    /// Functions of a file or process.
    Functions,
    /// Where a probe would sit in each function, and how its end would be seen.
    Sites,
    /// Processes that can be watched, with the language runtimes in them.
    Processes,
}
