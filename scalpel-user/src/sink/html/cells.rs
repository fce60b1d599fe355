//! The calling-context tree as columns: contexts, and what was measured in each, per thread and window.
//!
//! A page stays openable whatever the recording's size: windows are joined two by two until the cells fit, and threads
//! after that; what was joined is said in the page.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::column::Column;
use crate::tree::{EdgeSource, Metrics, Tree};

/// Most cells in a page.
pub(super) const MOST_CELLS: usize = 1_500_000;

/// How the cells of a page were made smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Joined {
    /// Length of a window in the page, ns.
    pub(super) window_ns: u64,
    /// All threads stand as one.
    pub(super) threads: bool,
}

/// Thread, window, context.
type Key = (u32, u32, u32);

type Metric = fn(&Metrics) -> u64;

/// Writes contexts and cells; tells what had to be joined.
pub(super) fn write(tree: &Tree, most: usize, out: &mut dyn Write) -> io::Result<Joined> {
    contexts(tree, out)?;
    let (joined, cells) = fitting(tree, most);
    let mut columns = vec![Column::default(); 3 + METRICS.len()];
    for ((thread, window, context), metrics) in &cells {
        let key = [*thread, *window, *context].map(u64::from);
        for (column, number) in columns.iter_mut().zip(key) {
            column.push_near(number);
        }
        for (column, (_, metric)) in columns.iter_mut().skip(3).zip(METRICS) {
            column.push(metric(metrics));
        }
    }
    let names = ["thread", "window", "context"]
        .into_iter()
        .chain(METRICS.iter().map(|(name, _)| *name));
    for (name, column) in names.zip(&columns) {
        column.write(&format!("cell.{name}"), out)?;
    }
    Ok(joined)
}

/// What of a cell is in a page.
const METRICS: [(&str, Metric); 10] = [
    ("calls", |m| m.calls),
    ("self_wall_ns", |m| m.self_wall_ns),
    ("self_cpu_ns", |m| m.self_cpu_ns),
    ("samples", |m| m.samples),
    ("sampled_ns", |m| m.sampled_ns),
    ("lost", |m| m.lost),
    ("timed", |m| m.timed),
    ("cpu_timed", |m| m.cpu_timed),
    ("suspended_ns", |m| m.suspended_ns),
    ("off_cpu_ns", |m| m.off_cpu_ns),
];

fn contexts(tree: &Tree, out: &mut dyn Write) -> io::Result<()> {
    let (mut parent, mut func, mut source) =
        (Column::default(), Column::default(), Column::default());
    for context in &tree.contexts {
        parent.push_near(u64::from(context.parent.0));
        func.push(context.func.map_or(0, |func| u64::from(func.get())));
        source.push(match context.source {
            EdgeSource::Sampled => 0,
            EdgeSource::Inlined => 3,
            EdgeSource::CallSite => 1,
            EdgeSource::Exact => 2,
        });
    }
    parent.write("context.parent", out)?;
    func.write("context.func", out)?;
    source.write("context.source", out)
}

/// The cells, joined until there are at most `most`: sums over windows first, then over threads.
fn fitting(tree: &Tree, most: usize) -> (Joined, Vec<(Key, Metrics)>) {
    let last = tree.cells.iter().map(|cell| cell.window).max().unwrap_or(0);
    let mut shift = 0;
    loop {
        let cells = joined(tree, shift, false);
        if cells.len() <= most || last >> shift == 0 {
            let threads = cells.len() > most;
            let cells = if threads {
                joined(tree, shift, true)
            } else {
                cells
            };
            let window_ns = tree.window_ns.saturating_mul(1 << shift.min(63));
            return (Joined { window_ns, threads }, cells);
        }
        shift += 1;
    }
}

fn joined(tree: &Tree, shift: u32, threads: bool) -> Vec<(Key, Metrics)> {
    let mut sums: FxHashMap<Key, Metrics> = FxHashMap::default();
    for cell in &tree.cells {
        let thread = if threads { 0 } else { cell.thread };
        sums.entry((thread, cell.window >> shift, cell.context.0))
            .or_default()
            .add(&cell.metrics);
    }
    let mut cells: Vec<_> = sums.into_iter().collect();
    cells.sort_unstable_by_key(|(key, _)| *key);
    cells
}

#[cfg(test)]
mod tests {
    use super::{Joined, fitting};
    use crate::genome::tests::example;

    #[test]
    fn all_cells_stay_apart_where_they_fit() {
        let tree = example().tree;
        let (joined, cells) = fitting(&tree, 1000);
        assert_eq!(
            joined,
            Joined {
                window_ns: tree.window_ns,
                threads: false
            }
        );
        assert_eq!(cells.len(), tree.cells.len());
    }

    #[test]
    fn windows_are_joined_before_threads_and_nothing_is_lost() {
        let tree = example().tree;
        let calls: u64 = tree.cells.iter().map(|cell| cell.metrics.calls).sum();
        let mut seen = Vec::new();
        for most in (1..=tree.cells.len()).rev() {
            let (joined, cells) = fitting(&tree, most);
            assert_eq!(cells.iter().map(|(_, m)| m.calls).sum::<u64>(), calls);
            seen.push((joined.window_ns > tree.window_ns, joined.threads));
        }
        assert!(seen.contains(&(true, true)) && seen.is_sorted(), "{seen:?}");
    }
}
