//! What is said at the end of a recording, in numbers.

use serde::Serialize;

use crate::genome::Genome;
use crate::report::function::{FunctionRow, State};
use crate::report::{Known, Report, TriggerRow, Unknown};

/// What the recording itself cost, as far as the session measured it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Probed calls times the calibrated cost of one, and the run time of the other programs, as a share of the CPU time of
    /// the target: lowest and highest.
    pub target_share: Option<(f64, f64)>,
    /// Run time in ns of the programs that sample and watch threads, measured a tenth of the time; `None` = not measured.
    pub programs_ns: Option<u64>,
    /// CPU time of the collector in ns.
    pub collector_cpu_ns: Option<u64>,
}

/// The same as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Overhead {
    /// Lowest share of the target's CPU time.
    pub target_share_low: Option<f64>,
    /// Highest.
    pub target_share_high: Option<f64>,
    /// Run time in ns of the programs that sample and watch threads: part of the shares.
    pub programs_ns: Option<u64>,
    /// CPU time of the collector in ns.
    pub collector_cpu_ns: Option<u64>,
}

impl From<Cost> for Overhead {
    fn from(cost: Cost) -> Self {
        Self {
            target_share_low: cost.target_share.map(|(low, _)| low),
            target_share_high: cost.target_share.map(|(_, high)| high),
            programs_ns: cost.programs_ns,
            collector_cpu_ns: cost.collector_cpu_ns,
        }
    }
}

/// The numbers of a recording's end.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Command.
    pub command: String,
    /// Main target.
    pub pid: u32,
    /// Length in ns.
    pub duration_ns: u64,
    /// Events that arrived.
    pub events: u64,
    /// Samples that arrived.
    pub samples: u64,
    /// Waits whose time is known.
    pub waits: u64,
    /// Lost events, and their share.
    pub lost: (u64, f64),
    /// Functions that ran, that were watched and never ran, that were not watched.
    pub functions: (usize, usize, usize),
    /// Call edges.
    pub edges: usize,
    /// Threads.
    pub threads: usize,
    /// Functions switched off while recording.
    pub bounded: usize,
    /// What has no name; `None` if nothing ran.
    pub unknown: Option<Unknown>,
    /// What the static side tells; `None` without one.
    pub known: Option<Known>,
    /// How far times of in-process probes may lie from the kernel's clock, in ns; `None` = there were none.
    pub clock_error_ns: Option<u64>,
    /// What triggers found.
    pub triggers: Vec<TriggerRow>,
    /// Cost.
    pub cost: Cost,
}

impl Summary {
    /// Summary of a genome and its report.
    pub fn of(genome: &Genome, report: &Report, cost: Cost) -> Self {
        // A caller that is known by a return address alone ran, but nothing of it was seen.
        let seen = |row: &&FunctionRow| {
            let m = &row.measures;
            row.state != State::Ran
                || m.calls > Some(0)
                || m.samples > Some(0)
                || m.total_off_cpu_ns > Some(0)
                || m.lost > 0
        };
        let count = |state| {
            let of_state = |row: &&FunctionRow| row.state == state;
            report
                .functions
                .iter()
                .filter(of_state)
                .filter(seen)
                .count()
        };
        Self {
            command: genome.run.command.clone(),
            pid: genome.run.pid.0,
            duration_ns: genome.duration_ns(),
            events: report.events,
            samples: genome.sum(|m| m.samples),
            waits: genome.sum(|m| m.waits),
            lost: (report.lost, genome.lost_share()),
            functions: (
                count(State::Ran),
                count(State::NeverRan),
                count(State::NotVisible),
            ),
            edges: report.edges.len(),
            threads: report.threads.len(),
            bounded: report
                .bounds
                .iter()
                .filter(|bound| bound.since_ns.is_some())
                .count(),
            unknown: report.unknown.clone(),
            known: report.known.clone(),
            clock_error_ns: None,
            triggers: report.triggers.clone(),
            cost,
        }
    }
}
