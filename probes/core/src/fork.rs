//! How a forked child knows that it is one, whichever way it was forked: the kernel wipes one word of its memory.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

/// Size of the mapping that holds the word.
const PAGE: usize = 4096;

/// The word, in a mapping with `MADV_WIPEONFORK`; 0 = this is a new child.
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// Forks since the process that connected; copied by a fork like any memory.
static FORKS: AtomicU32 = AtomicU32::new(1);

/// Maps the word. Once a process, before the first event.
pub(crate) fn prepare() -> std::io::Result<()> {
    // SAFETY: a new private anonymous mapping at an address of the kernel's choice overlaps nothing.
    let page = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            PAGE,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    }?;
    // SAFETY: the range is the mapping just made.
    unsafe { madvise(page, PAGE, Advice::LinuxWipeOnFork) }?;
    let word: *mut AtomicU32 = page.cast();
    // SAFETY: mapped above, writable, page-aligned, and never unmapped.
    unsafe { &*word }.store(FORKS.load(Ordering::Relaxed), Ordering::Relaxed);
    WORD.store(word, Ordering::Release);
    Ok(())
}

/// A number that is another one in each forked process, and never 0. Only after [`prepare`].
#[inline]
pub(crate) fn generation() -> u32 {
    let word = WORD.load(Ordering::Relaxed);
    // SAFETY: `prepare` stored a pointer to a mapping that stays, before any caller came here.
    let word = unsafe { &*word };
    match word.load(Ordering::Relaxed) {
        0 => again(word),
        generation => generation,
    }
}

/// A child's first event. Two of its threads may come here at once: the last number wins, and each claims a lane anew.
#[cold]
fn again(word: &AtomicU32) -> u32 {
    let generation = FORKS.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
    match word.compare_exchange(0, generation, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => generation,
        Err(other) => other,
    }
}
