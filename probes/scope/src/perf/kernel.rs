//! The door to the real kernel: one system call opens an event, its memory is mapped, and heads and tails are read and
//! written as the kernel's protocol wants it.
#![expect(
    unsafe_code,
    reason = "system calls, and memory that the kernel writes"
)]
use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Area, Channel, Door, Refusal, Step, Taken, Wish};

/// Bytes of `perf_event_attr` that are given: version 5 of it.
const ATTR: usize = 112;
const PAGE: usize = 4096;
/// Pages for records.
const RECORDS: usize = 64;
/// `disabled`, `exclude_kernel`, `exclude_hv`.
const FLAGS: u64 = 1 | 1 << 5 | 1 << 6;
/// Places in the control page.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;
const AUX_HEAD: usize = 1056;
const AUX_TAIL: usize = 1064;
const AUX_OFFSET: usize = 1072;
const AUX_SIZE: usize = 1080;
const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_DISABLE: libc::c_ulong = 0x2401;
const IOC_SET_FILTER: libc::c_ulong = 0x4008_2406;

/// The kernel of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kernel;

impl Door for Kernel {
    fn open(&self, wish: &Wish) -> Result<Box<dyn Channel>, Refusal> {
        let fd = event(wish)?;
        let control = Mapping::of(&fd, (1 + RECORDS) * PAGE, 0, true)?;
        let traced = match wish.area {
            Some(area) => Some((area, traced(&fd, &control, area)?)),
            None => None,
        };
        if let Some(filter) = &wish.filter {
            set_filter(&fd, filter)?;
        }
        Ok(Box::new(Ring {
            fd,
            control,
            traced,
        }))
    }
}

fn refused(step: Step) -> Refusal {
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    Refusal { step, errno }
}

fn event(wish: &Wish) -> Result<OwnedFd, Refusal> {
    let mut attr = [0_u8; ATTR];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = attr.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    put(0, &wish.kind.to_le_bytes());
    put(4, &(ATTR as u32).to_le_bytes());
    put(8, &wish.config.to_le_bytes());
    put(16, &wish.period.to_le_bytes());
    put(24, &wish.sample_type.to_le_bytes());
    put(40, &FLAGS.to_le_bytes());
    put(72, &wish.branch_sample_type.to_le_bytes());
    const CLOEXEC: libc::c_ulong = 8;
    let thread = wish.thread.cast_signed();
    // SAFETY: the attributes are alive and as long as they say; one thread, on any processor, without a group.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attr.as_ptr(),
            thread,
            -1,
            -1,
            CLOEXEC,
        )
    };
    let fd = i32::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(refused(Step::Open));
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set_filter(fd: &OwnedFd, filter: &str) -> Result<(), Refusal> {
    let einval = |_| Refusal {
        step: Step::Filter,
        errno: libc::EINVAL,
    };
    let text = CString::new(filter).map_err(einval)?;
    // SAFETY: the text is alive and ends.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), IOC_SET_FILTER, text.as_ptr()) };
    if done < 0 {
        Err(refused(Step::Filter))
    } else {
        Ok(())
    }
}

/// Memory for tracing data: its place is written into the control page first.
fn traced(fd: &OwnedFd, control: &Mapping, area: Area) -> Result<Mapping, Refusal> {
    let offset = (1 + RECORDS) * PAGE;
    control
        .word(AUX_OFFSET)
        .store(offset as u64, Ordering::Relaxed);
    control
        .word(AUX_SIZE)
        .store(area.bytes as u64, Ordering::Relaxed);
    // What may not be written is a ring that goes on over its oldest bytes.
    Mapping::of(fd, area.bytes, offset, !area.snapshot)
}

#[derive(Debug)]
struct Mapping {
    at: *mut u8,
    len: usize,
}

// SAFETY: the memory is the mapping's own, and is used by one thread at a time.
unsafe impl Send for Mapping {}

impl Mapping {
    fn of(fd: &OwnedFd, len: usize, offset: usize, writable: bool) -> Result<Self, Refusal> {
        let access = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        let offset = libc::off_t::try_from(offset).unwrap_or(0);
        let fd = fd.as_raw_fd();
        // SAFETY: a new mapping, wherever the kernel likes.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                access,
                libc::MAP_SHARED,
                fd,
                offset,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(refused(Step::Map));
        }
        Ok(Self { at: at.cast(), len })
    }

    /// A word that the kernel reads or writes too.
    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at + 8 <= self.len && at.is_multiple_of(8));
        // SAFETY: the places are within the control page, which is mapped as long as this.
        unsafe { &*self.at.add(at).cast() }
    }

    /// The bytes from `tail` to `head` of the ring that begins at `start` and has `len` bytes.
    fn ring(&self, start: usize, len: usize, tail: u64, head: u64) -> Vec<u8> {
        let count = usize::try_from(head.wrapping_sub(tail))
            .unwrap_or(usize::MAX)
            .min(len);
        let from = usize::try_from(tail % len as u64).unwrap_or(0);
        let first = count.min(len - from);
        let mut bytes = vec![0; count];
        let (one, two) = bytes.split_at_mut(first);
        // SAFETY: both parts are within the mapping; the kernel does not write what is behind the tail.
        unsafe {
            let ring = self.at.add(start);
            ring.add(from)
                .copy_to_nonoverlapping(one.as_mut_ptr(), one.len());
            ring.copy_to_nonoverlapping(two.as_mut_ptr(), two.len());
        }
        bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nobody holds a part of it.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}

#[derive(Debug)]
struct Ring {
    fd: OwnedFd,
    control: Mapping,
    traced: Option<(Area, Mapping)>,
}

impl Channel for Ring {
    fn enable(&mut self) -> Result<(), Refusal> {
        // SAFETY: the descriptor is an event's.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), IOC_ENABLE, 0) };
        if done < 0 {
            Err(refused(Step::Enable))
        } else {
            Ok(())
        }
    }

    fn disable(&mut self) {
        // SAFETY: the descriptor is an event's.
        unsafe { libc::ioctl(self.fd.as_raw_fd(), IOC_DISABLE, 0) };
    }

    fn take(&mut self) -> Taken {
        let mut taken = Taken::default();
        let head = self.control.word(DATA_HEAD).load(Ordering::Acquire);
        let tail = self.control.word(DATA_TAIL).load(Ordering::Relaxed);
        taken.records = self.control.ring(PAGE, RECORDS * PAGE, tail, head);
        self.control.word(DATA_TAIL).store(head, Ordering::Release);
        if let Some((area, mapping)) = &self.traced {
            let head = self.control.word(AUX_HEAD).load(Ordering::Acquire);
            let tail = if area.snapshot {
                head.saturating_sub(area.bytes as u64)
            } else {
                self.control.word(AUX_TAIL).load(Ordering::Relaxed)
            };
            taken.traced = mapping.ring(0, area.bytes, tail, head);
            if !area.snapshot {
                self.control.word(AUX_TAIL).store(head, Ordering::Release);
            }
        }
        taken
    }
}
