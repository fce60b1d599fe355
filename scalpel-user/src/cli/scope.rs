//! `scope`: the exact instructions of one region, live or recorded elsewhere.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::plan::words::Seconds;

/// `scope`.
#[derive(Args, Clone, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    arg_required_else_help = true,
    override_usage = "scalpel-ebpf scope [OPTIONS] --func NAME (--pid PID | -- CMD [ARGS]...)\n       scalpel-ebpf scope decode [OPTIONS] FILE|DIR",
    after_help = "\
Examples:
  sudo scalpel-ebpf scope -p 4711 -f dictFind              the next call: its own instructions
  sudo scalpel-ebpf scope -p 4711 -f parse -n 10 --follow-calls all --json > calls.json
  sudo scalpel-ebpf scope -p 4711 -f deflate --lib 'libz*' -o deflate.s
  sudo scalpel-ebpf scope -f main -- ./server

The process is not restarted, changed or interrupted; its threads wait while a call of theirs is stepped.
`complete` means: the interrupted flow of that thread, signal handlers excluded."
)]
pub struct ScopeArgs {
    /// What is done with a trace that is there already.
    #[command(subcommand)]
    pub command: Option<ScopeCommand>,
    /// The next calls in a running process.
    #[command(flatten)]
    pub live: LiveArgs,
}

/// `scope` of a running process or a command.
#[derive(Args, Clone, Debug)]
pub struct LiveArgs {
    /// Watch this running process.
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "cmd", help_heading = "Target")]
    pub pid: Option<u32>,
    /// Start this command and watch it from its first instruction.
    #[arg(last = true, value_name = "CMD", help_heading = "Target")]
    pub cmd: Vec<OsString>,
    /// Function: its name, a glob over raw and demangled names, /REGEX/, or 0xADDRESS.
    #[arg(short, long, value_name = "NAME", help_heading = "Function")]
    pub func: Option<String>,
    /// Look in the mapped files whose name or path matches, instead of the main program. Repeatable.
    #[arg(long, value_name = "GLOB", help_heading = "Function")]
    pub lib: Vec<String>,

    /// Calls to record.
    #[arg(short = 'n', long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..), help_heading = "Recording")]
    pub calls: u64,
    /// How to see the instructions; what is asked for by name is used, or skipped with the reason.
    #[arg(
        long,
        value_name = "HOW",
        default_value = "auto",
        help_heading = "Recording"
    )]
    pub tier: TierArg,
    /// Whether callees are recorded too, or run at full speed.
    #[arg(
        long,
        value_name = "WHICH",
        default_value = "none",
        help_heading = "Recording"
    )]
    pub follow_calls: FollowArg,
    /// Longest time that one call is stepped; behind it, it runs on natively and its trace is truncated.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "50ms",
        help_heading = "Recording"
    )]
    pub budget: Seconds,
    /// End after this time even if fewer calls came.
    #[arg(short, long, value_name = "TIME", help_heading = "Recording")]
    pub duration: Option<Seconds>,

    /// Show each distinct instruction with how often it ran, in place of the folded call tree.
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    pub full: bool,
    /// Dialect of the assembly.
    #[arg(
        long,
        value_name = "WHICH",
        default_value = "intel",
        help_heading = "Output"
    )]
    pub syntax: SyntaxArg,
    /// Print JSON: every step of every call in order.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Write the full assembly here, beside what is printed.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Write a Chrome trace here: callers and callees, an instruction as long as a microsecond.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub chrome: Option<PathBuf>,
}

/// How to see the instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TierArg {
    /// The most faithful way that is there.
    Auto,
    /// Intel Processor Trace.
    Pt,
    /// AMD or Intel branch records.
    Lbr,
    /// Single steps.
    Step,
}

/// Which callees are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FollowArg {
    /// None: the function's own instructions.
    None,
    /// Those in the function's own file.
    Known,
    /// All.
    All,
}

/// What is done with a trace that is there already.
#[derive(Clone, Debug, Subcommand)]
pub enum ScopeCommand {
    /// Decode a hardware trace that standard tools recorded, here or on another machine.
    Decode(DecodeArgs),
}

/// `scope decode`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  scalpel-ebpf scope decode perf.data --symfs ./sysroot
  scalpel-ebpf scope decode trace-bundle/ --json > trace.json
  scalpel-ebpf scope decode pt.bin --image ./server@0x400000 --image ./jit.bin@0x7f0000000000

Reads perf.data with Intel PT or with branch stacks, LLDB trace bundles (the folder or its trace.json), and raw Intel PT.")]
pub struct DecodeArgs {
    /// The trace: a perf.data, a bundle's folder, or raw Intel PT.
    #[arg(value_name = "FILE|DIR")]
    pub trace: PathBuf,
    /// Code for a raw trace: an ELF file or plain bytes, and the address where it begins; may be repeated.
    #[arg(long, value_name = "FILE@ADDR")]
    pub image: Vec<String>,
    /// Folder to look for the programs and libraries in, by path and by build-id; may be repeated.
    #[arg(long, value_name = "DIR")]
    pub symfs: Vec<PathBuf>,
    /// Only this thread.
    #[arg(long, value_name = "TID")]
    pub tid: Option<u32>,
    /// Processor that recorded a raw trace, for its errata: FAMILY/MODEL/STEPPING.
    #[arg(long, value_name = "F/M/S")]
    pub processor: Option<String>,
    /// Show each distinct instruction with how often it ran, in place of the folded call tree.
    #[arg(long, conflicts_with = "json")]
    pub full: bool,
    /// Dialect of the assembly.
    #[arg(long, value_name = "WHICH", default_value = "intel")]
    pub syntax: SyntaxArg,
    /// Print JSON: every step in order.
    #[arg(long)]
    pub json: bool,
}

/// Dialect of the assembly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SyntaxArg {
    /// `mov rax, [rdi]`
    #[default]
    Intel,
    /// `mov (%rdi), %rax`
    Att,
}
