//! `genome show`, `merge`, `match`, `diff`, `check`, `query`, and `cover`: what ran, laid over what exists.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What ran and what exists.
#[derive(Args, Clone, Debug)]
pub struct OverlayArgs {
    /// Genomes: recordings, and what exists (from `genome build`). Several are merged first.
    #[arg(value_name = "FILE", default_value = "scalpel.genome")]
    pub files: Vec<PathBuf>,
    /// Print JSON: everything, in a stable shape.
    #[arg(long)]
    pub json: bool,
    /// Show at most N rows of each list; 0 = all.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub limit: usize,
}

/// `genome show`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  scalpel-ebpf genome show run.genome               of a recording made with --src: match rates, states, calls
  scalpel-ebpf genome show run.genome shop.genome   the same of one made without

What was not matched when it was recorded is matched now: through source maps only where bundles and maps still are.")]
pub struct ShowArgs {
    /// What to lay over what.
    #[command(flatten)]
    pub overlay: OverlayArgs,
}

/// `cover`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  scalpel-ebpf cover run.genome shop.genome               functions that never ran, by file
  scalpel-ebpf cover run.genome shop.genome -o cover.html the same as a page
  scalpel-ebpf cover run.genome shop.genome -o cover.info for genhtml

What a probe could not see is listed apart, and is never said not to have run: LCOV and Cobertura, which have no word
for it, leave it out and say how much that is. Without --format, the name of the output decides.")]
pub struct CoverArgs {
    /// What to lay over what.
    #[command(flatten)]
    pub overlay: OverlayArgs,
    /// Write to this file; an existing one is kept as `.old`. Default: stdout.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Format.
    #[arg(long, value_name = "FORMAT", conflicts_with = "json")]
    pub format: Option<CoverFormatArg>,
}

/// How `cover` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CoverFormatArg {
    /// A table. *.txt
    Text,
    /// Everything. *.json
    Json,
    /// A page. *.html
    Html,
    /// LCOV: `genhtml`. *.info, *.lcov
    Lcov,
    /// Cobertura's XML. *.xml
    Cobertura,
}

/// `genome check`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  scalpel-ebpf genome check run.genome shop.genome --min-match 90 --min-coverage 60

Exit code 1 if one of the limits is not met.")]
pub struct CheckArgs {
    /// What to lay over what.
    #[command(flatten)]
    pub overlay: OverlayArgs,
    /// Least match rate of the user-written functions that ran, in per cent.
    #[arg(long, value_parser = crate::plan::words::percent, value_name = "PCT")]
    pub min_match: Option<f64>,
    /// Least share of the functions that could be seen and that ran, in per cent.
    #[arg(long, value_parser = crate::plan::words::percent, value_name = "PCT")]
    pub min_coverage: Option<f64>,
    /// Largest share of what ran that has no name, in per cent.
    #[arg(long, value_parser = crate::plan::words::percent, value_name = "PCT")]
    pub max_unknown: Option<f64>,
}

/// `genome merge`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  scalpel-ebpf genome merge monday.genome tuesday.genome -o week.genome
  scalpel-ebpf genome merge run.genome shop.genome -o both.genome   what ran, and what exists

Each recording is kept as it is, once, whatever is merged how often: every report then adds up.")]
pub struct MergeArgs {
    /// Genomes.
    #[arg(value_name = "FILE", required = true, num_args = 1..)]
    pub files: Vec<PathBuf>,
    /// File to write.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// `genome match`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  scalpel-ebpf genome match run.genome shop.genome -o both.genome

What was found once stays found. Source maps are read where the texts were loaded from: match on the machine that ran, or
use `record --src DIR`, which matches as it ends.")]
pub struct MatchArgs {
    /// Genomes: recordings, and what exists (from `genome build`).
    #[arg(value_name = "FILE", required = true, num_args = 1..)]
    pub files: Vec<PathBuf>,
    /// File to write.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// `genome diff`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  scalpel-ebpf genome diff main.genome branch.genome
  scalpel-ebpf genome diff main.genome branch.genome --threshold 5 --json

Numbers are per run: merge several runs of each side first, and noise is known better.
Exit code 1 if a function got worse by more than the threshold and by more than the noise.")]
pub struct DiffArgs {
    /// Recording to compare with.
    #[arg(value_name = "BASE")]
    pub base: PathBuf,
    /// Recording to judge.
    #[arg(value_name = "NEW")]
    pub new: PathBuf,
    /// Growth of a number that counts, in per cent.
    #[arg(long, value_parser = crate::plan::words::percent, value_name = "PCT", default_value_t = 10.0)]
    pub threshold: f64,
    /// Growth that counts, in per cent of all own time of the base.
    #[arg(long, value_parser = crate::plan::words::percent, value_name = "PCT", default_value_t = 0.5)]
    pub min_share: f64,
    /// Print JSON: everything, in a stable shape.
    #[arg(long)]
    pub json: bool,
    /// Show at most N functions; 0 = all.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 40)]
    pub limit: usize,
}

/// `genome query`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  scalpel-ebpf genome query run.genome 'SELECT * FROM hot_functions LIMIT 5'
  scalpel-ebpf genome query run.genome 'SELECT name FROM sqlite_schema' --json

Read-only. FORMAT.md describes the tables.")]
pub struct QueryArgs {
    /// Genome.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// One SELECT.
    #[arg(value_name = "SQL")]
    pub sql: String,
    /// Print JSON: a list of objects. Default: CSV.
    #[arg(long)]
    pub json: bool,
}
