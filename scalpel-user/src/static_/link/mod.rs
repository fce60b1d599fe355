//! Finds the calls between definitions of all files. A call becomes an edge only if the rules of its language leave one
//! definition: what may be several, or may be hidden, is no edge.

mod index;
mod languages;
mod lookup;
mod modules;

use std::panic::resume_unwind;

use rustc_hash::FxHashMap;

use self::index::Index;
use self::lookup::{Entity, Seen};
use super::dialect::Dialect;
use super::facts::{Call, Facts};
use crate::catalog::{DefId, Edge, How, Kind};

/// A file, as far as its calls are concerned.
pub(super) struct Unit<'a> {
    /// Path relative to its root, and the root.
    pub(super) path: &'a str,
    pub(super) root: u32,
    pub(super) dialect: &'static Dialect,
    pub(super) facts: &'a Facts,
    /// The number of its first definition.
    pub(super) base: u32,
    /// Kinds of its definitions.
    pub(super) kinds: Vec<Kind>,
}

/// Edges, and by file how many calls there are and how many became edges.
#[derive(Debug, Default)]
pub(super) struct Linked {
    pub(super) edges: Vec<Edge>,
    pub(super) counts: Vec<(u32, u32)>,
}

/// Files that say where names of modules lead to: `go.mod`, by folder.
pub(super) type ModuleFiles = FxHashMap<(u32, String), String>;

/// The edges of a file, and how many calls it has and how many of them are certain.
type OfUnit = (Vec<Edge>, (u32, u32));

/// Finds the calls of all files.
pub(super) fn link(units: &[Unit<'_>], module_files: &ModuleFiles) -> Linked {
    let index = Index::new(units, module_files);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let share = units.len().div_ceil(workers).max(1);
    let parts: Vec<Vec<OfUnit>> = std::thread::scope(|threads| {
        let index = &index;
        let running: Vec<_> = (0..units.len())
            .step_by(share)
            .map(|first| threads.spawn(move || of_units(index, first, share)))
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    let mut linked = Linked::default();
    for (edges, counts) in parts.into_iter().flatten() {
        linked.edges.extend(edges);
        linked.counts.push(counts);
    }
    linked
}

fn of_units(index: &Index<'_>, first: usize, share: usize) -> Vec<OfUnit> {
    let last = index.units.len().min(first + share);
    (first..last)
        .map(|unit| of_unit(index, unit as u32))
        .collect()
}

fn of_unit(index: &Index<'_>, unit: u32) -> OfUnit {
    let Some(of) = index.units.get(unit as usize) else {
        return (Vec::new(), (0, 0));
    };
    let calls = &of.facts.calls;
    let edges: Vec<Edge> = calls
        .iter()
        .filter_map(|call| edge(index, unit, call))
        .collect();
    let counts = (calls.len() as u32, edges.len() as u32);
    (edges, counts)
}

fn edge(index: &Index<'_>, unit: u32, call: &Call) -> Option<Edge> {
    let of = index.units.get(unit as usize)?;
    let caller = of.facts.scopes.get(call.scope as usize)?.definition?;
    let (callee, how) = match call.definition {
        Some(definition) => ((unit, definition), How::Scope),
        None => callee(index, unit, call)?,
    };
    let to = index.units.get(callee.0 as usize)?;
    // A number beyond the last one can stand in damaged facts only.
    to.kinds.get(callee.1 as usize)?;
    of.kinds.get(caller as usize)?;
    Some(Edge {
        caller: DefId(of.base + caller),
        callee: DefId(to.base + callee.1),
        how,
        at: u64::from(call.byte),
        line: call.line,
        column: call.column,
    })
}

fn callee(index: &Index<'_>, unit: u32, call: &Call) -> Option<((u32, u32), How)> {
    let of = index.units.get(unit as usize)?;
    let path: Option<Vec<&str>> = call.path.iter().map(|&name| of.name(name)).collect();
    let path = path.filter(|path| !path.is_empty())?;
    let Seen { entities, how } = index.path(unit, call.scope, &path, 0);
    let mut found: Vec<(u32, u32)> = entities
        .into_iter()
        .flat_map(|entity| match entity {
            Entity::Definition(unit, definition) => vec![(unit, definition)],
            Entity::Class(unit, class) => index.constructors(unit, class, 0),
            _ => Vec::new(),
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    if found.len() > 1 {
        found.retain(|&(unit, definition)| index.takes(unit, definition, call.arguments));
    }
    match found.as_slice() {
        [one] if index.takes(one.0, one.1, call.arguments) => Some((*one, how)),
        _ => None,
    }
}

impl Unit<'_> {
    /// A name's text.
    pub(super) fn name(&self, name: u32) -> Option<&str> {
        self.facts.names.get(name as usize).map(AsRef::as_ref)
    }

    /// The folder it lies in; empty = the root.
    pub(super) fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}
