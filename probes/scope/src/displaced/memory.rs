//! Memory of the copies: arenas near the code that they stand for, each with the same page of slots behind it. Code is
//! written through a second mapping, so that no page can be written and run.
use std::ptr::null_mut;

use super::may::Range;

/// Bytes of code of one arena.
pub(super) const CODE: u64 = 1 << 20;
/// Bytes of the slots.
const SLOTS: u64 = 4096;
/// Most arenas.
const MOST: u64 = 6;
/// How far an arena may be from the code.
const REACH: u64 = 1 << 30;
/// Steps in which a free place is looked for.
const STRIDE: u64 = 16 << 20;

/// Places in the page of slots.
pub(super) mod slot {
    pub(crate) const RAX: u64 = 0;
    pub(crate) const RCX: u64 = 8;
    pub(crate) const RDX: u64 = 16;
    /// Where an indirect branch leads.
    pub(crate) const TARGET: u64 = 24;
    /// Where the copy of that is.
    pub(crate) const JUMP: u64 = 32;
    /// Where the next word of the log goes.
    pub(crate) const CURSOR: u64 = 40;
    /// The table of copies.
    pub(crate) const TABLE: u64 = 48;
}

/// Room for copies of the code near it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arena {
    /// Where it is run.
    pub(super) run: u64,
    /// Where it is written.
    pub(super) write: u64,
    /// Bytes taken.
    pub(super) len: u64,
    /// Bytes taken by what is always there.
    pub(super) fixed: u64,
    /// The routine for indirect branches.
    pub(super) dispatch: u64,
    /// Its breakpoint for what has no copy yet.
    pub(super) miss: u64,
}

impl Arena {
    pub(super) fn holds(&self, addr: u64) -> bool {
        (self.run..self.run + CODE).contains(&addr)
    }

    /// The address of a slot, near the code.
    pub(super) fn slot(&self, slot: u64) -> u64 {
        self.run + CODE + slot
    }

    /// Whether all of the range can be reached from here, and what it reaches itself.
    pub(super) fn is_near(&self, (start, end): Range) -> bool {
        self.run.abs_diff(start) < REACH && self.run.abs_diff(end) < REACH
    }
}

/// The memory of one thread's copies. It is never given back: the next scope of a thread uses it again.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) arenas: Vec<Arena>,
    /// The page of slots, where the handler reads and writes it.
    slots: u64,
}

impl Memory {
    /// Arenas near all ranges, as far as there are places; `None` where the kernel gives no memory that can be run.
    pub(super) fn near(ranges: &[Range]) -> Option<Self> {
        // SAFETY: a name that ends in NUL; a new descriptor.
        let fd = unsafe { libc::memfd_create(c"scalpel-scope".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return None;
        }
        let memory = Self::of_file(fd, ranges);
        // SAFETY: the descriptor is ours; mappings stay.
        unsafe { libc::close(fd) };
        memory
    }

    fn of_file(fd: i32, ranges: &[Range]) -> Option<Self> {
        let all = SLOTS + MOST * CODE;
        // SAFETY: the descriptor is ours.
        if unsafe { libc::ftruncate(fd, libc::off_t::try_from(all).ok()?) } != 0 {
            return None;
        }
        let slots = map(0, all, libc::PROT_READ | libc::PROT_WRITE, 0, fd, 0)?;
        let mut memory = Self {
            arenas: Vec::new(),
            slots,
        };
        for range in ranges {
            let count = memory.arenas.len() as u64;
            if count < MOST && !memory.arenas.iter().any(|arena| arena.is_near(*range)) {
                let write = SLOTS + count * CODE;
                let run = place(*range, fd, write);
                memory.arenas.extend(run.map(|run| Arena {
                    run,
                    write: slots + write,
                    len: 0,
                    fixed: 0,
                    dispatch: 0,
                    miss: 0,
                }));
            }
        }
        (!memory.arenas.is_empty()).then_some(memory)
    }

    /// The value of a slot.
    pub(super) fn get(&self, slot: u64) -> u64 {
        // SAFETY: the page of slots is mapped for ever, and only this thread uses it.
        unsafe { ((self.slots + slot) as *const u64).read_volatile() }
    }

    pub(super) fn set(&self, slot: u64, value: u64) {
        // SAFETY: as above.
        unsafe { ((self.slots + slot) as *mut u64).write_volatile(value) };
    }
}

/// Maps code at a free place near the range, and the page of slots behind it.
fn place((start, end): Range, fd: i32, write: u64) -> Option<u64> {
    let fixed = libc::MAP_FIXED_NOREPLACE;
    let code = libc::PROT_READ | libc::PROT_EXEC;
    let down = (1..REACH / STRIDE / 2).map(|step| (start & !(CODE - 1)).checked_sub(step * STRIDE));
    let up =
        (1..REACH / STRIDE / 2).map(|step| ((end | (CODE - 1)) + 1).checked_add(step * STRIDE));
    let mut places = down.zip(up).flat_map(<[_; 2]>::from).flatten();
    places.find_map(|at| {
        if at < STRIDE {
            return None;
        }
        let run = map(
            at,
            CODE + SLOTS,
            libc::PROT_NONE,
            fixed | libc::MAP_ANONYMOUS,
            -1,
            0,
        )?;
        let tail = run + CODE;
        let data = libc::PROT_READ | libc::PROT_WRITE;
        let whole = map(run, CODE, code, libc::MAP_FIXED, fd, write)
            .and_then(|_| map(tail, SLOTS, data, libc::MAP_FIXED, fd, 0));
        whole.map(|_| run)
    })
}

fn map(at: u64, len: u64, access: i32, flags: i32, fd: i32, offset: u64) -> Option<u64> {
    let len = usize::try_from(len).ok()?;
    let kind = if fd < 0 {
        libc::MAP_PRIVATE
    } else {
        libc::MAP_SHARED
    };
    let at = at as *mut libc::c_void;
    let offset = libc::off_t::try_from(offset).ok()?;
    // SAFETY: a place of the kernel's choice, a free one, or one that is ours already.
    let got = unsafe { libc::mmap(at, len, access, kind | flags, fd, offset) };
    if got == libc::MAP_FAILED {
        return None;
    }
    if !at.is_null() && got != at {
        // An old kernel takes the place for a wish.
        // SAFETY: the mapping was just made.
        unsafe { libc::munmap(got, len) };
        return None;
    }
    Some(got as u64)
}

/// Private memory that is taken page by page as it is touched.
pub(super) fn private(len: usize) -> Option<u64> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at a place of the kernel's choice.
    let at = unsafe { libc::mmap(null_mut(), len, access, kind, -1, 0) };
    (at != libc::MAP_FAILED).then_some(at as u64)
}
