//! NDJSON: an object a line, each with its `record`. The shape is published: docs/schema/export.schema.json.
//!
//! The report, row by row, and the calling-context tree, which the report has not.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::json;

use super::Subject;
use crate::event::FuncId;
use crate::tree::{ContextId, Metrics};

/// Version of the shape.
pub const SCHEMA: &str = "scalpel.export/1";

/// Writes `subject`.
pub fn write(subject: &Subject<'_>, out: &mut dyn Write) -> io::Result<()> {
    let report = &subject.report;
    let run = json!({
        "schema": SCHEMA, "run": report.run, "events": report.events, "lost": report.lost,
        "unknown_share": report.unknown_share, "match_rate": report.match_rate,
        "blind_spots": report.blind_spots,
    });
    line("run", &run, out)?;
    lines("doubt", &report.doubts, out)?;
    lines("thread", &report.threads, out)?;
    lines("function", &report.functions, out)?;
    lines("edge", &report.edges, out)?;
    lines("loss", &report.losses, out)?;
    lines("bound", &report.bounds, out)?;
    contexts(subject, out)
}

/// A row with what it is in front.
#[derive(Serialize)]
struct Record<'a, T> {
    record: &'static str,
    #[serde(flatten)]
    row: &'a T,
}

fn line(record: &'static str, row: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &Record { record, row })?;
    writeln!(out)
}

fn lines<T: Serialize>(record: &'static str, rows: &[T], out: &mut dyn Write) -> io::Result<()> {
    rows.iter().try_for_each(|row| line(record, row, out))
}

/// One node of the tree: parents come before their children. Times in ns, `null` = not measured.
#[derive(Serialize)]
struct ContextRow<'a> {
    id: u32,
    parent: u32,
    /// Key of the function; `null` for the root and for folded contexts.
    function: Option<&'a str>,
    source: &'static str,
    calls: u64,
    /// Calls whose end was seen or safely concluded; self times of others are lower bounds.
    timed: u64,
    self_wall_ns: Option<u64>,
    total_wall_ns: Option<u64>,
    self_cpu_ns: Option<u64>,
    total_cpu_ns: Option<u64>,
    samples: u64,
    sampled_ns: u64,
    waits: u64,
    off_cpu_ns: u64,
    preempted_ns: u64,
    io_wait_ns: u64,
    unwound: u64,
    lost: u64,
}

fn contexts(subject: &Subject<'_>, out: &mut dyn Write) -> io::Result<()> {
    subject.visit(|path, m| {
        let id = path.last().copied().unwrap_or(ContextId::ROOT);
        context(subject, id, m).map_or(Ok(()), |row| line("context", &row, out))
    })
}

fn context<'a>(subject: &'a Subject<'_>, id: ContextId, m: &Metrics) -> Option<ContextRow<'a>> {
    let context = subject.genome.tree.contexts.get(id.0 as usize)?;
    // A call that was cut has passed time and no end.
    let wall = |ns| (m.timed > 0 || ns > 0).then_some(ns);
    let cpu = |ns| (m.cpu_timed > 0 || ns > 0).then_some(ns);
    Some(ContextRow {
        id: id.0,
        parent: context.parent.0,
        function: context.func.and_then(|func| key(subject, func)),
        source: context.source.word(),
        calls: m.calls,
        timed: m.timed,
        self_wall_ns: wall(m.self_wall_ns),
        total_wall_ns: wall(m.total_wall_ns),
        self_cpu_ns: cpu(m.self_cpu_ns),
        total_cpu_ns: cpu(m.total_cpu_ns),
        samples: m.samples,
        sampled_ns: m.sampled_ns,
        waits: m.waits,
        off_cpu_ns: m.off_cpu_ns,
        preempted_ns: m.preempted_ns,
        io_wait_ns: m.io_wait_ns,
        unwound: m.unwound,
        lost: m.lost,
    })
}

fn key<'a>(subject: &'a Subject<'_>, func: FuncId) -> Option<&'a str> {
    let row = subject.report.functions.get(func.get() as usize - 1)?;
    Some(&row.key)
}
