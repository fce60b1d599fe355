//! The activations that are under way: frame address -> what its ENTER knew. Must not know Python.
//!
//! One table for the whole process: the interpreter lock orders all that touches it. Its memory is wiped in a forked child
//! (`MADV_WIPEONFORK`), because the child's events go to lanes where those activations never began.

use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Slots of the first table.
const FIRST_SLOTS: usize = 1 << 12;

/// One activation. `frame` 0 = an empty slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Activation {
    /// Address of the interpreter's frame; odd: the native call that this frame is making.
    pub(crate) frame: u64,
    /// What `enter` answered, never 0.
    pub(crate) token: u64,
    /// Serial of the task it belongs to, 0 = none.
    pub(crate) task: u64,
    /// Function id.
    pub(crate) func: u32,
    /// Event flags of its function.
    pub(crate) flags: u16,
    /// Left its thread at a `yield` or `await`.
    pub(crate) suspended: bool,
    /// The first of its task: the task is its own wherever it is resumed.
    pub(crate) root: bool,
}

/// A table with linear probing and without tombstones, at most three quarters full.
#[derive(Debug)]
pub(crate) struct Open {
    slots: NonNull<Activation>,
    mask: usize,
    len: NonNull<u64>,
}

impl Open {
    /// An empty table; `None` = no memory.
    pub(crate) fn new() -> Option<Self> {
        Self::with_slots(FIRST_SLOTS)
    }

    fn with_slots(slots: usize) -> Option<Self> {
        let bytes = Self::bytes(slots);
        // SAFETY: a new private anonymous mapping at an address of the kernel's choice overlaps nothing.
        let memory = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }
        .ok()?;
        // SAFETY: the range is the mapping just made.
        if unsafe { madvise(memory, bytes, Advice::LinuxWipeOnFork) }.is_err() {
            // SAFETY: nothing refers to the mapping yet.
            unsafe { munmap(memory, bytes) }.unwrap_or(());
            return None;
        }
        let first = NonNull::new(memory.cast::<Activation>())?;
        Some(Self {
            // SAFETY: the slot behind the first is within the mapping of `slots + 1`.
            slots: unsafe { first.add(1) },
            mask: slots - 1,
            len: first.cast(),
        })
    }

    const fn bytes(slots: usize) -> usize {
        (slots + 1) * size_of::<Activation>()
    }

    const fn home(&self, frame: u64) -> usize {
        // Frames are 8-byte aligned words of one stack: spread them by the golden ratio.
        (((frame >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize) & self.mask
    }

    const fn slot(&self, index: usize) -> *mut Activation {
        // SAFETY: the mask keeps the index within the mapping.
        unsafe { self.slots.as_ptr().add(index & self.mask) }
    }

    #[inline]
    fn read(&self, index: usize) -> Activation {
        // SAFETY: `slot` is in bounds, aligned and initialized (zero pages or a former write).
        unsafe { self.slot(index).read() }
    }

    #[inline]
    fn frame_at(&self, index: usize) -> u64 {
        // SAFETY: as in `read`.
        unsafe { (*self.slot(index)).frame }
    }

    #[inline]
    fn write(&self, index: usize, activation: Activation) {
        // SAFETY: as in `read`; the interpreter lock keeps others away.
        unsafe { self.slot(index).write(activation) }
    }

    fn len(&self) -> u64 {
        // SAFETY: the head of the mapping, aligned.
        unsafe { self.len.read() }
    }

    fn set_len(&self, len: u64) {
        // SAFETY: as in `len`.
        unsafe { self.len.write(len) }
    }

    #[inline]
    fn index_of(&self, frame: u64) -> Result<usize, usize> {
        let mut index = self.home(frame);
        loop {
            match self.frame_at(index) {
                found if found == frame => return Ok(index & self.mask),
                0 => return Err(index & self.mask),
                _ => index += 1,
            }
        }
    }

    /// The activation in this frame.
    #[inline]
    pub(crate) fn get(&self, frame: u64) -> Option<Activation> {
        self.index_of(frame).ok().map(|index| self.read(index))
    }

    /// The activation in this frame, to be changed; its `frame` must stay.
    #[inline]
    pub(crate) fn get_mut(&mut self, frame: u64) -> Option<&mut Activation> {
        let index = self.index_of(frame).ok()?;
        // SAFETY: as in `read`; the borrow of `self` keeps others away.
        Some(unsafe { &mut *self.slot(index) })
    }

    /// Where an activation of this frame goes, `Ok` = over the one that is there already; `None` = no memory. Good until
    /// the table is changed.
    #[inline]
    pub(crate) fn reserve(&mut self, frame: u64) -> Option<Result<usize, usize>> {
        if self.len() as usize >= self.mask / 4 * 3 && !self.grow() {
            return None;
        }
        Some(self.index_of(frame))
    }

    /// Puts an activation where [`Open::reserve`] said.
    #[inline]
    pub(crate) fn fill(&mut self, at: Result<usize, usize>, activation: Activation) {
        if at.is_err() {
            self.set_len(self.len() + 1);
        }
        let (Ok(index) | Err(index)) = at;
        self.write(index, activation);
    }

    /// Removes and returns the activation in this frame.
    #[inline]
    pub(crate) fn take(&mut self, frame: u64) -> Option<Activation> {
        self.take_if(frame, |_| true)
    }

    /// Removes and returns the activation in this frame, if it is the one that is meant.
    #[inline]
    pub(crate) fn take_if(
        &mut self,
        frame: u64,
        meant: impl FnOnce(&Activation) -> bool,
    ) -> Option<Activation> {
        let index = self.index_of(frame).ok()?;
        let taken = self.read(index);
        if !meant(&taken) {
            return None;
        }
        self.set_len(self.len().saturating_sub(1));
        self.close_hole(index);
        Some(taken)
    }

    /// Moves up what stands behind a hole and would not be found past it.
    #[inline]
    fn close_hole(&mut self, mut hole: usize) {
        let mut next = hole;
        loop {
            next = (next + 1) & self.mask;
            let frame = self.frame_at(next);
            if frame == 0 {
                self.write(hole, Activation::default());
                return;
            }
            let from_home = next.wrapping_sub(self.home(frame)) & self.mask;
            if from_home >= next.wrapping_sub(hole) & self.mask {
                self.write(hole, self.read(next));
                hole = next;
            }
        }
    }

    #[cold]
    fn grow(&mut self) -> bool {
        let Some(mut larger) = Self::with_slots((self.mask + 1) * 2) else {
            return false;
        };
        for index in 0..=self.mask {
            let activation = self.read(index);
            if activation.frame != 0
                && let free @ Err(_) = larger.index_of(activation.frame)
            {
                larger.fill(free, activation);
            }
        }
        let (old, bytes) = (self.len, Self::bytes(self.mask + 1));
        *self = larger;
        // SAFETY: the old mapping, which nothing refers to any more.
        unsafe { munmap(old.as_ptr().cast(), bytes) }.unwrap_or(());
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn activation(frame: u64, token: u64) -> Activation {
        Activation {
            frame,
            token,
            ..Activation::default()
        }
    }

    /// A small generator of numbers, so that a failure repeats.
    fn next(state: &mut u64) -> u64 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        *state >> 33
    }

    #[test]
    fn it_answers_as_a_hash_map_does_while_it_grows_and_shrinks() {
        let mut open = Open::with_slots(8).unwrap();
        let mut truth = HashMap::new();
        let mut state = 1;
        for step in 1..200_000_u64 {
            let frame = 0x7f00_0000_0000 + next(&mut state) % 3_000 * 8;
            if next(&mut state).is_multiple_of(2) {
                let at = open.reserve(frame).unwrap();
                open.fill(at, activation(frame, step));
                truth.insert(frame, step);
            } else {
                let taken = open.take(frame).map(|activation| activation.token);
                assert_eq!(taken, truth.remove(&frame));
            }
            assert_eq!(open.len() as usize, truth.len());
        }
        for (frame, token) in truth {
            assert_eq!(open.get(frame).map(|found| found.token), Some(token));
        }
    }
}
