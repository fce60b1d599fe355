//! `report`: which view of a recording.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::plan::words::Seconds;

/// `report`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  scalpel-ebpf report                        the costliest functions of scalpel.genome
  scalpel-ebpf report run.genome --tree callers --func parse_header
  scalpel-ebpf report run.genome --by module --sort total
  scalpel-ebpf report run.genome --by process       of a host, or of a program and its children
  scalpel-ebpf report run.genome --process nginx    what all processes of this name did
  scalpel-ebpf report run.genome --json | jq '.functions[0]'
  scalpel-ebpf report run.genome --html run.html    for a browser: call tree, timeline, losses
  scalpel-ebpf report run.stream --html run.html --from 1.5 --to 2

A recording whose recorder was killed is recovered by itself.")]
pub struct ReportArgs {
    /// Recording to show.
    #[arg(value_name = "FILE", default_value = "scalpel.genome")]
    pub file: PathBuf,
    /// Order of the rows. Default: self CPU time, or calls where no time was measured.
    #[arg(long, value_name = "KEY")]
    pub sort: Option<SortArg>,
    /// What a row stands for.
    #[arg(long, value_name = "WHAT", default_value = "function")]
    pub by: ByArg,
    /// Show a call tree: who calls each function, or what each calls.
    #[arg(long, value_name = "WAY")]
    pub tree: Option<TreeArg>,
    /// Show what single calls took instead of sums: average, half and 99 of 100 of them at most, in wall and CPU time.
    #[arg(long, conflicts_with_all = ["tree", "by", "json", "csv"])]
    pub per_call: bool,
    /// Show what functions returned, too, where it was recorded (record --return-values); with --func it is shown by itself.
    #[arg(short = 'R', long, conflicts_with_all = ["tree", "by", "json", "csv"])]
    pub return_values: bool,
    /// Only functions that match: a glob, or /REGEX/.
    #[arg(short, long, value_name = "PATTERN")]
    pub func: Option<String>,
    /// Only what these processes did: the one with this number, or all of this name.
    #[arg(long, value_name = "PID|NAME")]
    pub process: Option<String>,
    /// Show at most N rows; 0 = all.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 40)]
    pub limit: usize,
    /// Print JSON: everything, in a stable shape.
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print CSV.
    #[arg(long)]
    pub csv: bool,
    /// Write one page with everything, to open in a browser without a network; `-` = stdout. Of a kept stream it shows
    /// the calls one by one, too.
    #[arg(long, value_name = "OUT", conflicts_with_all = ["json", "csv", "sort", "by", "tree", "per_call", "return_values", "func", "process", "limit"])]
    pub html: Option<PathBuf>,
    /// Single calls in the page from this time after the start of the recording.
    #[arg(long, value_name = "TIME", requires = "html")]
    pub from: Option<Seconds>,
    /// Single calls in the page up to this time after the start of the recording.
    #[arg(long, value_name = "TIME", requires = "html")]
    pub to: Option<Seconds>,
}

/// Order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SortArg {
    /// Self CPU time.
    #[value(name = "self", alias = "self-cpu")]
    SelfCpu,
    /// CPU time with callees.
    #[value(name = "total", alias = "total-cpu")]
    TotalCpu,
    /// Self wall time.
    SelfWall,
    /// Wall time with callees.
    #[value(alias = "wall")]
    TotalWall,
    /// Time off the processor (record --off-cpu).
    #[value(name = "self-off-cpu")]
    SelfOffCpu,
    /// Time off the processor with callees.
    #[value(name = "off-cpu", alias = "total-off-cpu")]
    TotalOffCpu,
    /// Number of calls.
    Calls,
    /// Number of samples.
    Samples,
    /// Name.
    Name,
}

/// What a row stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ByArg {
    /// A function.
    #[default]
    Function,
    /// A file: program or library.
    Module,
    /// A thread.
    Thread,
    /// A process: the threads of one pid.
    Process,
}

/// Which way a tree grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TreeArg {
    /// From a function up to who called it.
    Callers,
    /// From the threads' roots down to what was called.
    Callees,
}
