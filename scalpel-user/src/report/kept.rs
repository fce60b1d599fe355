//! What triggers kept, as rows.

use std::cmp::Reverse;

use serde::Serialize;

use crate::genome::Genome;
use crate::input::KeptCall;

/// A trigger, and what became of the calls that it judges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TriggerRow {
    /// As it was typed.
    pub trigger: String,
    /// Calls that lasted longer, in ns of wall time, are kept.
    pub threshold_ns: u64,
    /// Calls judged: those with no other call of its functions around them.
    pub calls: u64,
    /// Of those, calls that lasted longer.
    pub over: u64,
    /// Of those, calls that are kept.
    pub kept: u64,
    /// Calls whose end was not watched.
    pub endless: u64,
    /// Calls that were suspended, and not judged.
    pub suspended: u64,
    /// Ends of calls that nobody saw begin.
    pub headless: u64,
    /// Longest call judged, in ns; `null` if there was none.
    pub slowest_ns: Option<u64>,
}

/// A kept call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeptRow {
    /// Its trigger, as typed.
    pub trigger: String,
    /// Key of the function.
    pub function: String,
    /// Its name.
    pub name: String,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Beginning, in ns after the start of the recording.
    pub start_ns: u64,
    /// Wall time.
    pub wall_ns: u64,
    /// CPU time; `null` = not measured.
    pub cpu_ns: Option<u64>,
    /// Time off the processor: what is left of the wall time.
    pub off_cpu_ns: Option<u64>,
    /// Waits inside whose stack was told.
    pub waits: u64,
    /// Their time.
    pub waited_ns: u64,
    /// Events lost inside.
    pub lost: u64,
    /// Events left out inside, for want of memory.
    pub left_out: u64,
    /// `returned`, `unwound`, `lost`, `thread ended` or `still open`: but for the first, it lasted at most as long.
    pub end: &'static str,
    /// It is part of another kept call.
    pub inside: bool,
}

pub(super) fn triggers(genome: &Genome) -> Vec<TriggerRow> {
    let row = |trigger: &crate::input::Trigger| TriggerRow {
        trigger: trigger.text.clone(),
        threshold_ns: trigger.threshold_ns,
        calls: trigger.calls,
        over: trigger.over,
        kept: trigger.kept,
        endless: trigger.endless,
        suspended: trigger.suspended,
        headless: trigger.headless,
        slowest_ns: (trigger.calls > 0).then_some(trigger.slowest_ns),
    };
    genome.triggers.iter().map(row).collect()
}

pub(super) fn calls(genome: &Genome) -> Vec<KeptRow> {
    let row = |call: &KeptCall| {
        let info = genome.functions.get(call.func)?;
        let wall_ns = call.wall_ns();
        let trigger = genome.triggers.get(call.trigger as usize)?;
        Some(KeptRow {
            trigger: trigger.text.clone(),
            function: info.key(),
            name: info.name.clone(),
            pid: call.pid.0,
            tid: call.tid.0,
            start_ns: call.began.0.saturating_sub(genome.run.started.0),
            wall_ns,
            cpu_ns: call.cpu_ns,
            off_cpu_ns: call.cpu_ns.map(|cpu_ns| wall_ns.saturating_sub(cpu_ns)),
            waits: call.waits,
            waited_ns: call.waited_ns,
            lost: call.lost,
            left_out: call.left_out,
            end: call.end.word(),
            inside: call.items == 0,
        })
    };
    let mut rows: Vec<KeptRow> = genome.kept.iter().filter_map(row).collect();
    rows.sort_by_key(|row| Reverse(row.wall_ns));
    rows
}

/// Events left out of the kept calls.
pub(super) fn left_out(kept: &[KeptCall]) -> u64 {
    let whole = kept.iter().filter(|call| call.items > 0);
    whole.fold(0, |sum, call| sum.saturating_add(call.left_out))
}
