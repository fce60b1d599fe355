//! `record`, decided: the complete order that a recording carries out.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::target::{Target, command, target};
use super::trigger::{self, Trigger};
use super::words::{Overhead, Pattern};
use super::{PlanError, globs, returns};
use crate::cli::{
    AttachArg, ExitsArg, FunctionArgs, ModeArg, NodeCoverageArg, ProbeModeArg, ProbingArgs,
    RecordArgs,
};
use serde::{Deserialize, Serialize};

/// Budget for the target's slow-down when no function was named, in percent of its CPU time.
pub(super) const DEFAULT_OVERHEAD_PERCENT: f64 = 5.0;

/// Smallest memory for probes: less has no room for names and a few lanes.
pub(super) const SMALLEST_PROBE_MEMORY: u64 = 4 << 20;

/// Smallest ring memory that is worth a recording: a page of events for each ring.
const SMALLEST_RINGS: u64 = 64 << 10;

/// Everything a recording needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordPlan {
    /// What to watch.
    pub target: Target,
    /// Children of the target are watched too.
    pub subprocesses: bool,
    /// Which functions.
    pub choice: Choice,
    /// How.
    pub measurement: Measurement,
    /// Nothing but the slow calls of these is kept; empty = everything is.
    pub triggers: Vec<Trigger>,
    /// What calls of these return is kept.
    pub returns: Vec<Pattern>,
    /// What the probes in language runtimes do.
    pub runtimes: Runtimes,
    /// Ends the recording, if it has not ended before.
    pub duration: Option<Duration>,
    /// Folders of sources to lay the recording over.
    pub sources: Vec<PathBuf>,
    /// Executables to lay it over.
    pub executables: Vec<PathBuf>,
    /// What is written where.
    pub outputs: Outputs,
    /// Say what would be probed, attach nothing.
    pub dry_run: bool,
}

/// Which functions to probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Functions that match one of these; empty = all functions of the main program.
    pub include: Vec<Pattern>,
    /// Never these.
    pub exclude: Vec<Pattern>,
    /// Globs over mapped files; empty = the main program.
    pub libs: Vec<String>,
    /// Most functions to probe.
    pub max_probes: Option<usize>,
    /// Functions that match one of these too: of a language runtime they may be, and be seen to run later.
    pub awaited: Vec<Pattern>,
}

impl Choice {
    /// Whether functions were named: then all of a program are not meant.
    pub const fn names_functions(&self) -> bool {
        !self.include.is_empty() || !self.awaited.is_empty()
    }
}

/// How to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// What is recorded of calls.
    pub mode: Mode,
    /// Samples per second and CPU; 0 = none.
    pub sample_hz: u32,
    /// The kernel's part of sampled stacks too.
    pub kernel_stacks: bool,
    /// Where threads wait is recorded, with the stacks of waits that take so long or longer.
    pub off_cpu: Option<Duration>,
    /// How to see calls end.
    pub exits: Exits,
    /// One COMPLETE record per call instead of ENTER and EXIT.
    pub complete: bool,
    /// How to attach.
    pub attach: Attach,
    /// What the probes may cost.
    pub max_overhead: Overhead,
    /// Memory for all rings together, in bytes; `None` = the collector's default.
    pub ring_bytes: Option<u64>,
}

/// What is recorded of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every call, streamed.
    Trace,
    /// Calls and their times, added up in the kernel.
    Count,
    /// None.
    Sample,
}

/// What is done in language runtimes.
#[derive(Clone, Debug, PartialEq)]
pub struct Runtimes {
    /// The kernel is not asked at all: nothing but probes.
    pub alone: bool,
    /// What probes do.
    pub mode: ProbeMode,
    /// Memory for all of them, in bytes.
    pub memory: u64,
    /// What they may cost their programs.
    pub max_overhead: Overhead,
    /// Settings that probes are told, by name.
    pub settings: Vec<(String, String)>,
}

/// What probes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeMode {
    /// Every call.
    Call,
    /// Every call, of native functions too.
    Native,
    /// Counts.
    Count,
    /// Nothing: no socket, and the target's environment stays as it is.
    Off,
}

/// How to see calls end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exits {
    /// Return probes where proven safe, else entries only.
    Default,
    /// A probe on each `ret`.
    Ret,
    /// Entries only.
    None,
}

impl From<ExitsArg> for Exits {
    fn from(arg: ExitsArg) -> Self {
        match arg {
            ExitsArg::Default => Self::Default,
            ExitsArg::Ret => Self::Ret,
            ExitsArg::None => Self::None,
        }
    }
}

/// How to attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// What `caps` finds best.
    Auto,
    /// `uprobe_multi` links or nothing.
    Multi,
    /// Perf events or nothing.
    Perf,
}

impl From<AttachArg> for Attach {
    fn from(arg: AttachArg) -> Self {
        match arg {
            AttachArg::Auto => Self::Auto,
            AttachArg::Multi => Self::Multi,
            AttachArg::Perf => Self::Perf,
        }
    }
}

/// Where a genome goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To this file.
    File(PathBuf),
    /// To stdout.
    Stdout,
    /// Nowhere: it is shown and forgotten.
    Nowhere,
}

impl Destination {
    /// The file.
    pub fn file(&self) -> Option<&PathBuf> {
        match self {
            Self::File(path) => Some(path),
            Self::Stdout | Self::Nowhere => None,
        }
    }
}

/// What is written where.
#[derive(Clone, Debug, PartialEq)]
pub struct Outputs {
    /// The genome.
    pub genome: Destination,
    /// The raw stream, kept.
    pub stream: Option<PathBuf>,
    /// The summary, as JSON.
    pub summary: Option<PathBuf>,
    /// Above this share of lost events (0..=1) the result counts as partial.
    pub max_loss: f64,
}

pub(super) fn plan(args: RecordArgs) -> Result<RecordPlan, PlanError> {
    let triggers = trigger::parse(args.trigger)?;
    let mut choice = choice(args.functions)?;
    let returns = returns::parse(args.return_values)?;
    choice.awaited = triggers.iter().map(|one| one.func.clone()).collect();
    choice.awaited.extend(returns.iter().cloned());
    let wants_a_stream = args.complete || args.keep_stream.is_some() || !choice.awaited.is_empty();
    let measurement = Measurement {
        mode: match args.mode {
            ModeArg::Auto if args.all => Mode::Sample,
            typed => mode(typed, &choice, wants_a_stream),
        },
        sample_hz: args.freq,
        kernel_stacks: args.kernel_stacks,
        off_cpu: if args.off_cpu || args.no_kernel {
            args.off_cpu.then_some(args.off_cpu_min.0)
        } else {
            trigger::wait_of(&triggers)
        },
        exits: args.probing.exits.into(),
        complete: args.complete,
        attach: args.probing.attach.into(),
        max_overhead: overhead(&args.probing, &choice),
        ring_bytes: args.ring_size.map(|size| size.0),
    };
    let runtimes = Runtimes {
        alone: args.no_kernel,
        mode: match args.probe_mode {
            _ if args.all => ProbeMode::Off,
            ProbeModeArg::Call => ProbeMode::Call,
            ProbeModeArg::Native => ProbeMode::Native,
            ProbeModeArg::Count => ProbeMode::Count,
            ProbeModeArg::Off => ProbeMode::Off,
        },
        memory: args.probe_memory.0,
        // Their counts are exact where nobody asks for less.
        max_overhead: args.probing.max_overhead.unwrap_or(Overhead::Off),
        settings: settings(
            [
                ("py-include", &args.py_include),
                ("py-exclude", &args.py_exclude),
                ("node-include", &args.node_include),
                ("node-exclude", &args.node_exclude),
            ],
            args.node_coverage,
        ),
    };
    // The kept calls are looked at one by one.
    let of_triggers = (!triggers.is_empty() && args.output != Path::new("-"))
        .then(|| args.output.with_extension("stream"));
    let outputs = Outputs {
        genome: match args.output {
            output if output == Path::new("-") => Destination::Stdout,
            output => Destination::File(output),
        },
        stream: args.keep_stream.or(of_triggers),
        summary: args.summary,
        max_loss: args.max_loss / 100.0,
    };
    let plan = RecordPlan {
        subprocesses: args.target.subprocesses || args.cgroup.is_some(),
        target: match args.cgroup {
            Some(path) => Target::Cgroup(path),
            None if args.all => Target::Host(command(args.target.command)),
            None => target(args.target)?,
        },
        choice,
        measurement,
        triggers,
        returns,
        runtimes,
        duration: args.duration.map(|time| time.0),
        sources: args.src,
        executables: args.exe,
        outputs,
        dry_run: args.dry_run,
    };
    check(plan)
}

pub(super) fn choice(args: FunctionArgs) -> Result<Choice, PlanError> {
    Ok(Choice {
        include: patterns("--func", args.func)?,
        exclude: patterns("--exclude", args.exclude)?,
        libs: globs("--lib", args.lib)?,
        max_probes: args.max_probes.map(|most| most as usize),
        awaited: Vec::new(),
    })
}

/// Naming functions asks for their exact counts; without names the promise is not to disturb.
pub(super) fn overhead(args: &ProbingArgs, choice: &Choice) -> Overhead {
    args.max_overhead.unwrap_or(if !choice.names_functions() {
        Overhead::Percent(DEFAULT_OVERHEAD_PERCENT)
    } else {
        Overhead::Off
    })
}

/// What `auto` means: who names functions wants to see their calls one by one; all functions of a program are too many for
/// that.
const fn mode(typed: ModeArg, choice: &Choice, wants_a_stream: bool) -> Mode {
    match typed {
        ModeArg::Auto if wants_a_stream || choice.names_functions() => Mode::Trace,
        ModeArg::Auto | ModeArg::Count => Mode::Count,
        ModeArg::Trace => Mode::Trace,
        ModeArg::Sample => Mode::Sample,
    }
}

/// What probes are told, with commas where there are several.
fn settings(
    filters: [(&str, &Vec<String>); 4],
    coverage: Option<NodeCoverageArg>,
) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    for (name, values) in filters {
        if !values.is_empty() {
            settings.push((name.to_owned(), values.join(",")));
        }
    }
    if coverage == Some(NodeCoverageArg::V8) {
        settings.push(("node-coverage".into(), "v8".into()));
    }
    settings
}

pub(super) fn check(plan: RecordPlan) -> Result<RecordPlan, PlanError> {
    let conflict = |text: &str| Err(PlanError::Conflict(text.into()));
    let outputs = &plan.outputs;
    if plan.measurement.complete && plan.measurement.exits == Exits::None {
        return conflict("--complete records ends of calls, --exits none sees none: leave one out");
    }
    if plan.measurement.complete && plan.measurement.mode != Mode::Trace {
        return conflict("--complete is a way to stream calls: leave it out, or --mode");
    }
    trigger::check(&plan)?;
    returns::check(&plan)?;
    if plan.measurement.mode == Mode::Sample {
        if plan.measurement.sample_hz == 0 && plan.measurement.off_cpu.is_none() {
            return conflict(
                "--mode sample with --freq 0 records nothing: leave one out, or add --off-cpu",
            );
        }
        if !plan.choice.include.is_empty() || plan.choice.max_probes.is_some() {
            return conflict(
                "--mode sample probes no functions: leave out --func and --max-probes",
            );
        }
    }
    if matches!(plan.target, Target::Host(_)) && plan.measurement.mode != Mode::Sample {
        return conflict(
            "--all samples stacks and probes no call: leave out --mode, or name processes by --pid",
        );
    }
    if plan.measurement.kernel_stacks && plan.measurement.sample_hz == 0 {
        return conflict("--kernel-stacks needs sampling: leave out --freq 0");
    }
    if plan
        .measurement
        .ring_bytes
        .is_some_and(|bytes| bytes < SMALLEST_RINGS)
    {
        return conflict("--ring-size: at least 64K");
    }
    if plan.runtimes.memory < SMALLEST_PROBE_MEMORY {
        return conflict("--probe-memory: at least 4M");
    }
    if plan.runtimes.alone && plan.runtimes.mode == ProbeMode::Off {
        return conflict("--no-kernel without probes records nothing: leave out --probe-mode off");
    }
    if plan.duration == Some(Duration::ZERO) {
        return conflict("--duration 0 records nothing");
    }
    let files = [
        outputs.genome.file(),
        outputs.stream.as_ref(),
        outputs.summary.as_ref(),
    ];
    let distinct: BTreeSet<&PathBuf> = files.into_iter().flatten().collect();
    if distinct.len() < files.into_iter().flatten().count() {
        return conflict("--output, --keep-stream and --summary need different files");
    }
    Ok(plan)
}

fn patterns(flag: &'static str, texts: Vec<String>) -> Result<Vec<Pattern>, PlanError> {
    let parse = |text: String| {
        text.parse()
            .map_err(|reason| PlanError::Pattern { flag, text, reason })
    };
    texts.into_iter().map(parse).collect()
}
