//! The genome of one recording: what ran, in which context, what it cost, and what is not known about it.
//!
//! [`Genome`] is the data that reports read; [`store`] keeps it in a SQLite file, [`totals`] sums it up,
//! [`assemble`] builds it from what a session collected. Must not know how a number was measured.

pub mod assemble;
pub mod diff;
pub mod identity;
pub mod loss;
pub mod merge;
pub mod store;
mod strangers;
pub mod totals;
pub(crate) mod unseen;
pub(crate) mod walk;

use std::collections::BTreeMap;

use crate::catalog::{Catalog, FactsOfFiles, Matches};
use crate::event::MonoTime;
use crate::function::FunctionTable;
use crate::input::{Bound, KeptCall, Loss, RunInfo, Trigger};
use crate::tree::{Metrics, Tree};

pub use store::GenomeError;

/// Everything one recording tells.
#[derive(Debug)]
pub struct Genome {
    /// What was known when the recording began.
    pub run: RunInfo,
    /// `CLOCK_MONOTONIC` of the end; of the last thing heard, if the recording was cut.
    pub ended: MonoTime,
    /// The recording did not end by itself: the collector was killed, or the log is incomplete.
    pub cut: bool,
    /// Functions that ran, and functions that were to be watched.
    pub functions: FunctionTable,
    /// What ran.
    pub tree: Tree,
    /// Loss counters as they stood at the end, one a (class, processor, function).
    pub losses: Vec<Loss>,
    /// Functions whose numbers are lower bounds, or that were not watched at all; one a function.
    pub bounds: Vec<Bound>,
    /// Things the user should know.
    pub notes: Vec<String>,
    /// What the stages counted that fits no function.
    pub counters: BTreeMap<Counter, u64>,
    /// What the mechanisms of this recording cannot see.
    pub blind_spots: Vec<BlindSpot>,
    /// The triggers: with any, only the calls that they kept are in it.
    pub triggers: Vec<Trigger>,
    /// Those calls.
    pub kept: Vec<KeptCall>,
    /// What exists, if it was looked at; empty otherwise.
    pub catalog: Catalog,
    /// What a later build of the catalog needs to know of files that did not change; not read for reports.
    pub facts: FactsOfFiles,
    /// What each function is in the catalog.
    pub matches: Matches,
}

impl Genome {
    /// A recording of which only the head is known.
    pub fn of_run(run: RunInfo) -> Self {
        Self {
            ended: run.started,
            run,
            cut: false,
            functions: FunctionTable::new(),
            tree: Tree::default(),
            losses: Vec::new(),
            bounds: Vec::new(),
            notes: Vec::new(),
            counters: BTreeMap::new(),
            blind_spots: Vec::new(),
            triggers: Vec::new(),
            kept: Vec::new(),
            catalog: Catalog::default(),
            facts: FactsOfFiles::default(),
            matches: Matches::default(),
        }
    }

    /// Length of the recording in ns.
    pub const fn duration_ns(&self) -> u64 {
        self.ended.0.saturating_sub(self.run.started.0)
    }

    /// Events that arrived.
    pub fn events(&self) -> u64 {
        self.tree
            .threads
            .iter()
            .fold(0, |sum, thread| sum.saturating_add(thread.events))
    }

    /// Events that are known to be lost: by the counters at the source, or by gaps of the threads, whichever saw more.
    pub fn lost(&self) -> u64 {
        let gaps = self
            .tree
            .threads
            .iter()
            .fold(0u64, |sum, thread| sum.saturating_add(thread.lost));
        gaps.max(loss::Losses::of(&self.losses).events())
    }

    /// One number of all cells together.
    pub fn sum(&self, number: fn(&Metrics) -> u64) -> u64 {
        let cells = self.tree.cells.iter();
        cells.fold(0, |sum, cell| sum.saturating_add(number(&cell.metrics)))
    }

    /// Lost events and samples as a share of all of them, 0 to 1.
    pub fn lost_share(&self) -> f64 {
        let arrived = self.events().saturating_add(self.sum(|m| m.samples));
        share(self.lost(), arrived.saturating_add(self.lost()))
    }

    /// Whether the result is partial: the recording was cut, or lost more than `max_loss` (a share, 0 to 1) of its
    /// events.
    pub fn is_partial(&self, max_loss: f64) -> bool {
        self.cut || self.lost_share() > max_loss
    }

    /// A counter, 0 if it was never touched.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(&counter).copied().unwrap_or(0)
    }
}

/// `part / whole`, and 0 of nothing.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// Something a mechanism cannot see, so that *did not run* and *could not be seen* can be told apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlindSpot {
    /// Which mechanism: `uprobe`, `sampler`, a language probe.
    pub probe: String,
    /// What it cannot see, as a sentence.
    pub what: String,
}

macro_rules! counters {
    ($($(#[$meta:meta])* $variant:ident = $word:literal,)+) => {
        /// What is counted for a whole recording.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Counter {
            $($(#[$meta])* $variant,)+
        }

        impl Counter {
            /// Every counter.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Stable word in files.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
}

counters! {
    /// Events that name function 0.
    ZeroIds = "zero-ids",
    /// Records that are no event of this version.
    DecodeFaults = "decode-faults",
    /// Events older than an earlier event of their thread.
    ClockBackwards = "clock-backwards",
    /// Events that arrived after their thread was already released past them.
    LateEvents = "late-events",
    /// Probe hits that the kernel dropped because a program was already running on the processor.
    RecursionMisses = "recursion-misses",
    /// Times the kernel throttled the sampler.
    SamplesThrottled = "samples-throttled",
    /// 1 if the target ended while probes were being attached.
    TargetEndedInAttach = "target-ended-in-attach",
}

#[cfg(test)]
pub(crate) mod tests;
