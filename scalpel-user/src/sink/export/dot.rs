//! The neighbourhood of functions as a graph in DOT: who calls them and whom they call, a few edges far.
//!
//! Never the whole graph: nobody can read it. What was left out stands in the graph's label.

use std::io::{self, Write};

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Notes, Subject};
use crate::event::FuncId;
use crate::function::FunctionInfo;
use crate::genome::totals::{self, Edge};
use crate::report::FunctionRow;
use crate::sink::text::clean;
use crate::sink::units;
use crate::tree::EdgeSource;

/// Most functions in one graph.
const MOST_NODES: usize = 150;

/// Writes what is at most `depth` edges away from the functions that `wanted` means.
pub fn write(
    subject: &Subject<'_>,
    wanted: &dyn Fn(&FunctionInfo) -> bool,
    depth: u32,
    out: &mut dyn Write,
) -> io::Result<Notes> {
    let edges = totals::edges(&subject.genome.tree, &subject.own);
    let table = subject.genome.functions.iter();
    let centre: Vec<FuncId> = table
        .filter(|(_, info)| wanted(info))
        .map(|(id, _)| id)
        .collect();
    let near = near(&edges, &centre, depth);
    let notes = near.notes();
    head(subject, &notes, out)?;
    let centre: FxHashSet<FuncId> = centre.into_iter().collect();
    for id in &near.kept {
        node(subject, *id, centre.contains(id), out)?;
    }
    let kept: FxHashSet<FuncId> = near.kept.into_iter().collect();
    for line in &edges {
        if let Some(caller) = line.caller.filter(|caller| kept.contains(caller))
            && kept.contains(&line.callee)
        {
            edge(caller, line, out)?;
        }
    }
    writeln!(out, "}}")?;
    Ok(notes)
}

/// The functions of a neighbourhood.
struct Near {
    /// Nearest first, and the heavier edge before the lighter.
    kept: Vec<FuncId>,
    left_out: usize,
}

impl Near {
    fn notes(&self) -> Notes {
        if self.left_out == 0 {
            return Notes::new();
        }
        vec![format!(
            "{} more functions are as near: shown are the {MOST_NODES} nearest and heaviest; a smaller --depth shows fewer",
            self.left_out
        )]
    }
}

fn near(edges: &[Edge], centre: &[FuncId], depth: u32) -> Near {
    let mut kept: Vec<FuncId> = centre.to_vec();
    let mut seen: FxHashSet<FuncId> = centre.iter().copied().collect();
    for callers in [true, false] {
        let next = neighbours(edges, callers);
        let mut ring: Vec<FuncId> = centre.to_vec();
        for _ in 0..depth {
            let mut around: Vec<(u64, FuncId)> = Vec::new();
            for id in &ring {
                around.extend(next.get(id).into_iter().flatten());
            }
            around.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
            ring = around
                .into_iter()
                .map(|(_, id)| id)
                .filter(|id| seen.insert(*id))
                .collect();
            kept.extend(&ring);
        }
    }
    let left_out = kept.len().saturating_sub(MOST_NODES.max(centre.len()));
    kept.truncate(MOST_NODES.max(centre.len()));
    Near { kept, left_out }
}

/// For each function its callers or its callees, with what the edge weighs.
fn neighbours(edges: &[Edge], callers: bool) -> FxHashMap<FuncId, Vec<(u64, FuncId)>> {
    let mut next: FxHashMap<FuncId, Vec<(u64, FuncId)>> = FxHashMap::default();
    for edge in edges {
        let Some(caller) = edge.caller else { continue };
        let weight = edge
            .metrics
            .total_wall_ns
            .max(edge.metrics.calls)
            .max(edge.metrics.samples);
        if callers {
            next.entry(edge.callee).or_default().push((weight, caller));
        } else {
            next.entry(caller).or_default().push((weight, edge.callee));
        }
    }
    next
}

fn head(subject: &Subject<'_>, notes: &[String], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "digraph scalpel {{")?;
    let lines = std::iter::once(subject.title()).chain(subject.caveats());
    let label: Vec<String> = lines.chain(notes.iter().cloned()).collect();
    writeln!(
        out,
        "  graph [label={}, labelloc=t, fontname=\"sans-serif\"];",
        quoted(&label)
    )?;
    writeln!(
        out,
        "  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n  edge [fontname=\"sans-serif\", fontsize=10];"
    )
}

fn node(subject: &Subject<'_>, id: FuncId, is_centre: bool, out: &mut dyn Write) -> io::Result<()> {
    let mut label = vec![subject.labels.get(Some(id)).to_owned()];
    if let Some(row) = subject.report.functions.get(id.get() as usize - 1) {
        label.extend(measured(row));
    }
    let pen = if is_centre { ", penwidth=2.5" } else { "" };
    writeln!(out, "  f{} [label={}{pen}];", id.get(), quoted(&label))
}

fn measured(row: &FunctionRow) -> Vec<String> {
    let m = &row.measures;
    let time = |what: &str, cpu: Option<u64>, wall: Option<u64>| {
        (cpu.or(wall)).map(|_| {
            format!(
                "{what} {} CPU, {} wall",
                units::or_nothing(cpu, units::duration),
                units::or_nothing(wall, units::duration)
            )
        })
    };
    let many = |number: u64, what: &str| {
        let plural = if number == 1 { "" } else { "s" };
        format!("{} {what}{plural}", units::count(number))
    };
    let calls = m.calls.map(|calls| many(calls, "call"));
    let samples = m.samples.filter(|samples| *samples > 0);
    [
        calls,
        samples.map(|samples| many(samples, "sample")),
        time("self", m.self_cpu_ns, m.self_wall_ns),
        time("total", m.total_cpu_ns, m.total_wall_ns),
        (m.lost > 0).then(|| many(m.lost, "lost event")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn edge(caller: FuncId, edge: &Edge, out: &mut dyn Write) -> io::Result<()> {
    let m = &edge.metrics;
    let sampled = edge.source <= EdgeSource::Sampled;
    let mut label = Vec::new();
    if !sampled {
        label.push(units::count(m.calls));
    }
    if m.timed > 0 {
        label.push(units::duration(m.total_wall_ns));
    }
    let style = if sampled { ", style=dashed" } else { "" };
    writeln!(
        out,
        "  f{} -> f{} [label={}{style}];",
        caller.get(),
        edge.callee.get(),
        quoted(&label)
    )
}

/// Lines as one string of DOT.
fn quoted(lines: &[String]) -> String {
    let escape = |line: &String| clean(line).replace('\\', "\\\\").replace('"', "\\\"");
    let lines: Vec<String> = lines.iter().map(escape).collect();
    format!("\"{}\"", lines.join("\\n"))
}
