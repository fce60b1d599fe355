//! `export`: a recording for another program.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::plan::words::{Seconds, percent};

/// `export`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  scalpel-ebpf export run.genome -o run.pb.gz              go tool pprof run.pb.gz
  scalpel-ebpf export run.genome -o run.svg --weight wall
  scalpel-ebpf export new.genome -o diff.svg --base old.genome
  scalpel-ebpf export run.genome -o near.dot -f parse_header --depth 1
  scalpel-ebpf export run.stream -o run.trace.json --from 1.5 --to 2

pprof, folded, svg, callgrind, dot, lcov, cobertura, json, ndjson and csv are of the whole recording, a genome or a
stream. chrome and perfetto show single calls, which only a stream has (record --keep-stream); speedscope shows
either. Without --format, the name of the output decides.")]
pub struct ExportArgs {
    /// Recording: a genome, or a stream kept by `record --keep-stream`.
    #[arg(value_name = "FILE", default_value = "scalpel.genome")]
    pub file: PathBuf,
    /// Write to this file; an existing one is kept as `.old`. Default: stdout.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Format.
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<FormatArg>,
    /// What stacks weigh, or are shown first. Default: the first of these that was measured.
    #[arg(long, value_name = "WHAT")]
    pub weight: Option<WeightArg>,
    /// Colour an SVG by what changed since this recording.
    #[arg(long, value_name = "FILE")]
    pub base: Option<PathBuf>,
    /// The functions whose neighbourhood `dot` draws: a glob, or /REGEX/.
    #[arg(short, long, value_name = "PATTERN")]
    pub func: Option<String>,
    /// How many edges `dot` goes from them.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub depth: u32,
    /// Single calls from this time after the start of the recording.
    #[arg(long, value_name = "TIME")]
    pub from: Option<Seconds>,
    /// Single calls up to this time after the start of the recording.
    #[arg(long, value_name = "TIME")]
    pub to: Option<Seconds>,
    /// Single calls of this thread.
    #[arg(short, long, value_name = "TID", alias = "tid")]
    pub thread: Option<u32>,
    /// Refuse more single calls than this; 0 = never. Default: what the format's readers can open.
    #[arg(long, value_name = "N")]
    pub max_calls: Option<u64>,
    /// More lost events than this make the result partial (exit code 5).
    #[arg(long, value_name = "PCT", default_value = "0.1", value_parser = percent)]
    pub max_loss: f64,
}

/// The formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// pprof, gzipped: `go tool pprof`. *.pb.gz, *.pprof
    Pprof,
    /// Folded stacks. *.folded, *.collapsed
    Folded,
    /// Flame graph. *.svg
    Svg,
    /// speedscope. *.speedscope.json
    Speedscope,
    /// Chrome's JSON trace. *.trace.json
    Chrome,
    /// Perfetto's trace. *.pftrace, *.perfetto-trace
    Perfetto,
    /// callgrind: `callgrind_annotate` and viewers of its files. callgrind.out*, *.callgrind
    Callgrind,
    /// Graphviz. *.dot, *.gv
    Dot,
    /// LCOV: `genhtml`. *.info, *.lcov
    Lcov,
    /// Cobertura's XML. *.xml
    Cobertura,
    /// The object of `report --json`. *.json
    Json,
    /// The same row by row, with the call tree. *.ndjson, *.jsonl
    Ndjson,
    /// The functions. *.csv
    Csv,
}

/// What stacks weigh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WeightArg {
    /// Self CPU time, measured.
    Cpu,
    /// Self wall time.
    Wall,
    /// Self CPU time as estimated from samples.
    Sampled,
    /// Time off the processor.
    OffCpu,
    /// Samples.
    Samples,
    /// Calls.
    Calls,
}
