//! `replay`: which part of a recorded stream.

use std::path::PathBuf;

use clap::Args;

use crate::plan::words::Seconds;

/// `replay`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  sudo scalpel-ebpf record -p 4711 -f 'http_*' --keep-stream run.stream
  scalpel-ebpf replay run.stream --from 1.5 --to 2
  scalpel-ebpf replay run.stream --tid 4712 -f 'http_parse*' -D 5
  scalpel-ebpf replay run.stream -o run.genome    build the genome again, without root")]
pub struct ReplayArgs {
    /// Stream kept by `record --keep-stream`, or the log of a killed recording.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Only this process.
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Only this thread.
    #[arg(short, long, value_name = "TID")]
    pub tid: Option<u32>,
    /// From this time after the start of the recording.
    #[arg(long, value_name = "TIME")]
    pub from: Option<Seconds>,
    /// Up to this time after the start of the recording.
    #[arg(long, value_name = "TIME")]
    pub to: Option<Seconds>,
    /// Only calls of functions that match, and what they call: a glob, or /REGEX/.
    #[arg(short, long, value_name = "PATTERN")]
    pub func: Option<String>,
    /// Only the outermost N levels.
    #[arg(short = 'D', long, value_name = "N")]
    pub depth: Option<u32>,
    /// Show at most N calls; 0 = all.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 0)]
    pub limit: usize,
    /// Write a genome instead of the timeline; `-` = stdout.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["pid", "tid", "from", "to", "func", "depth", "limit"])]
    pub output: Option<PathBuf>,
}
