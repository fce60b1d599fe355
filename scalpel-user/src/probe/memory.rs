//! Memory shared with a stranger: every access is bounded, atomic and of our own choosing.
//!
//! The only place of the room with `unsafe`. What is read here may change under our hands at any time: a caller reads a
//! value once and judges its own copy. Must not know what the bytes mean.
#![allow(
    unsafe_code,
    reason = "a mapping that other processes write to; every access goes through one checked function"
)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memmap2::MmapRaw;
use rustix::fs::{
    FallocateFlags, FlockOperation, MemfdFlags, SealFlags, fallocate, fcntl_add_seals,
    fcntl_get_seals, fcntl_lock,
};
use scalpel_common::segment::MEMORY_NAME;

use crate::event::{EVENT_SIZE, Event, Pid};

/// Seals that keep a mapping of the whole file whole.
const FIXED_SIZE: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// A memory file of fixed size, mapped for as long as this lives.
#[derive(Debug)]
pub(super) struct Memory {
    file: File,
    map: MmapRaw,
    len: u64,
}

impl Memory {
    /// Makes a file of this size that nobody can shrink or grow. Nothing of it has memory yet.
    pub(super) fn create(len: u64) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create(MEMORY_NAME, flags)?);
        file.set_len(len)?;
        fcntl_add_seals(&file, FIXED_SIZE | SealFlags::SEAL)?;
        Self::map(file, len)
    }

    /// Maps a file that another process made. One that could still be cut short is refused: reading behind
    /// its end would kill us.
    pub(super) fn take_over(file: File) -> io::Result<Self> {
        if !fcntl_get_seals(&file)?.contains(FIXED_SIZE) {
            return Err(io::Error::other("its size is not sealed"));
        }
        let len = file.metadata()?.len();
        Self::map(file, len)
    }

    /// Makes it ours until we end, however we end: the kernel takes the lock back with our last thread, and a target that
    /// has the file mapped does not keep it. An error names the process whose it is.
    pub(super) fn own(&self) -> Result<(), Owned> {
        match fcntl_lock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(()),
            Err(_held) => Err(Owned {
                by: self.inode().ok().and_then(holder),
            }),
        }
    }

    fn map(file: File, len: u64) -> io::Result<Self> {
        let map = MmapRaw::map_raw(&file)?;
        Ok(Self { file, map, len })
    }

    /// Size in bytes.
    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// The file, to be sent.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Inode of the file, by which a mapping of it is known in `/proc/PID/maps`.
    pub(super) fn inode(&self) -> io::Result<u64> {
        use std::os::unix::fs::MetadataExt;
        Ok(self.file.metadata()?.ino())
    }

    /// Puts memory behind a range, charged to us: a page that the target touched first would be charged to its cgroup.
    pub(super) fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        Ok(fallocate(&self.file, FallocateFlags::empty(), at, len)?)
    }

    fn place(&self, at: u64, size: u64) -> Option<*mut u8> {
        let end = at.checked_add(size)?;
        if end > self.len || !at.is_multiple_of(size) {
            return None;
        }
        // SAFETY: `at` lies within the mapping, which is `len` bytes long.
        Some(unsafe { self.map.as_mut_ptr().add(usize::try_from(at).ok()?) })
    }

    fn word(&self, at: u64) -> Option<&AtomicU64> {
        let place = self.place(at, 8)?.cast();
        // SAFETY: eight bytes within the mapping, aligned (`place`), and every access of ours to them is atomic. The
        // mapping lives as long as `self`.
        Some(unsafe { AtomicU64::from_ptr(place) })
    }

    fn half(&self, at: u64) -> Option<&AtomicU32> {
        let place = self.place(at, 4)?.cast();
        // SAFETY: as in `word`, for four bytes.
        Some(unsafe { AtomicU32::from_ptr(place) })
    }

    /// The word at an offset (load-acquire); 0 outside of the file.
    pub(super) fn u64(&self, at: u64) -> u64 {
        self.word(at).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Half a word, likewise.
    pub(super) fn u32(&self, at: u64) -> u32 {
        self.half(at).map_or(0, |half| half.load(Ordering::Acquire))
    }

    /// Stores a word (store-release); outside of the file nothing happens.
    pub(super) fn set_u64(&self, at: u64, value: u64) {
        if let Some(word) = self.word(at) {
            word.store(value, Ordering::Release);
        }
    }

    /// Half a word, likewise.
    pub(super) fn set_u32(&self, at: u64, value: u32) {
        if let Some(half) = self.half(at) {
            half.store(value, Ordering::Release);
        }
    }

    /// A copy of the event at an offset; all zero outside of the file.
    #[inline]
    pub(super) fn event(&self, at: u64) -> Event {
        let mut words = [0; EVENT_SIZE / 8];
        self.copy_words(at, &mut words);
        event_of(&words)
    }

    /// Appends copies of `count` events from an offset on; those outside of the file are left out.
    pub(super) fn events(&self, at: u64, count: u64, out: &mut Vec<Event>) {
        out.extend((0..count).map(|number| self.event(at + number * EVENT_SIZE as u64)));
    }

    #[inline]
    fn copy_words(&self, at: u64, words: &mut [u64; EVENT_SIZE / 8]) {
        let Some(first) = self.place(at, EVENT_SIZE as u64) else {
            return;
        };
        for (number, word) in words.iter_mut().enumerate() {
            // SAFETY: within the 64 bytes that `place` vouches for, aligned; atomic as all accesses of ours.
            let shared = unsafe { AtomicU64::from_ptr(first.cast::<u64>().add(number)) };
            *word = shared.load(Ordering::Relaxed);
        }
    }

    /// A copy of `len` bytes from an offset that is a multiple of 8; `None` where they do not all lie in the file.
    pub(super) fn bytes(&self, at: u64, len: u64) -> Option<Vec<u8>> {
        if at.checked_add(len)? > self.len || !at.is_multiple_of(8) {
            return None;
        }
        let mut bytes = Vec::with_capacity(usize::try_from(len).ok()?.next_multiple_of(8));
        let words = len.div_ceil(8);
        for number in 0..words {
            // The file's size is a multiple of a page: the last word is whole.
            bytes.extend(
                self.word(at + number * 8)?
                    .load(Ordering::Relaxed)
                    .to_le_bytes(),
            );
        }
        bytes.truncate(usize::try_from(len).ok()?);
        Some(bytes)
    }

    /// Writes bytes at an offset, one by one; outside of the file nothing happens. For what nobody reads yet.
    pub(super) fn put(&self, at: u64, bytes: &[u8]) {
        for (number, chunk) in (0u64..).zip(bytes.chunks(4)) {
            let mut half = [0; 4];
            half.iter_mut()
                .zip(chunk)
                .for_each(|(to, from)| *to = *from);
            self.set_u32(at.saturating_add(number * 4), u32::from_le_bytes(half));
        }
    }
}

/// A file is another collector's; `None` = the kernel does not tell whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) by: Option<Pid>,
}

/// The process that holds a lock on the memory file of this inode.
fn holder(inode: u64) -> Option<Pid> {
    holder_in(&std::fs::read_to_string("/proc/locks").ok()?, inode)
}

/// `1: POSIX  ADVISORY  WRITE 4711 00:01:1033 0 EOF`.
fn holder_in(locks: &str, inode: u64) -> Option<Pid> {
    let inode = inode.to_string();
    locks.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        if (words.next(), words.next(), words.next())
            != (Some("POSIX"), Some("ADVISORY"), Some("WRITE"))
        {
            return None;
        }
        let pid = words.next()?.parse().ok()?;
        let file = words.next()?.rsplit(':').next()?;
        (file == inode).then_some(Pid(pid))
    })
}

#[inline]
const fn event_of(words: &[u64; EVENT_SIZE / 8]) -> Event {
    let [time, cpu_ns, process, function, frame, site, value, rest] = *words;
    Event {
        time,
        cpu_ns,
        pid: process as u32,
        tid: (process >> 32) as u32,
        func: function as u32,
        seq: (function >> 32) as u32,
        frame,
        site,
        value,
        kind: rest as u8,
        source: (rest >> 8) as u8,
        flags: (rest >> 16) as u16,
        cpu: (rest >> 32) as u16,
        weight: (rest >> 48) as u8,
        reserved: (rest >> 56) as u8,
    }
}

/// The processor's time-stamp counter; 0 where there is none that user space may read.
#[inline]
pub(super) fn time_stamp_counter() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction, and nothing of ours forbids it to us (PR_SET_TSC).
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_as_its_bytes_say() {
        let memory = Memory::create(4096).unwrap();
        let bytes: Vec<u8> = (1..=64).collect();
        memory.put(128, &bytes);
        assert_eq!(
            memory.event(128),
            Event::from_bytes(bytes.first_chunk().unwrap())
        );
    }

    #[test]
    fn what_lies_outside_reads_as_nothing_and_cannot_be_written() {
        let memory = Memory::create(4096).unwrap();
        memory.set_u64(4096, 1);
        memory.set_u64(u64::MAX, 1);
        assert_eq!((memory.u64(4096), memory.u32(u64::MAX - 2)), (0, 0));
        assert_eq!(memory.event(4096 - 32), Event::default());
        assert_eq!(memory.bytes(4088, 9), None);
        assert_eq!(memory.bytes(8, u64::MAX), None);
        assert_eq!(memory.bytes(4088, 8).unwrap(), [0; 8]);
        assert_eq!(memory.bytes(0, 3).unwrap(), [0; 3]);
    }

    #[test]
    fn nobody_can_change_the_size() {
        let memory = Memory::create(8192).unwrap();
        assert!(memory.file.set_len(4096).is_err());
        assert!(memory.file.set_len(16384).is_err());
        memory.allocate(0, 8192).unwrap();
    }

    #[test]
    fn the_kernel_tells_whose_a_file_is() {
        let locks = "1: POSIX  ADVISORY  WRITE 17 00:01:1033 0 EOF\n\
                     2: POSIX  ADVISORY  READ 18 00:01:1034 0 EOF\n\
                     2: -> POSIX  ADVISORY  WRITE 19 00:01:1034 0 EOF\n\
                     3: OFDLCK ADVISORY  WRITE -1 00:01:1035 0 EOF\n4: x";
        let holders = [1033, 1034, 1035, 1].map(|inode| holder_in(locks, inode));
        assert_eq!(holders, [Some(Pid(17)), None, None, None]);
        let memory = Memory::create(4096).unwrap();
        assert_eq!(memory.own(), Ok(()));
        assert_eq!(
            holder(memory.inode().unwrap()),
            Some(Pid(std::process::id()))
        );
    }

    #[test]
    fn a_file_that_could_be_cut_is_not_taken_over() {
        let sealed = Memory::create(4096).unwrap();
        assert!(Memory::take_over(sealed.file.try_clone().unwrap()).is_ok());
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let open = File::from(rustix::fs::memfd_create("x", flags).unwrap());
        open.set_len(4096).unwrap();
        assert!(Memory::take_over(open).is_err());
    }
}
