//! Code that cannot be written, read once: a look at each instruction costs a system call, and most of what runs is the
//! text of files. What was read is compared with memory again now and then, before a line is given up, before the thread
//! itself changes the mapping, and at the close: text that somebody has changed is a reason.
//! All but `renew` runs in the handler: no libc, no lock, no allocation.
use super::memory;
use super::thread::LONGEST;

/// Instructions that are kept.
const LINES: usize = 1 << 12;
/// Mappings of text that are known.
const MOST_RANGES: usize = 64;
/// A line is read anew after so many uses.
const TRUSTED: u32 = 64;
/// Lines that are compared by one system call.
const BATCH: usize = 32;

/// One instruction's bytes, and what stands behind it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Line {
    addr: u64,
    generation: u32,
    uses: u32,
    bytes: [u8; LONGEST],
}

/// What is known of the text. Zeroed memory is one that knows nothing.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Text {
    ranges: [(u64, u64); MOST_RANGES],
    count: usize,
    /// Lines of another one are none.
    generation: u32,
    /// Somebody has changed what was read.
    changed: bool,
    used: usize,
    places: [u16; LINES],
    lines: [Line; LINES],
}

impl Text {
    /// Takes over what is mapped now: private mappings that can be run and not written. To be called before the thread is
    /// armed.
    pub(super) fn renew(&mut self, ranges: impl Iterator<Item = (u64, u64)>) {
        self.forget();
        self.changed = false;
        self.count = 0;
        for (place, range) in self.ranges.iter_mut().zip(ranges) {
            *place = range;
            self.count += 1;
        }
    }

    /// The bytes at `addr`, if they are known.
    pub(super) fn get(&mut self, addr: u64) -> Option<[u8; LONGEST]> {
        let generation = self.generation;
        let line = self.lines.get_mut(place(addr))?;
        if line.addr != addr || line.generation != generation {
            return None;
        }
        line.uses = line.uses.wrapping_add(1);
        (line.uses % TRUSTED != 0).then_some(line.bytes)
    }

    /// These bytes were just read at `addr`. Whether they need not be looked at again.
    pub(super) fn learn(&mut self, addr: u64, bytes: &[u8; LONGEST]) -> bool {
        let ranges = self.ranges.get(..self.count).unwrap_or_default();
        let end = addr.saturating_add(LONGEST as u64);
        if !ranges
            .iter()
            .any(|(start, stop)| *start <= addr && end <= *stop)
        {
            return false;
        }
        let (place, generation) = (place(addr), self.generation);
        let Some(line) = self.lines.get(place).copied() else {
            return false;
        };
        let known = line.generation == generation && line.addr != 0;
        if known && line.addr == addr {
            self.changed |= line.bytes != *bytes;
            return true;
        }
        if known {
            self.changed |= !same(&line);
        } else if let Some(free) = self.places.get_mut(self.used) {
            *free = u16::try_from(place).unwrap_or(0);
            self.used += 1;
        }
        if let Some(line) = self.lines.get_mut(place) {
            *line = Line {
                addr,
                generation,
                uses: 0,
                bytes: *bytes,
            };
        }
        true
    }

    /// The thread is about to change what is mapped there.
    pub(super) fn changes(&mut self, at: u64, len: u64) {
        let end = at.saturating_add(len.max(1));
        let mut any = false;
        for range in self.ranges.iter_mut().take(self.count) {
            if range.0 < end && at < range.1 {
                *range = (0, 0);
                any = true;
            }
        }
        if any {
            self.compare();
            self.forget();
        }
    }

    /// Nothing is known any more.
    pub(super) fn off(&mut self) {
        self.compare();
        self.forget();
        self.count = 0;
    }

    /// Whether memory is as it was read.
    pub(super) fn is_true(&mut self) -> bool {
        self.compare();
        !std::mem::take(&mut self.changed)
    }

    fn forget(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.used = 0;
    }

    fn compare(&mut self) {
        let places = self.places.get(..self.used).unwrap_or_default();
        for batch in places.chunks(BATCH) {
            let mut remote = [0_u64; 2 * BATCH];
            let mut bytes = [0_u8; LONGEST * BATCH];
            let lines = batch
                .iter()
                .filter_map(|at| self.lines.get(usize::from(*at)));
            for (pair, line) in remote.as_chunks_mut::<2>().0.iter_mut().zip(lines.clone()) {
                *pair = [line.addr, LONGEST as u64];
            }
            let wanted = LONGEST * batch.len();
            let (Some(remote), Some(buffer)) =
                (remote.get(..2 * batch.len()), bytes.get_mut(..wanted))
            else {
                return;
            };
            let whole = memory::read_all(remote, buffer) == wanted;
            let (read, _) = bytes.as_chunks::<LONGEST>();
            let alike = lines
                .clone()
                .zip(read)
                .all(|(line, now)| line.bytes == *now);
            // What cannot be read all at once is read one by one.
            if !(whole && alike || lines.clone().all(same)) {
                self.changed = true;
                return;
            }
        }
    }
}

fn place(addr: u64) -> usize {
    usize::try_from((addr ^ addr >> 12) % LINES as u64).unwrap_or(0)
}

fn same(line: &Line) -> bool {
    let mut now = [0; LONGEST];
    memory::read(line.addr, &mut now) == LONGEST && now == line.bytes
}
