//! `record`: what to watch, how, and where to write it.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};

use super::watch::{FunctionArgs, ProbingArgs, TargetArgs};
use crate::plan::words::{ByteSize, Seconds};

/// `record`.
#[derive(Args, Clone, Debug)]
#[command(
    group = ArgGroup::new("target").args(["pid", "comm", "command", "cgroup"]),
    group = ArgGroup::new("what").required(true).multiple(true).args(["pid", "comm", "command", "cgroup", "all"]),
    override_usage = "scalpel-ebpf record [OPTIONS] (--pid PID | --comm NAME | --cgroup PATH | --all | [--all] -- CMD [ARGS]...)",
    after_help = "\
Examples:
  sudo scalpel-ebpf record -p 4711                    calls counted, stacks sampled, at most 5 % overhead
  sudo scalpel-ebpf record -p 4711 -f 'http_*' -d 10  these functions, all calls, ten seconds
  sudo scalpel-ebpf record -p 4711 -f '/^ssl_.*read/' --lib 'libssl*'
  sudo scalpel-ebpf record -F 0 -f malloc --lib 'libc.so*' -- ./server
  sudo scalpel-ebpf record -m sample --off-cpu -p 4711  where it runs, and where it waits
  sudo scalpel-ebpf record --cgroup system.slice/nginx.service -m sample
  sudo scalpel-ebpf record -p 4711 -R 'parse_*'   what parsers return, and how often
  sudo scalpel-ebpf record -p 4711 --trigger 'handle_request>10ms' -f 'db_*'  slow requests
  sudo scalpel-ebpf record -a -d 10                   stacks of all processes of the host; then report --by process
  sudo scalpel-ebpf record --dry-run -p 4711 -f 'parse*'
  scalpel-ebpf record --no-kernel --src . -- node app.js       what ran laid over what exists: match rate, states

Ctrl-C, SIGTERM, --duration or the end of the target end a recording and write the file."
)]
pub struct RecordArgs {
    /// What to watch.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Watch all processes of this cgroup and of those below it, also those that come into it later: a path, or one under
    /// /sys/fs/cgroup.
    #[arg(long, value_name = "PATH", help_heading = "Target")]
    pub cgroup: Option<PathBuf>,
    /// Sample the stacks of all processes of the host, also of those that come later, but the recorder itself; with -- CMD,
    /// while it runs. No call is probed.
    #[arg(short, long, conflicts_with_all = ["pid", "comm", "cgroup", "subprocesses", "func", "exclude", "lib", "max_probes", "exits", "attach", "max_overhead", "complete", "trigger", "return_values", "off_cpu", "no_kernel"], help_heading = "Target")]
    pub all: bool,
    /// Which functions of it.
    #[command(flatten)]
    pub functions: FunctionArgs,

    /// What is recorded of calls: `trace` every call with its place in time, `count` calls and times added up in the
    /// kernel by call edge, for hot functions and for hours, `sample` none; `auto` counts, but traces with --func,
    /// --complete or --keep-stream.
    #[arg(
        short,
        long,
        value_name = "MODE",
        default_value = "auto",
        help_heading = "Measurement"
    )]
    pub mode: ModeArg,
    /// Sample stacks this often per second and CPU; 0 = no sampling.
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 99, value_parser = clap::value_parser!(u32).range(0..=10_000), help_heading = "Measurement")]
    pub freq: u32,
    /// Sample the kernel's part of the stacks too.
    #[arg(long, help_heading = "Measurement")]
    pub kernel_stacks: bool,
    /// Record where threads wait, too: for a lock, a device, a timer, or for a processor.
    #[arg(long, help_heading = "Measurement")]
    pub off_cpu: bool,
    /// Shortest wait whose stack is recorded: seconds, or with us, ms, s. Of shorter ones the sum is kept by thread.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1ms",
        requires = "off_cpu",
        help_heading = "Measurement"
    )]
    pub off_cpu_min: Seconds,
    /// Keep nothing but calls of a function that last longer than a time, with what they called and waited for and what
    /// called them: `handle_request>10ms` (us, ms, s). The function is a pattern as in --func, and needs none: what is named
    /// there is seen inside the calls. Where threads wait is recorded too. Repeatable.
    #[arg(long, value_name = "TRIGGER", help_heading = "Measurement")]
    pub trigger: Vec<String>,
    /// Keep what calls of a function return: the most frequent values with their counts, and the smallest and the largest.
    /// They may be secrets, so the functions have to be named: a pattern as in --func, which they need not be in, too.
    /// `report --return-values` shows them. Repeatable.
    #[arg(
        short = 'R',
        long,
        value_name = "PATTERN",
        conflicts_with = "no_kernel",
        help_heading = "Measurement"
    )]
    pub return_values: Vec<String>,
    /// How calls are probed.
    #[command(flatten)]
    pub probing: ProbingArgs,
    /// One record per call instead of two: half the data, no order of calls within a call still open.
    #[arg(long, help_heading = "Measurement")]
    pub complete: bool,
    /// Memory for the event rings, all together (K, M, G).
    #[arg(long, value_name = "BYTES", help_heading = "Measurement")]
    pub ring_size: Option<ByteSize>,

    /// Use no kernel tracing, and so no privilege: only what probes in the language runtimes tell.
    #[arg(long, conflicts_with_all = ["func", "exclude", "lib", "max_probes", "mode", "kernel_stacks", "off_cpu", "cgroup", "complete", "attach", "ring_size"], help_heading = "Language runtimes")]
    pub no_kernel: bool,
    /// Probes in language runtimes: `call` times every call, `count` only counts, `off` leaves the runtimes alone.
    #[arg(
        long,
        value_name = "MODE",
        default_value = "call",
        help_heading = "Language runtimes"
    )]
    pub probe_mode: ProbeModeArg,
    /// Shared memory for the probes of all processes, all together (K, M, G).
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "256M",
        help_heading = "Language runtimes"
    )]
    pub probe_memory: ByteSize,
    /// Python: modules to watch, a glob over qualified module names. Repeatable.
    #[arg(long, value_name = "GLOB", help_heading = "Language runtimes")]
    pub py_include: Vec<String>,
    /// Python: modules to leave out; wins over --py-include. Repeatable.
    #[arg(long, value_name = "GLOB", help_heading = "Language runtimes")]
    pub py_exclude: Vec<String>,
    /// Node.js: files to watch, a glob over paths. Default: every file. Repeatable.
    #[arg(long, value_name = "GLOB", help_heading = "Language runtimes")]
    pub node_include: Vec<String>,
    /// Node.js: files to leave out; wins over --node-include. Repeatable.
    #[arg(long, value_name = "GLOB", help_heading = "Language runtimes")]
    pub node_exclude: Vec<String>,
    /// Node.js: count by V8's own coverage instead of counters in the code.
    #[arg(long, value_name = "HOW", help_heading = "Language runtimes")]
    pub node_coverage: Option<NodeCoverageArg>,

    /// Folder of the program's sources: what exists there is kept in the recording, and what each function that ran is
    /// there. Repeatable.
    #[arg(long, value_name = "DIR", help_heading = "Source")]
    pub src: Vec<PathBuf>,
    /// Executable or shared library whose functions are looked at too; with --src, the recorded program's own are.
    /// Repeatable.
    #[arg(long, value_name = "FILE", help_heading = "Source")]
    pub exe: Vec<PathBuf>,

    /// Stop after this long: seconds, or with ms, s, m, h.
    #[arg(short, long, value_name = "SECS", help_heading = "Output")]
    pub duration: Option<Seconds>,
    /// File to write; an existing one is kept as FILE.old; `-` = stdout.
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "scalpel.genome",
        help_heading = "Output"
    )]
    pub output: PathBuf,
    /// Exit with 5 if more than PCT percent of the events were lost.
    #[arg(long, value_name = "PCT", default_value_t = 0.1, value_parser = crate::plan::words::percent, help_heading = "Output")]
    pub max_loss: f64,
    /// Keep the raw stream in FILE, for `replay`; with --trigger it is kept beside the output as *.stream.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub keep_stream: Option<PathBuf>,
    /// Write the summary as JSON to FILE.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub summary: Option<PathBuf>,
    /// Say what would be probed, and how; attach nothing.
    #[arg(long, help_heading = "Output")]
    pub dry_run: bool,
}

/// What is recorded of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// `trace` where functions or a stream are asked for, else `count`.
    #[default]
    Auto,
    /// Every call, streamed.
    Trace,
    /// Calls and their times, added up in the kernel.
    Count,
    /// No calls: sampled stacks.
    Sample,
}

/// What probes in language runtimes do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ProbeModeArg {
    /// Every call, with its time.
    #[default]
    Call,
    /// Every call, and the native functions that the language calls.
    Native,
    /// How often, or whether, each function ran.
    Count,
    /// Nothing.
    Off,
}

/// How Node.js counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NodeCoverageArg {
    /// V8 precise coverage.
    V8,
}
