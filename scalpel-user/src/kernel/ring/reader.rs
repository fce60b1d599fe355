//! Reads one BPF ring buffer through its shared memory.
//!
//! Own code beside aya's reader because it must know *how far* it has read: up to the producer's position at a given
//! moment, or only up to a record that is still being written; and because it gives room back in large steps.
//! Layout: <https://docs.kernel.org/bpf/ringbuf.html>.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use rustix::param::page_size;

/// Set in a record's header while its producer still writes it.
const BUSY: u32 = 1 << 31;
/// Set in the header of a record that its producer gave up.
const DISCARDED: u32 = 1 << 30;
/// Bytes of a record's header.
const HEADER: u64 = 8;
/// Room is given back to the producers after so many bytes: each time costs them a cache miss.
const GIVE_BACK: u64 = 256 << 10;

/// How a pass over a ring ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// Everything up to the given position was read.
    Reached,
    /// A record before it is still being written.
    Busy,
}

/// The consumer's end of a ring. There is one per ring.
#[derive(Debug)]
pub(super) struct Reader {
    descriptor: OwnedFd,
    /// The consumer's position: one page that both sides write.
    consumer: MmapRaw,
    /// The producers' position, and the data twice in a row, so that no record is cut at the end.
    producer: MmapRaw,
    data: usize,
    bytes: u64,
    position: u64,
}

impl Reader {
    /// Maps the ring of `bytes` bytes.
    pub(super) fn map(descriptor: OwnedFd, bytes: u32) -> io::Result<Self> {
        let page = page_size();
        let consumer = MmapOptions::new().len(page).map_raw(&descriptor)?;
        let length = page + 2 * bytes as usize;
        let producer = MmapOptions::new()
            .offset(page as u64)
            .len(length)
            .map_raw_read_only(&descriptor)?;
        let mut reader = Self {
            descriptor,
            consumer,
            producer,
            data: page,
            bytes: u64::from(bytes),
            position: 0,
        };
        reader.position = reader.consumer_position().load(Ordering::Acquire);
        Ok(reader)
    }

    /// To wait on.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Up to where producers have reserved room so far.
    pub(super) fn reserved(&self) -> u64 {
        // SAFETY: the mapping's first page begins with the position, aligned to the page, and lives as long as `self`.
        // The kernel writes it atomically.
        let position = unsafe { &*self.producer.as_ptr().cast::<AtomicU64>() };
        position.load(Ordering::Acquire)
    }

    /// Bytes between the reader and `position`.
    pub(super) const fn pending(&self, position: u64) -> u64 {
        position.wrapping_sub(self.position)
    }

    /// Size in bytes.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Hands every finished record before `position` (a value of [`Self::reserved`]) to `record`, in order.
    pub(super) fn read(&mut self, position: u64, mut record: impl FnMut(&[u8])) -> Pass {
        let mut given_back = self.position;
        let mut pass = Pass::Reached;
        while self.position != position {
            let header = self.header();
            if header & BUSY != 0 {
                pass = Pass::Busy;
                break;
            }
            let length = u64::from(header & !DISCARDED);
            if header & DISCARDED == 0 {
                record(self.record(length));
            }
            self.position = self
                .position
                .wrapping_add((length + HEADER).next_multiple_of(8));
            if self.position.wrapping_sub(given_back) >= GIVE_BACK {
                given_back = self.position;
                self.give_back();
            }
        }
        self.give_back();
        pass
    }

    fn header(&self) -> u32 {
        let at = self.data + (self.position & (self.bytes - 1)) as usize;
        // SAFETY: the offset is within the first copy of the data, and records are aligned to 8.
        let header = unsafe { self.producer.as_ptr().add(at).cast::<AtomicU32>() };
        // SAFETY: as above; the kernel writes the header atomically, and clears BUSY after the record's bytes.
        unsafe { &*header }.load(Ordering::Acquire)
    }

    /// The bytes of the record at the reader's position.
    fn record(&self, length: u64) -> &[u8] {
        // The kernel never reserves more than the ring has; a larger number would be a broken kernel.
        let length = length.min(self.bytes - HEADER) as usize;
        let at = self.data + (self.position & (self.bytes - 1)) as usize + HEADER as usize;
        // SAFETY: `at` is within the first copy of the data or one header behind it, and `length` is less than a copy:
        // the second copy holds what goes beyond the first.
        let start = unsafe { self.producer.as_ptr().add(at) };
        // SAFETY: as above; producers do not touch a finished record before it is given back.
        unsafe { std::slice::from_raw_parts(start, length) }
    }

    fn give_back(&self) {
        self.consumer_position()
            .store(self.position, Ordering::Release);
    }

    fn consumer_position(&self) -> &AtomicU64 {
        // SAFETY: the page begins with the position, aligned to the page, and lives as long as `self`.
        unsafe { &*self.consumer.as_ptr().cast::<AtomicU64>() }
    }
}
