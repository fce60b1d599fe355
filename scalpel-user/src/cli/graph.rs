//! `graph`: one function between its callers and its callees.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::report::SortArg;
use super::watch::TargetArgs;
use crate::plan::words::Seconds;

/// `graph`.
#[derive(Args, Clone, Debug)]
#[command(
    group = ArgGroup::new("target").args(["pid", "comm", "command"]),
    override_usage = "scalpel-ebpf graph [OPTIONS] FUNC [FILE | --pid PID | --comm NAME | -- CMD [ARGS]...]",
    after_help = "\
Of a recording, or of a process as it runs: then stacks are sampled and calls counted as `record` does it, until
--duration, Ctrl-C or the end of the target, and nothing is kept.

Examples:
  scalpel-ebpf graph parse_header                      in scalpel.genome
  scalpel-ebpf graph '/^malloc$/' run.genome --depth 2 --min-time 1ms
  scalpel-ebpf graph malloc --caller 'http_*'          only calls on paths from these
  sudo scalpel-ebpf graph parse_header -p 4711 -d 5"
)]
pub struct GraphArgs {
    /// Function to show: a glob over raw and demangled names, or /REGEX/.
    #[arg(value_name = "FUNC")]
    pub func: String,
    /// Recording to look in.
    #[arg(
        value_name = "FILE",
        default_value = "scalpel.genome",
        conflicts_with = "target"
    )]
    pub file: PathBuf,
    /// What to watch instead.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Only calls that one of these functions led to, straight or through others.
    #[arg(long, value_name = "PATTERN", help_heading = "View")]
    pub caller: Option<String>,
    /// Levels of callers and of callees.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "View")]
    pub depth: Option<u32>,
    /// Sum up what took less than this: seconds, or with us, ms, s, m, h.
    #[arg(long, value_name = "TIME", help_heading = "View")]
    pub min_time: Option<Seconds>,
    /// What weighs. Default: CPU time with callees.
    #[arg(long, value_name = "KEY", help_heading = "View")]
    pub sort: Option<SortArg>,
    /// Show at most N nodes of each tree; 0 = all.
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        default_value_t = 40,
        help_heading = "View"
    )]
    pub limit: usize,
    /// Watch for this long: seconds, or with ms, s, m, h.
    #[arg(
        short,
        long,
        value_name = "SECS",
        requires = "target",
        help_heading = "View"
    )]
    pub duration: Option<Seconds>,
}
