//! Where the copy of an address is: a table that the copies themselves look in, by the low bits of the address, and an
//! index of all copies for the handler.
use super::memory::private;

/// Entries of the table that the copies read.
const ENTRIES: usize = 1 << 16;
/// Bytes from an address to its copy.
pub(super) const HALF: u32 = (ENTRIES * 8) as u32;
/// Places of the index: twice as many as there can be blocks.
const PLACES: usize = 1 << 15;

/// Both of them.
#[derive(Debug)]
pub(super) struct Table {
    near: u64,
    index: Vec<(u64, u32)>,
}

impl Table {
    pub(super) fn new() -> Option<Self> {
        let near = private(2 * HALF as usize)?;
        let mut table = Self {
            near,
            index: vec![(0, 0); PLACES],
        };
        table.clear();
        Some(table)
    }

    /// The address of the table for the copies.
    pub(super) fn near(&self) -> u64 {
        self.near
    }

    pub(super) fn clear(&mut self) {
        // SAFETY: the mapping is ours and private: its pages come back as zeros.
        unsafe {
            libc::madvise(
                self.near as *mut libc::c_void,
                2 * HALF as usize,
                libc::MADV_DONTNEED,
            )
        };
        // Address 0 has no copy, and an empty place reads as 0: an odd one is never looked for here.
        self.put(0, 1, 0);
        self.index.fill((0, 0));
    }

    /// Lets indirect branches to `addr` find `copy`.
    pub(super) fn lead(&self, addr: u64, copy: u64) {
        let place = usize::from(addr as u16);
        self.put(place, addr, copy);
    }

    fn put(&self, place: usize, addr: u64, copy: u64) {
        let at = self.near as *mut u64;
        // SAFETY: `place` is below ENTRIES, of which there are two halves; the copies do not run now.
        unsafe {
            at.add(place + ENTRIES).write(copy);
            at.add(place).write(addr);
        }
    }

    /// The block at `addr`.
    pub(super) fn find(&self, addr: u64) -> Option<usize> {
        self.places(addr)
            .map_while(|place| self.index.get(place))
            .take_while(|(known, _)| *known != 0)
            .find(|(known, _)| *known == addr)
            .and_then(|(_, block)| usize::try_from(*block).ok())
    }

    /// Notes the block at `addr`.
    pub(super) fn note(&mut self, addr: u64, block: usize) {
        let free = self
            .places(addr)
            .find(|place| self.index.get(*place).is_some_and(|(known, _)| *known == 0));
        if let Some(place) = free.and_then(|place| self.index.get_mut(place)) {
            *place = (addr, u32::try_from(block).unwrap_or(u32::MAX));
        }
    }

    fn places(&self, addr: u64) -> impl Iterator<Item = usize> + use<> {
        let home = addr.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 49;
        let home = usize::try_from(home).unwrap_or(0);
        (0..PLACES).map(move |step| (home + step) % PLACES)
    }
}
