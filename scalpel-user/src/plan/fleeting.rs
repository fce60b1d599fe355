//! Recordings that are shown as soon as they have ended, and kept nowhere.

use std::time::Duration;

use super::record::{
    DEFAULT_OVERHEAD_PERCENT, SMALLEST_PROBE_MEMORY, check, choice, overhead, target,
};
use super::words::Overhead;
use super::{
    Attach, Choice, Destination, Exits, Measurement, Mode, Outputs, PlanError, ProbeMode,
    RecordPlan, Runtimes,
};
use crate::cli::{StatArgs, TargetArgs};

/// Samples per second and processor, where nobody said how many.
const DEFAULT_HZ: u32 = 99;

/// A recording that counts calls, asks no runtime and keeps nothing.
pub(super) fn counting(args: StatArgs) -> Result<RecordPlan, PlanError> {
    let choice = choice(args.functions)?;
    let measurement = Measurement {
        mode: Mode::Count,
        sample_hz: 0,
        kernel_stacks: false,
        exits: args.probing.exits.into(),
        complete: false,
        attach: args.probing.attach.into(),
        max_overhead: overhead(&args.probing, &choice),
        ring_bytes: None,
    };
    let duration = args.duration.map(|time| time.0);
    fleeting(
        args.target,
        choice,
        measurement,
        duration,
        args.max_loss / 100.0,
    )
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
    };
    let measurement = Measurement {
        mode: Mode::Count,
        sample_hz: DEFAULT_HZ,
        kernel_stacks: false,
        exits: Exits::Default,
        complete: false,
        attach: Attach::Auto,
        max_overhead: Overhead::Percent(DEFAULT_OVERHEAD_PERCENT),
        ring_bytes: None,
    };
    fleeting(target, choice, measurement, duration, 1.0)
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
