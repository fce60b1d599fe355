//! `stat`: counts and times at a glance, without a file.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::report::SortArg;
use super::watch::{FunctionArgs, ProbingArgs, TargetArgs};
use crate::plan::words::Seconds;

/// `stat`.
#[derive(Args, Clone, Debug)]
#[command(
    group = ArgGroup::new("target").required(true).args(["pid", "comm", "command"]),
    override_usage = "scalpel-ebpf stat [OPTIONS] (--pid PID | --comm NAME | -- CMD [ARGS]...)",
    after_help = "\
Calls are counted and timed in the kernel; nothing is streamed, sampled or kept. Percentiles are
at most 1/8 too high. Times are those of calls whose ends can be watched without harm
(`list sites`), of recursive calls the outermost.

Examples:
  sudo scalpel-ebpf stat -p 4711 -f 'parse_*' -d 10
  sudo scalpel-ebpf stat -f malloc --lib 'libc.so*' -- ./server
  sudo scalpel-ebpf stat -p 4711 -d 5 --sort calls --json | jq '.functions[0]'

Ctrl-C, SIGTERM, --duration or the end of the target end it and show the table."
)]
pub struct StatArgs {
    /// What to watch.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Which functions of it.
    #[command(flatten)]
    pub functions: FunctionArgs,
    /// How calls are probed.
    #[command(flatten)]
    pub probing: ProbingArgs,

    /// Stop after this long: seconds, or with ms, s, m, h.
    #[arg(short, long, value_name = "SECS", help_heading = "Output")]
    pub duration: Option<Seconds>,
    /// Order of the rows. Default: wall time with callees, or calls where no time was measured.
    #[arg(long, value_name = "KEY", help_heading = "Output")]
    pub sort: Option<SortArg>,
    /// Show at most N rows; 0 = all, those that never ran too.
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        default_value_t = 40,
        help_heading = "Output"
    )]
    pub limit: usize,
    /// Print JSON: the object of `report --json`, and what the measurement cost.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// File to write to. Default: stdout; with CMD, which has stdout for itself, stderr.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Exit with 5 if more than PCT percent of the events were lost.
    #[arg(long, value_name = "PCT", default_value_t = 0.1, value_parser = crate::plan::words::percent, help_heading = "Output")]
    pub max_loss: f64,
}
