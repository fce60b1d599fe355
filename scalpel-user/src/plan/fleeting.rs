//! `stat`, `top` and a live `graph`, decided: recordings that are shown and kept nowhere.

use std::path::PathBuf;
use std::time::Duration;

use super::record::{DEFAULT_OVERHEAD_PERCENT, SMALLEST_PROBE_MEMORY, check, choice, overhead};
use super::target::target;
use super::words::Overhead;
use super::{
    Attach, Choice, Destination, Exits, Measurement, Mode, Outputs, PlanError, ProbeMode,
    RecordPlan, Runtimes, some_unless_zero,
};
use crate::cli::{ProbingArgs, SortArg, StatArgs, TargetArgs, TopArgs};

/// `stat`, decided.
#[derive(Clone, Debug, PartialEq)]
pub struct StatPlan {
    /// How it is measured.
    pub record: RecordPlan,
    /// Order; `None` = what there is to order by.
    pub sort: Option<SortArg>,
    /// Most rows; `None` = all.
    pub limit: Option<usize>,
    /// As JSON.
    pub json: bool,
    /// Where to; `None` = what stream the target has not.
    pub output: Option<PathBuf>,
}

/// `top`, decided.
#[derive(Clone, Debug, PartialEq)]
pub struct TopPlan {
    /// How it is measured.
    pub record: RecordPlan,
    /// Time between two looks.
    pub interval: Duration,
    /// Order; `None` = self CPU time.
    pub sort: Option<SortArg>,
    /// Print, and end.
    pub once: bool,
    /// As JSON.
    pub json: bool,
    /// Most rows that are printed; `None` = all.
    pub limit: Option<usize>,
}

/// A look costs some milliseconds of the collector's time.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(50);

/// Samples per second and processor, where nobody said how many.
const DEFAULT_HZ: u32 = 99;

/// A recording that counts calls, asks no runtime and keeps nothing.
fn counting(args: StatArgs) -> Result<RecordPlan, PlanError> {
    let choice = choice(args.functions)?;
    let measurement = counted(&args.probing, &choice, 0);
    let duration = args.duration.map(|time| time.0);
    fleeting(
        args.target,
        choice,
        measurement,
        duration,
        args.max_loss / 100.0,
    )
}

/// Calls counted, with stacks sampled beside them.
fn counted(probing: &ProbingArgs, choice: &Choice, sample_hz: u32) -> Measurement {
    Measurement {
        mode: Mode::Count,
        sample_hz,
        kernel_stacks: false,
        off_cpu: None,
        exits: probing.exits.into(),
        complete: false,
        attach: probing.attach.into(),
        max_overhead: overhead(probing, choice),
        ring_bytes: None,
    }
}

/// One that counts and samples a program's functions within the usual budget, and keeps nothing.
pub(super) fn watching(
    target: TargetArgs,
    duration: Option<Duration>,
) -> Result<RecordPlan, PlanError> {
    let choice = Choice {
        include: Vec::new(),
        exclude: Vec::new(),
        libs: Vec::new(),
        max_probes: None,
        awaited: Vec::new(),
    };
    let measurement = Measurement {
        mode: Mode::Count,
        sample_hz: DEFAULT_HZ,
        kernel_stacks: false,
        off_cpu: None,
        exits: Exits::Default,
        complete: false,
        attach: Attach::Auto,
        max_overhead: Overhead::Percent(DEFAULT_OVERHEAD_PERCENT),
        ring_bytes: None,
    };
    fleeting(target, choice, measurement, duration, 1.0)
}

/// One that counts and samples, and is looked at while it runs.
fn looking(args: TopArgs) -> Result<RecordPlan, PlanError> {
    let choice = choice(args.functions)?;
    let measurement = counted(&args.probing, &choice, args.freq);
    let once = args.once.then_some(args.interval);
    let duration = args.duration.or(once).map(|time| time.0);
    fleeting(args.target, choice, measurement, duration, 1.0)
}

fn fleeting(
    args: TargetArgs,
    choice: Choice,
    measurement: Measurement,
    duration: Option<Duration>,
    max_loss: f64,
) -> Result<RecordPlan, PlanError> {
    check(RecordPlan {
        subprocesses: args.subprocesses,
        target: target(args)?,
        choice,
        measurement,
        triggers: Vec::new(),
        returns: Vec::new(),
        runtimes: Runtimes {
            alone: false,
            mode: ProbeMode::Off,
            memory: SMALLEST_PROBE_MEMORY,
            max_overhead: Overhead::Off,
            settings: Vec::new(),
        },
        duration,
        sources: Vec::new(),
        executables: Vec::new(),
        outputs: Outputs {
            genome: Destination::Nowhere,
            stream: None,
            summary: None,
            max_loss,
        },
        dry_run: false,
    })
}

pub(super) fn stat(args: StatArgs) -> Result<StatPlan, PlanError> {
    Ok(StatPlan {
        sort: args.sort,
        limit: some_unless_zero(args.limit),
        json: args.json,
        output: args.output.clone(),
        record: counting(args)?,
    })
}

pub(super) fn top(args: TopArgs) -> Result<TopPlan, PlanError> {
    let interval = args.interval.0;
    if interval < SHORTEST_INTERVAL {
        return Err(PlanError::Conflict("--interval: at least 50ms".into()));
    }
    if !args.once && !args.target.command.is_empty() {
        let text = "the command and the page would share a terminal: start it elsewhere and give its --pid, or --once";
        return Err(PlanError::Conflict(text.into()));
    }
    Ok(TopPlan {
        interval,
        sort: args.sort,
        once: args.once,
        json: args.json,
        limit: some_unless_zero(args.limit),
        record: looking(args)?,
    })
}
