//! The log of the copies: the numbers of the blocks that ran, and rcx around string instructions. A run of it stands in the
//! thread's own log as one entry, and is made into instructions when the scope is closed.
use super::super::thread::{Entry, LONGEST, Thread, mark};
use super::blocks::{Block, Blocks, Line};
use super::memory::private;
use crate::oracle;

/// Blocks of one thread's scopes.
const WORDS: usize = 1 << 19;
/// Behind them the page that may not be written.
const GUARD: usize = 4096;

/// The memory of the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Log(u64);

impl Log {
    pub(super) fn new() -> Option<Self> {
        let at = private(WORDS * 8 + GUARD)?;
        let guard = (at + WORDS as u64 * 8) as *mut libc::c_void;
        // SAFETY: the last page of our own mapping.
        let result = unsafe { libc::mprotect(guard, GUARD, libc::PROT_NONE) };
        (result == 0).then_some(Self(at))
    }

    pub(super) fn start(self) -> u64 {
        self.0
    }

    /// Whether a fault at this address says that the log is full.
    pub(super) fn is_full_at(self, addr: u64) -> bool {
        let end = self.0 + WORDS as u64 * 8;
        (end..end + GUARD as u64).contains(&addr)
    }

    /// The word before the cursor.
    pub(super) fn last_word(self, to: u64) -> u64 {
        self.words(to.saturating_sub(8).max(self.0), to)
            .last()
            .copied()
            .unwrap_or(0)
    }

    /// Writes a word at the cursor, for which the copy has made sure that there is room.
    pub(super) fn put(self, to: u64, word: u64) {
        // SAFETY: the copy of a string instruction has touched the words behind its number.
        unsafe { (to as *mut u64).write(word) };
    }

    fn words(self, from: u64, to: u64) -> &'static [u64] {
        let len = usize::try_from(to.saturating_sub(from) / 8).unwrap_or(0);
        // SAFETY: both lie in the log, which is never unmapped; what is below the cursor is written, and stays.
        unsafe { std::slice::from_raw_parts(from as *const u64, len) }
    }
}

/// One block that ran, and how often its string instruction did.
pub(super) struct Ran<'a> {
    pub(super) block: &'a Block,
    pub(super) times: u32,
}

/// The blocks of a run in order.
pub(super) fn ran<'a>(
    blocks: &'a Blocks,
    log: Log,
    from: u64,
    to: u64,
) -> impl Iterator<Item = Ran<'a>> {
    let mut words = log.words(from, to).iter();
    std::iter::from_fn(move || {
        let number = usize::try_from(*words.next()?).ok()?;
        let block = blocks.get(number)?;
        let times = if block.repeated {
            let before = words.next();
            let turns = before
                .zip(words.next())
                .map(|(before, behind)| before.wrapping_sub(*behind));
            u32::try_from(turns.unwrap_or(0)).unwrap_or(u32::MAX)
        } else {
            1
        };
        Some(Ran { block, times })
    })
}

/// A run of blocks, as it stands in the thread's log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) from: u64,
    pub(super) to: u64,
    /// Where the thread went behind it.
    pub(super) left: u64,
    /// Instructions of the last block that did not run.
    pub(super) missing: u8,
}

impl Run {
    pub(super) fn entry(self, marks: u8) -> Entry {
        let mut bytes = [0; LONGEST];
        for (place, byte) in bytes.iter_mut().zip(self.to.to_le_bytes()) {
            *place = byte;
        }
        Entry {
            addr: self.from,
            next: self.left,
            count: 0,
            len: self.missing,
            marks: marks | mark::RUN,
            bytes,
        }
    }

    fn of(entry: &Entry) -> Self {
        let to = entry.bytes.first_chunk::<8>().copied().unwrap_or_default();
        Self {
            from: entry.addr,
            to: u64::from_le_bytes(to),
            left: entry.next,
            missing: entry.len,
        }
    }
}

/// The thread's log with each run made into its instructions.
pub(super) fn flat(blocks: Option<(&Blocks, Log)>, entries: &[Entry]) -> Vec<Entry> {
    let mut all = Vec::with_capacity(entries.len());
    for entry in entries {
        match blocks {
            Some((blocks, log)) if entry.marks & mark::RUN != 0 => {
                expand(blocks, log, entry, &mut all);
            }
            _ => all.push(*entry),
        }
    }
    all
}

fn expand(blocks: &Blocks, log: Log, entry: &Entry, all: &mut Vec<Entry>) {
    let run = Run::of(entry);
    let first = all.len();
    for Ran { block, times } in ran(blocks, log, run.from, run.to) {
        for line in blocks.lines(block) {
            let behind = line.addr + u64::from(line.len);
            if all.len() > first
                && let Some(last) = all.last_mut()
            {
                last.next = line.addr;
            }
            all.push(instruction(line, times.max(1), behind));
        }
    }
    all.truncate(all.len() - usize::from(run.missing).min(all.len() - first));
    if all.len() > first {
        if let Some(last) = all.last_mut() {
            last.next = run.left;
            // Turns of an interrupted string instruction that were stepped.
            last.count = last.count.saturating_add(entry.count);
        }
        if let Some(begin) = all.get_mut(first) {
            begin.marks |= entry.marks & !mark::RUN;
        }
    }
}

fn instruction(line: &Line, count: u32, next: u64) -> Entry {
    Entry {
        addr: line.addr,
        next,
        count,
        len: line.len,
        marks: mark::COPIED,
        bytes: line.bytes,
    }
}

/// Counts what ran, for the thread and each open scope.
pub(super) fn count(
    thread: &mut Thread,
    blocks: &Blocks,
    Ran { block, times }: &Ran<'_>,
    missing: usize,
) {
    let lines = blocks.lines(block);
    let most = lines.len().saturating_sub(missing);
    let times = u64::from((*times).max(1));
    for line in lines.iter().take(most) {
        thread.counted += times;
        let frames = thread.frames.iter_mut().flatten();
        for frame in frames.filter(|frame| frame.form.shows(line.addr)) {
            frame.shown += times;
            let bytes = line.bytes.get(..usize::from(line.len));
            frame.seal = oracle::seal(frame.seal, line.addr, bytes.unwrap_or_default());
        }
    }
}
