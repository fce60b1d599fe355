//! What several commands ask alike: what to watch, which functions of it, and how they are probed.

use std::ffi::OsString;

use clap::{Args, ValueEnum};

use crate::plan::words::Overhead;

/// What to watch.
#[derive(Args, Clone, Debug)]
pub struct TargetArgs {
    /// Watch these running processes.
    #[arg(short, long, value_name = "PID", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..), help_heading = "Target")]
    pub pid: Vec<u32>,
    /// Watch all processes that have this name now (as in `ps -o comm`).
    #[arg(long, value_name = "NAME", help_heading = "Target")]
    pub comm: Option<String>,
    /// Start this command and watch it from its first instruction.
    #[arg(last = true, value_name = "CMD", help_heading = "Target")]
    pub command: Vec<OsString>,
    /// Watch children of the target too: those that are there, and those that are born.
    #[arg(short, long, help_heading = "Target")]
    pub subprocesses: bool,
}

/// Which functions.
#[derive(Args, Clone, Debug)]
pub struct FunctionArgs {
    /// Functions to watch: a glob over raw and demangled names, /REGEX/, or 0xADDRESS. Repeatable.
    #[arg(
        short,
        long = "func",
        value_name = "PATTERN",
        help_heading = "Functions"
    )]
    pub func: Vec<String>,
    /// Functions to leave out; same patterns, wins over --func. Repeatable.
    #[arg(short = 'N', long, value_name = "PATTERN", help_heading = "Functions")]
    pub exclude: Vec<String>,
    /// Look in the mapped files whose name or path matches, instead of the main program; a file that is mapped later is
    /// named by its path. Repeatable.
    #[arg(long, value_name = "GLOB", help_heading = "Functions")]
    pub lib: Vec<String>,
    /// Probe at most N functions.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Functions")]
    pub max_probes: Option<u32>,
}

/// How calls are probed.
#[derive(Args, Clone, Debug)]
pub struct ProbingArgs {
    /// How to see calls end: `default` where proven safe, `ret` also at each `ret` instruction (dear), `none` entries only.
    #[arg(
        long,
        value_name = "HOW",
        default_value = "default",
        help_heading = "Measurement"
    )]
    pub exits: ExitsArg,
    /// How to attach; `auto` takes what this kernel does best.
    #[arg(
        long,
        value_name = "HOW",
        default_value = "auto",
        help_heading = "Measurement"
    )]
    pub attach: AttachArg,
    /// Detach what slows the target by more than PCT percent; `off` = never. Default: 5 without --func, off with it, and
    /// off for probes in language runtimes, whose functions it switches off.
    #[arg(long, value_name = "PCT|off", help_heading = "Measurement")]
    pub max_overhead: Option<Overhead>,
}

/// How to see calls end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ExitsArg {
    /// Return probes where proven safe, else entries only.
    #[default]
    Default,
    /// A probe on every `ret`: exact ends, at several times the cost.
    Ret,
    /// Entries only.
    None,
}

/// How to attach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AttachArg {
    /// What this kernel does best.
    #[default]
    Auto,
    /// `uprobe_multi` links (Linux 6.6 and later).
    Multi,
    /// One perf event per probe (any kernel, slow).
    Perf,
}
