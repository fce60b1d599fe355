//! `top`: the costliest functions of a process while it runs.

use clap::{ArgGroup, Args};

use super::report::SortArg;
use super::watch::{FunctionArgs, ProbingArgs, TargetArgs};
use crate::plan::words::Seconds;

/// `top`.
#[derive(Args, Clone, Debug)]
#[command(
    group = ArgGroup::new("target").required(true).args(["pid", "comm", "command"]),
    override_usage = "scalpel-ebpf top [OPTIONS] (--pid PID | --comm NAME | -- CMD [ARGS]...)",
    after_help = "\
Calls are counted and stacks sampled, as `record` does it; nothing is kept.

Keys:
  s t w c n    order by self CPU, total CPU, total wall, calls, name
  /            search; Enter keeps what was found, Esc shows all again
  a            since the start, or in the last interval
  up, down, PageUp, PageDown, Home
  q            end

Examples:
  sudo scalpel-ebpf top -p 4711
  sudo scalpel-ebpf top -p 4711 --once --json | jq '.functions[0]'"
)]
pub struct TopArgs {
    /// What to watch.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Which functions of it.
    #[command(flatten)]
    pub functions: FunctionArgs,
    /// How calls are probed.
    #[command(flatten)]
    pub probing: ProbingArgs,
    /// Sample stacks this often per second and CPU; 0 = no sampling.
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 99, value_parser = clap::value_parser!(u32).range(0..=10_000), help_heading = "Measurement")]
    pub freq: u32,

    /// Time between two looks: seconds, or with us, ms, s, m, h.
    #[arg(
        short,
        long,
        value_name = "SECS",
        default_value = "1",
        help_heading = "View"
    )]
    pub interval: Seconds,
    /// Stop after this long. Default: with --once one interval.
    #[arg(short, long, value_name = "SECS", help_heading = "View")]
    pub duration: Option<Seconds>,
    /// Order of the rows. Default: self CPU time.
    #[arg(long, value_name = "KEY", help_heading = "View")]
    pub sort: Option<SortArg>,
    /// Watch for a while, print the functions and end: needs no terminal.
    #[arg(long, help_heading = "View")]
    pub once: bool,
    /// With --once: print JSON, the object of `report --json`, and what the measurement cost.
    #[arg(long, requires = "once", help_heading = "View")]
    pub json: bool,
    /// With --once: show at most N rows; 0 = all, those that never ran too.
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        default_value_t = 40,
        requires = "once",
        help_heading = "View"
    )]
    pub limit: usize,
}
