//! The processes of a recording, and a recording cut to some of them.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::group::{GroupRow, by_thread, called, measures};
use super::measures::Measures;
use crate::event::{FuncId, Pid};
use crate::genome::Genome;
use crate::tree::{ContextId, Thread, Tree};

/// One process: all of its threads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessRow {
    /// Its number.
    pub pid: u32,
    /// The name of its first thread, else of any.
    pub name: Option<String>,
    /// How many of its threads are in the recording.
    pub threads: u64,
    /// Its numbers. Totals are times in watched functions.
    #[serde(flatten)]
    pub measures: Measures,
}

/// One row a process, in the order in which they were first heard of.
pub fn processes(genome: &Genome) -> Vec<ProcessRow> {
    let mut index: FxHashMap<Pid, usize> = FxHashMap::default();
    let mut found: Vec<Found<'_>> = Vec::new();
    let mut of_thread = Vec::with_capacity(genome.tree.threads.len());
    for thread in &genome.tree.threads {
        let known = found.len();
        let at = *index.entry(thread.pid).or_insert(known);
        if at == known {
            found.push(Found::of(thread.pid));
        }
        if let Some(found) = found.get_mut(at) {
            found.admit(thread);
        }
        of_thread.push(at);
    }
    let of = |thread: u32| of_thread.get(thread as usize).copied();
    let sums = by_thread(genome, found.len(), |thread| {
        of(thread).unwrap_or(usize::MAX)
    });
    let rows = found.into_iter().zip(&sums).map(|(found, sum)| ProcessRow {
        pid: found.pid.0,
        name: Some(found.name.to_owned()).filter(|name| !name.is_empty()),
        threads: found.threads,
        measures: Measures {
            lost: found.lost,
            ..measures(genome, sum)
        },
    });
    rows.collect()
}

/// The same with one name each.
pub fn groups(genome: &Genome) -> Vec<GroupRow> {
    let group = |row: ProcessRow| GroupRow {
        name: format!("{} {}", called(row.name.as_deref().unwrap_or("")), row.pid),
        measures: row.measures,
    };
    processes(genome).into_iter().map(group).collect()
}

/// A process while its threads are looked at.
struct Found<'a> {
    pid: Pid,
    name: &'a str,
    threads: u64,
    lost: u64,
}

impl<'a> Found<'a> {
    const fn of(pid: Pid) -> Self {
        Self {
            pid,
            name: "",
            threads: 0,
            lost: 0,
        }
    }

    fn admit(&mut self, thread: &'a Thread) {
        if self.name.is_empty() || thread.tid.0 == thread.pid.0 {
            self.name = &thread.name;
        }
        self.threads += 1;
        self.lost = self.lost.saturating_add(thread.lost);
    }
}

/// Leaves of a recording what these processes did: the one with this number, or those of this name. What is known of all
/// processes together only (losses that no thread counted, durations and values of single calls) is not theirs alone. How many there are.
pub fn cut_to(genome: &mut Genome, wanted: &str) -> usize {
    let is_wanted =
        |row: &ProcessRow| wanted.parse() == Ok(row.pid) || row.name.as_deref() == Some(wanted);
    let all = processes(genome);
    let pids: FxHashSet<Pid> = all
        .iter()
        .filter(|row| is_wanted(row))
        .map(|row| Pid(row.pid))
        .collect();
    if pids.len() < all.len() {
        cut(&mut genome.tree, &pids);
        genome.kept.retain(|call| pids.contains(&call.pid));
    }
    pids.len()
}

fn cut(tree: &mut Tree, pids: &FxHashSet<Pid>) {
    let mut places = Vec::with_capacity(tree.threads.len());
    let mut kept = 0;
    for thread in &tree.threads {
        let is_kept = pids.contains(&thread.pid);
        places.push(is_kept.then_some(kept));
        kept += u32::from(is_kept);
    }
    tree.threads.retain(|thread| pids.contains(&thread.pid));
    tree.cells.retain_mut(|cell| {
        let place = places.get(cell.thread as usize).copied().flatten();
        cell.thread = place.unwrap_or_default();
        place.is_some()
    });
    keep_contexts(tree);
    tree.histograms.clear();
    tree.cpu_histograms.clear();
    tree.faults.clear();
    tree.returns.clear();
}

/// Those in which something was measured, and what leads to them: parents come first.
fn keep_contexts(tree: &mut Tree) {
    let mut is_kept = vec![false; tree.contexts.len()];
    let mut keep = |id: ContextId| {
        is_kept
            .get_mut(id.0 as usize)
            .is_some_and(|kept| !std::mem::replace(kept, true))
    };
    keep(ContextId::ROOT);
    for cell in &tree.cells {
        let mut id = cell.context;
        while keep(id) {
            id = tree
                .contexts
                .get(id.0 as usize)
                .map_or(ContextId::ROOT, |context| context.parent);
        }
    }
    let mut next = 0;
    let number = |kept: &bool| {
        let id = ContextId(next);
        next += u32::from(*kept);
        id
    };
    let numbers: Vec<ContextId> = is_kept.iter().map(number).collect();
    let renumbered = |id: ContextId| numbers.get(id.0 as usize).copied().unwrap_or_default();
    let mut kept = is_kept.into_iter();
    tree.contexts.retain_mut(|context| {
        context.parent = renumbered(context.parent);
        kept.next().unwrap_or(false)
    });
    for cell in &mut tree.cells {
        cell.context = renumbered(cell.context);
    }
}

/// The functions that are on a stack of the recording.
pub fn seen(genome: &Genome) -> FxHashSet<FuncId> {
    let contexts = genome.tree.contexts.iter();
    contexts.filter_map(|context| context.func).collect()
}
