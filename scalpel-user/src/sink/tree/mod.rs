//! The call tree for people: from the threads' roots down (callees), or from each function up (callers).
//!
//! The heaviest nodes are shown; what is not shown is summed up where it was cut.

mod build;

use std::cmp::Reverse;
use std::io::{self, Write};

use super::grid::{self, Cell, Column, Side};
use super::style::Tone;
use super::{Page, text, units};
use crate::event::FuncId;
use crate::genome::Genome;
use crate::report::Sort;
use build::{Forest, Node};

/// Which way a tree grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From a function up to who called it.
    Callers,
    /// From the roots down to what was called.
    Callees,
}

/// Which part of the tree is shown.
pub struct View<'a> {
    /// Way.
    pub way: Way,
    /// What weighs; times of a callee tree always include callees.
    pub sort: Sort,
    /// Most nodes; 0 = all.
    pub limit: usize,
    /// Only below (or above) these functions.
    pub func: Option<&'a dyn Fn(FuncId) -> bool>,
    /// Only where one of these is further out.
    pub caller: Option<&'a dyn Fn(FuncId) -> bool>,
    /// Levels below the first.
    pub depth: usize,
    /// What took less, in ns, is summed up.
    pub least: u64,
}

/// One function between its callers and its callees.
pub struct Graph<'a> {
    /// The function.
    pub func: &'a dyn Fn(FuncId) -> bool,
    /// Only where one of these is further out.
    pub caller: Option<&'a dyn Fn(FuncId) -> bool>,
    /// Levels each way.
    pub depth: usize,
    /// What took less, in ns, is summed up.
    pub least: u64,
    /// What weighs.
    pub sort: Sort,
    /// Most nodes of each tree; 0 = all.
    pub limit: usize,
}

/// Writes both trees. False = the function was not seen to run, and nothing is written.
pub fn write_graph(
    genome: &Genome,
    graph: &Graph<'_>,
    page: Page,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let view = |way| View {
        way,
        sort: graph.sort,
        limit: graph.limit,
        func: Some(graph.func),
        caller: graph.caller,
        depth: graph.depth,
        least: graph.least,
    };
    let callees = view(Way::Callees);
    if Forest::of(genome, &callees).nodes.len() == 1 {
        return Ok(false);
    }
    for (title, view) in [("called by", view(Way::Callers)), ("calls", callees)] {
        writeln!(out, "{}", page.style.paint(Tone::Strong, title))?;
        write(genome, &view, page, out)?;
    }
    Ok(true)
}

/// Writes the tree.
pub fn write(genome: &Genome, view: &View<'_>, page: Page, out: &mut dyn Write) -> io::Result<()> {
    let forest = Forest::of(genome, view);
    let mut shown = heaviest(&forest.nodes, view.limit);
    if forest.weight.is_time() {
        for (shown, node) in shown.iter_mut().zip(&forest.nodes) {
            // The first level is what was asked for.
            *shown &= node.level <= 1 || node.weight >= view.least;
        }
    }
    let lines = lines(&forest.nodes, &shown);
    grid::write(&columns(genome, &forest, &lines, page), page, out)
}

/// Marks the root and the `limit` heaviest nodes. None is marked before its parent, so that what is shown hangs
/// together.
fn heaviest(nodes: &[Node], limit: usize) -> Vec<bool> {
    // The root weighs most; below it a node is never heavier than its parent (calls alone could be).
    let mut keys: Vec<(u64, usize)> = Vec::with_capacity(nodes.len());
    for (at, node) in nodes.iter().enumerate() {
        let above = keys
            .get(node.parent)
            .map_or(u64::MAX, |(weight, _)| *weight);
        let weight = if at == 0 { u64::MAX } else { node.weight };
        keys.push((weight.min(above), at));
    }
    keys.sort_unstable_by_key(|&(weight, at)| (Reverse(weight), at));
    let mut shown = vec![false; nodes.len()];
    for &(_, at) in keys
        .iter()
        .take(if limit == 0 { usize::MAX } else { limit + 1 })
    {
        if let Some(shown) = shown.get_mut(at) {
            *shown = true;
        }
    }
    shown
}

/// One line: a node, or what was cut off below one.
struct Line {
    node: Option<usize>,
    /// `None` = not measured.
    weight: Option<u64>,
    cut: usize,
    lead: String,
}

/// The lines of a tree, depth first, without recursion.
fn lines(nodes: &[Node], shown: &[bool]) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut work = vec![(
        Line {
            node: Some(0),
            weight: None,
            cut: 0,
            lead: String::new(),
        },
        String::new(),
    )];
    while let Some((line, below)) = work.pop() {
        if let Some(at) = line.node
            && let Some(node) = nodes.get(at)
        {
            let children = parts(node, nodes, shown);
            let last = children.len().saturating_sub(1);
            for (place, mut child) in children.into_iter().enumerate().rev() {
                let (branch, indent) = match (at, place == last) {
                    (0, _) => ("", ""),
                    (_, true) => ("└─ ", "   "),
                    (_, false) => ("├─ ", "│  "),
                };
                child.lead = format!("{below}{branch}");
                work.push((child, format!("{below}{indent}")));
            }
        }
        if line.node != Some(0) {
            lines.push(line);
        }
    }
    lines
}

/// What is below a node: its heaviest children, and one part for all the others.
fn parts(node: &Node, nodes: &[Node], shown: &[bool]) -> Vec<Line> {
    let weight = |at: usize| {
        nodes
            .get(at)
            .filter(|node| node.measured)
            .map(|node| node.weight)
    };
    let is_shown = |at: &usize| shown.get(*at).copied().unwrap_or(false);
    let (mut visible, hidden): (Vec<usize>, Vec<usize>) =
        node.children.iter().partition(|at| is_shown(at));
    visible.sort_by_key(|&at| Reverse(weight(at)));
    let part = |at: usize| Line {
        node: Some(at),
        weight: weight(at),
        cut: 0,
        lead: String::new(),
    };
    let mut parts: Vec<Line> = visible.into_iter().map(part).collect();
    if !hidden.is_empty() {
        let weight = hidden
            .iter()
            .filter_map(|&at| weight(at))
            .reduce(u64::saturating_add);
        parts.push(Line {
            node: None,
            weight,
            cut: hidden.len(),
            lead: String::new(),
        });
    }
    parts
}

/// Columns that names need to be told apart, with their branches.
const LEAST_NAME: usize = 16;

fn columns(genome: &Genome, forest: &Forest, lines: &[Line], page: Page) -> Vec<Column> {
    let column = |heading: &str, side, gap, cells| Column {
        heading: Cell::new(heading, Tone::Faint),
        side,
        gap,
        cells,
    };
    let node = |line: &Line| line.node.and_then(|at| forest.nodes.get(at));
    let tone = |line: &Line| {
        if line.node.is_some() {
            Tone::Plain
        } else {
            Tone::Faint
        }
    };
    let weight = |line: &Line| match line.weight {
        Some(weight) => Cell::new(forest.weight.show(weight), tone(line)),
        None => Cell::new(units::NOTHING, Tone::Faint),
    };
    let share = |line: &Line| match line.weight {
        Some(weight) => Cell::new(units::percent(share(weight, forest.whole)), tone(line)),
        None => Cell::default(),
    };
    let calls = |line: &Line| match node(line) {
        Some(node) if node.calls > 0 => Cell::new(units::count(node.calls), Tone::Plain),
        Some(_) => Cell::new(units::NOTHING, Tone::Faint),
        None => Cell::default(),
    };
    let mut columns = vec![
        column(
            forest.weight.heading(),
            Side::Right,
            2,
            lines.iter().map(weight).collect(),
        ),
        column("", Side::Right, 2, lines.iter().map(share).collect()),
    ];
    if !forest.weight.is_calls() {
        columns.push(column(
            "CALLS",
            Side::Right,
            2,
            lines.iter().map(calls).collect(),
        ));
    }
    let used = |columns: &[Column]| -> usize {
        let widths = columns.iter().map(|column| column.gap + column.width());
        widths.sum()
    };
    // On a narrow page names go before numbers, and of these the weight before the rest.
    while columns.len() > 1 && used(&columns) + 2 + LEAST_NAME > page.width {
        columns.pop();
    }
    let room = page.width.saturating_sub(used(&columns) + 2).max(4);
    let name = |line: &Line| match node(line) {
        Some(node) => called(genome, node.func, &line.lead, room),
        None => Cell::new(
            format!("{}… {} more", lead(&line.lead, room), line.cut),
            Tone::Faint,
        ),
    };
    columns.push(column(
        "FUNCTION",
        Side::Left,
        2,
        lines.iter().map(name).collect(),
    ));
    columns
}

fn called(genome: &Genome, func: Option<FuncId>, indent: &str, room: usize) -> Cell {
    let lead = lead(indent, room);
    let left = room.saturating_sub(text::width(&lead));
    let cell = Cell::new(lead, Tone::Faint);
    let Some(info) = func.and_then(|id| genome.functions.get(id)) else {
        return cell.and("[folded]", Tone::Faint);
    };
    let tone = if info.unknown.is_some() {
        Tone::Uncertain
    } else {
        Tone::Plain
    };
    let (name, module) = (
        text::clean(&info.name),
        format!(" [{}]", text::clean(&info.module)),
    );
    let fits = text::width(&name) + text::width(&module) <= left;
    let module = if fits { module } else { String::new() };
    cell.and(text::shorten(&name, left), tone)
        .and(module, Tone::Faint)
}

/// Branches take at most half of the room: deep stacks keep their names, and lose the left end of the branches.
fn lead(indent: &str, room: usize) -> String {
    let columns = indent.chars().count();
    let most = room / 2;
    if columns <= most {
        return indent.to_owned();
    }
    let kept: String = indent
        .chars()
        .skip(columns - most.saturating_sub(1))
        .collect();
    format!("…{kept}")
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}
