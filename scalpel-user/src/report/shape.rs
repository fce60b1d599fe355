//! The object of `report --json`. Names and meanings are stable from the first release; fields may be added.

use serde::Serialize;

use super::{FunctionRow, KeptRow, Known, ProcessRow, TriggerRow, UnseenRow};
use crate::doubt::Doubt;
use crate::event::FuncId;
use crate::genome::{Genome, totals};
use crate::tree::{EdgeSource, Metrics};

/// Everything a recording tells. Times are integers in ns, `null` is *not measured*, keys are strings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`super::SCHEMA`].
    pub schema: &'static str,
    /// The recording.
    pub run: Run,
    /// Events that arrived.
    pub events: u64,
    /// Events known to be lost.
    pub lost: u64,
    /// Share (0 to 1) of what ran that has no name: by functions or by events, whichever is larger; `null` if
    /// nothing ran.
    pub unknown_share: Option<f64>,
    /// Matched share of the user-written functions that ran; `null` without a static side.
    pub match_rate: Option<f64>,
    /// What the static side tells; `null` without one.
    #[serde(rename = "static")]
    pub known: Option<Known>,
    /// What to doubt.
    pub doubts: Vec<Doubt>,
    /// Functions that ran or were to be watched.
    pub functions: Vec<FunctionRow>,
    /// User-written functions of the sources that did not run, or of which that is not known.
    pub unseen: Vec<UnseenRow>,
    /// Call edges between two functions.
    pub edges: Vec<EdgeRow>,
    /// Processes.
    pub processes: Vec<ProcessRow>,
    /// Threads.
    pub threads: Vec<ThreadRow>,
    /// The two shares behind `unknown_share`, and the reasons.
    pub unknown: Option<Unknown>,
    /// Loss counters that are not 0.
    pub losses: Vec<LossRow>,
    /// Functions not watched, or not to the end.
    pub bounds: Vec<BoundRow>,
    /// Triggers: with any, only the calls that they kept are in the recording.
    pub triggers: Vec<TriggerRow>,
    /// Those calls, the slowest first.
    pub kept: Vec<KeptRow>,
    /// What this recording could not see.
    pub blind_spots: Vec<String>,
}

/// Facts about the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Run {
    /// Identity (UUID).
    pub uuid: String,
    /// Main target.
    pub pid: u32,
    /// Its command.
    pub command: String,
    /// Host name.
    pub host: String,
    /// Kernel release.
    pub kernel: String,
    /// Start in ns since the epoch.
    pub started: u64,
    /// Length in ns.
    pub duration_ns: u64,
    /// `trace`, `sample` or `trace+sample`.
    pub mode: String,
    /// Version of scalpel that recorded it.
    pub version: String,
    /// The recording did not end by itself.
    pub cut: bool,
}

/// One call edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EdgeRow {
    /// Key of the calling function.
    pub caller: String,
    /// Key of the called function.
    pub callee: String,
    /// Calls; `null` where the edge is known from samples only.
    pub calls: Option<u64>,
    /// Wall time of the callee below this caller; recursion counted once.
    pub total_wall_ns: Option<u64>,
    /// CPU time of the callee below this caller; recursion counted once.
    pub total_cpu_ns: Option<u64>,
    /// `exact`, `call-site`, `sampled` or `inlined`.
    pub source: &'static str,
}

/// One thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadRow {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Name.
    pub name: Option<String>,
    /// Events that arrived.
    pub events: u64,
    /// Events lost: gaps in its sequence.
    pub lost: u64,
}

/// How much of what ran has no name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unknown {
    /// Share of the functions that ran.
    pub functions: f64,
    /// Share of the calls and samples.
    pub events: f64,
    /// Why, sorted by reason.
    pub reasons: Vec<UnknownCount>,
}

/// Functions without a name, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnknownCount {
    /// Reason word.
    pub reason: &'static str,
    /// How many functions that ran.
    pub functions: u64,
    /// Their calls and samples.
    pub events: u64,
}

/// One loss counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LossRow {
    /// What was lost.
    pub class: String,
    /// On which processor, if counted so.
    pub cpu: Option<u32>,
    /// Key of the function, if counted so.
    pub function: Option<String>,
    /// How many.
    pub count: u64,
}

/// A function that was not watched, or not to the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BoundRow {
    /// Its key.
    pub function: String,
    /// From when on, in ns after the start; `null` = never watched.
    pub since_ns: Option<u64>,
    /// Why.
    pub reason: String,
}

impl Run {
    pub(super) fn of(genome: &Genome) -> Self {
        let run = &genome.run;
        Self {
            uuid: run.uuid.clone(),
            pid: run.pid.0,
            command: run.command.clone(),
            host: run.host.clone(),
            kernel: run.kernel.clone(),
            started: run.started_unix_ns,
            duration_ns: genome.duration_ns(),
            mode: run.mode.clone(),
            version: run.version.clone(),
            cut: genome.cut,
        }
    }
}

/// Edges between two functions; what was entered from outside has no caller and is in `functions` only.
pub(super) fn edges(genome: &Genome, own: &[Metrics]) -> Vec<EdgeRow> {
    let row = |edge: totals::Edge| {
        let m = &edge.metrics;
        Some(EdgeRow {
            caller: key(genome, edge.caller?)?,
            callee: key(genome, edge.callee)?,
            calls: (edge.source > EdgeSource::Sampled || m.calls > 0).then_some(m.calls),
            total_wall_ns: (m.timed > 0).then_some(m.total_wall_ns),
            total_cpu_ns: (m.cpu_timed > 0).then_some(m.total_cpu_ns),
            source: edge.source.word(),
        })
    };
    totals::edges(&genome.tree, own)
        .into_iter()
        .filter_map(row)
        .collect()
}

pub(super) fn threads(genome: &Genome) -> Vec<ThreadRow> {
    let row = |thread: &crate::tree::Thread| ThreadRow {
        pid: thread.pid.0,
        tid: thread.tid.0,
        name: Some(thread.name.clone()).filter(|name| !name.is_empty()),
        events: thread.events,
        lost: thread.lost,
    };
    genome.tree.threads.iter().map(row).collect()
}

pub(super) fn losses(genome: &Genome) -> Vec<LossRow> {
    let row = |loss: &crate::input::Loss| LossRow {
        class: crate::genome::loss::word(loss.class).to_owned(),
        cpu: loss.cpu,
        function: loss.func.and_then(|func| key(genome, func)),
        count: loss.count,
    };
    genome
        .losses
        .iter()
        .filter(|loss| loss.count > 0)
        .map(row)
        .collect()
}

pub(super) fn bounds(genome: &Genome) -> Vec<BoundRow> {
    let row = |bound: &crate::input::Bound| {
        Some(BoundRow {
            function: key(genome, bound.func)?,
            since_ns: bound
                .since
                .map(|since| since.0.saturating_sub(genome.run.started.0)),
            reason: bound.reason.clone(),
        })
    };
    genome.bounds.iter().filter_map(row).collect()
}

fn key(genome: &Genome, func: FuncId) -> Option<String> {
    genome.functions.get(func).map(|info| info.key())
}
