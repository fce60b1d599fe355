//! Probes that keep their socket and send frames, because they cannot map memory: what they say goes the same way as what
//! stands in lanes.
//!
//! Frames come late: a probe sends what it has every half second. So while one is connected, nothing is said to have come
//! that is younger than [`LAG`].

mod conversation;
mod speech;

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::segment::{Budget, Charge};
use super::shared::{Give, Gone, Shared, Tally, ended, send};
use crate::event::{Pid, Tid};
use crate::target::Process;
use conversation::Conversation;

/// Frames may bring events that are so old, in ns.
pub(super) const LAG: u64 = 1_000_000_000;

/// Whether the processes that spoke still run is looked at this often, in ns.
const LOOK_EVERY: u64 = 250_000_000;

/// Ids that one process may give names to.
const MOST_IDS: u32 = 1 << 18;
/// Threads of one process.
const MOST_THREADS: usize = 8192;
/// Notes and blind spots of one process.
const MOST_WORDS: u32 = 512;

/// A peer that was let in, as the handshake hands it on.
pub(super) struct Newcomer {
    pub(super) stream: UnixStream,
    pub(super) process: Process,
    /// A source number.
    pub(super) source: u8,
    /// What came behind its HELLO.
    pub(super) inbox: Vec<u8>,
    /// The WELCOME, to be sent by whoever reads.
    pub(super) answer: Vec<u8>,
    pub(super) charge: Charge,
}

/// What one process may still cost us, over all of its connections, and its threads.
struct Known {
    process: Process,
    ids_left: u32,
    /// Bytes of names: a share of the budget, so that others find room too.
    names_left: u64,
    words_left: u32,
    budget: Arc<Budget>,
    /// The last event of each thread, in ns.
    threads: FxHashMap<Tid, u64>,
}

impl Known {
    fn of(process: Process, budget: &Arc<Budget>) -> Self {
        Self {
            process,
            ids_left: MOST_IDS,
            names_left: budget.total() / 8,
            words_left: MOST_WORDS,
            budget: Arc::clone(budget),
            threads: FxHashMap::default(),
        }
    }

    /// Whether one more function of so many bytes may be named.
    fn has_room(&self, bytes: u64) -> bool {
        self.ids_left > 0 && self.names_left >= bytes && self.budget.left() >= bytes
    }

    fn charge(&mut self, bytes: u64) {
        self.ids_left = self.ids_left.saturating_sub(1);
        self.names_left = self.names_left.saturating_sub(bytes);
        // Asked for just before: at most another thread was quicker, and the sum is a little above.
        let _within = self.budget.take(bytes);
    }
}

/// All peers that speak in frames.
pub(super) struct Frames {
    budget: Arc<Budget>,
    open: Vec<Conversation>,
    known: FxHashMap<(Pid, u64), Known>,
    /// Sums of conversations that are over.
    over: Tally,
    looked: u64,
}

impl Frames {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self {
            budget,
            open: Vec::new(),
            known: FxHashMap::default(),
            over: Tally::default(),
            looked: 0,
        }
    }

    /// Listens to one more.
    pub(super) fn begin(&mut self, newcomer: Newcomer, shared: &Shared) {
        self.open.push(Conversation::new(newcomer, shared.now));
    }

    /// Whether frames may still come.
    pub(super) fn is_silent(&self) -> bool {
        self.open.is_empty()
    }

    /// Reads what has come. True = there is more.
    pub(super) fn pass(&mut self, shared: &mut Shared, give: &mut Give<'_>) -> Result<bool, Gone> {
        let mut is_busy = false;
        for mut conversation in std::mem::take(&mut self.open) {
            let known = self
                .known
                .entry(conversation.key())
                .or_insert_with(|| Known::of(conversation.process().clone(), &self.budget));
            is_busy |= conversation.pass(known, shared, give)?;
            if conversation.is_over() {
                add(&mut self.over, conversation.tally());
            } else {
                self.open.push(conversation);
            }
        }
        if shared.now.saturating_sub(self.looked) >= LOOK_EVERY {
            self.looked = shared.now;
            self.find_ends(shared, give)?;
        }
        Ok(is_busy)
    }

    /// The recording ends: each peer is asked for what it still has, by the end of what we say.
    pub(super) fn ask_for_the_rest(&mut self) {
        self.open
            .iter_mut()
            .for_each(Conversation::ask_for_the_rest);
    }

    /// Who has not said BYE by now is cut off.
    pub(super) fn end(&mut self, shared: &mut Shared, give: &mut Give<'_>) -> Result<(), Gone> {
        for mut conversation in std::mem::take(&mut self.open) {
            if let Some(known) = self.known.get_mut(&conversation.key()) {
                conversation.cut(
                    "it sent no BYE before the recording ended",
                    known,
                    shared,
                    give,
                )?;
            }
            add(&mut self.over, conversation.tally());
        }
        self.find_ends(shared, give)
    }

    /// Sums over all conversations.
    pub(super) fn tally(&self) -> Tally {
        let mut sum = self.over;
        self.open
            .iter()
            .for_each(|conversation| add(&mut sum, conversation.tally()));
        sum
    }

    /// Threads whose end nobody else tells end with their process.
    fn find_ends(&mut self, shared: &Shared, give: &mut Give<'_>) -> Result<(), Gone> {
        let open: Vec<(Pid, u64)> = self.open.iter().map(Conversation::key).collect();
        let is_gone =
            |key: &(Pid, u64), known: &mut Known| !open.contains(key) && !known.process.is_alive();
        for ((pid, _), known) in self.known.extract_if(is_gone) {
            if shared.end_is_told(pid) {
                continue;
            }
            for (tid, last_ns) in known.threads {
                send(give, ended((pid, tid), last_ns))?;
            }
        }
        Ok(())
    }
}

fn add(sum: &mut Tally, more: &Tally) {
    sum.events += more.events;
    sum.faults += more.faults;
    sum.late += more.late;
    sum.lost_calls = sum.lost_calls.saturating_add(more.lost_calls);
    sum.lost_events = sum.lost_events.saturating_add(more.lost_events);
}

#[cfg(test)]
mod tests;
