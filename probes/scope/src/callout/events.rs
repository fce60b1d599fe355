//! The debug registers of one thread, as a group of perf events that send SIGTRAP: a watch on a return slot leads it, and
//! breakpoints at the region's entries follow it. Enabling the leader enables all; one ioctl moves and enables it.
//! Needs no libc, takes no lock and allocates nothing: the handler may use it.
use super::super::cure::{Cure, holds};
use super::super::sys;

const PERF_EVENT_OPEN: u64 = 298;
const IOCTL: u64 = 16;
const DISABLE: u64 = 0x2401;
const ID: u64 = 0x8008_2407;
const MODIFY: u64 = 0x4008_240b;
const CLOSE: u64 = 3;
const FCNTL: u64 = 72;
const DUP_CLOEXEC: u64 = 1030;
/// Descriptors are moved up here, so that the program's own get the numbers that they would have.
const HIGH: u64 = 900;
const CLOEXEC: u64 = 8;

const BREAKPOINT: u64 = 5;
const ATTR_BYTES: u64 = 128;
const READ_WRITE: u64 = 3;
const EXECUTE: u64 = 4;
const DISABLED: u64 = 1;
/// Not in the kernel, not in the hypervisor, gone at an exec, by SIGTRAP.
const FLAGS: u64 = 1 << 5 | 1 << 6 | 1 << 36 | 1 << 37;
/// The group's counts are read at once.
const GROUP: u64 = 1 << 3;
/// The upper half of what our events carry in `si_perf_data`.
const MAGIC: u64 = 0x5ca1_ce0f << 32;

/// Debug registers of the processor: one for the watch, one for the guard, the others for entries.
pub(super) const MOST_ENTRIES: usize = 2;
const ALL: usize = 2 + MOST_ENTRIES;
/// What the event of the guard says of itself.
pub(super) const GUARD: u64 = 0xffff;

/// Where the watch stands while there is nothing to watch.
static NOTHING: u64 = 0;

/// The event that a SIGTRAP came from, if it is one of ours: 0 is the watch, others are entries.
pub(super) fn event(info: *const libc::siginfo_t) -> Option<u64> {
    // SAFETY: the kernel's `siginfo_t` is 128 bytes; with TRAP_PERF the event's data stand at its third word.
    let data = unsafe { *info.cast::<u64>().add(3) };
    (data & (u64::MAX << 32) == MAGIC).then_some(data & 0xffff_ffff)
}

/// Whether the signal was late: it was blocked when the breakpoint was hit.
pub(super) fn is_late(info: *const libc::siginfo_t) -> bool {
    // SAFETY: as above; the flags follow the data and the type.
    let flags = unsafe { *info.cast::<u32>().add(9) };
    flags & 1 != 0 && holds(Cure::CallOutsVerified)
}

/// The words of `perf_event_attr`.
type Attr = [u64; 16];

fn attr(kind: u64, addr: u64, data: u64, off: bool) -> Attr {
    let mut attr = [0; 16];
    let words = [
        (0, BREAKPOINT | ATTR_BYTES << 32),
        (2, 1),
        (4, GROUP),
        (5, FLAGS | (u64::from(off) * DISABLED)),
        (6, kind << 32),
        (7, addr),
        (8, 8),
        (15, MAGIC | data),
    ];
    for (place, word) in words {
        if let Some(slot) = attr.get_mut(place) {
            *slot = word;
        }
    }
    attr
}

/// The events of an open scope. Descriptors close at an exec; they are no [`Drop`], for the handler's state has none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Events {
    fds: [u64; ALL],
    ids: [u64; ALL],
    len: usize,
    /// Calls of `ioctl` so far.
    pub(super) ioctls: u64,
}

impl Events {
    /// Opens them for this thread, all off; `None` where the kernel gives none (or not enough of them).
    pub(super) fn open(entries: &[u64]) -> Option<Self> {
        let mut events = Self {
            fds: [0; ALL],
            ids: [0; ALL],
            len: 0,
            ioctls: 0,
        };
        let leader = attr(READ_WRITE, &raw const NOTHING as u64, 0, true);
        let follow = (1..)
            .zip(entries)
            .map(|(data, entry)| attr(EXECUTE, *entry, data, !holds(Cure::EntriesWatched)));
        // The C library's way to set a handler: natively it would take ours away, and the next hit would kill.
        let guard = attr(EXECUTE, libc::sigaction as *const () as u64, GUARD, false);
        for attr in [leader, guard].into_iter().chain(follow) {
            if events.add(&attr).is_none() {
                events.close();
                return None;
            }
        }
        Some(events)
    }

    fn add(&mut self, attr: &Attr) -> Option<()> {
        let leader = self.leader().map_or(u64::MAX, |fd| fd);
        let args = [attr.as_ptr() as u64, 0, u64::MAX, leader, CLOEXEC, 0];
        // SAFETY: an attribute of the size that it names; a new descriptor.
        let fd = u64::try_from(unsafe { sys::call(PERF_EVENT_OPEN, args) }).ok()?;
        let fd = moved_up(fd);
        let place = self.len;
        *self.fds.get_mut(place)? = fd;
        *self.ids.get_mut(place)? = id(fd)?;
        self.len += 1;
        Some(())
    }

    fn leader(&self) -> Option<u64> {
        self.fds.first().copied().filter(|_| self.len > 0)
    }

    /// Watches `slot`, and the entries; `false` if the kernel does not let us.
    pub(super) fn watch(&mut self, slot: u64) -> bool {
        let slot = if holds(Cure::ReturnSlotWatched) {
            slot
        } else {
            &raw const NOTHING as u64
        };
        let attr = attr(READ_WRITE, slot, 0, false);
        self.modify(MODIFY, attr.as_ptr() as u64)
    }

    /// Watches the entries alone.
    pub(super) fn watch_entries(&mut self) -> bool {
        self.watch(&raw const NOTHING as u64)
    }

    /// All off.
    pub(super) fn off(&mut self) -> bool {
        self.modify(DISABLE, 0)
    }

    fn modify(&mut self, what: u64, argument: u64) -> bool {
        self.ioctls += 1;
        let Some(fd) = self.leader() else {
            return false;
        };
        // SAFETY: an ioctl of perf events; on any other file its number means nothing.
        unsafe { sys::call(IOCTL, [fd, what, argument, 0, 0, 0]) == 0 }
    }

    /// How often any of them was hit, as the kernel counted.
    pub(super) fn counted(&self) -> Option<u64> {
        let mut values = [0_u64; 1 + ALL];
        let args = [
            self.leader()?,
            values.as_mut_ptr() as u64,
            8 * values.len() as u64,
            0,
            0,
            0,
        ];
        // SAFETY: the kernel writes at most as many bytes as the array has.
        let got = unsafe { sys::call(0, args) };
        let [members, counts @ ..] = values;
        let whole =
            u64::try_from(got) == Ok(8 * (1 + self.len as u64)) && members == self.len as u64;
        whole.then(|| counts.iter().sum())
    }

    /// Closes what is still ours: the program may have closed a descriptor, and its number be another file's.
    pub(super) fn close(&mut self) {
        // A child that was forked holds the descriptors, and with them the events: off they must be first.
        self.off();
        for (fd, known) in self.fds.iter().zip(&self.ids).take(self.len) {
            if id(*fd) == Some(*known) {
                // SAFETY: the descriptor is still the event that we opened.
                unsafe { sys::call(CLOSE, [*fd, 0, 0, 0, 0, 0]) };
            }
        }
        self.len = 0;
    }
}

/// One breakpoint by itself; `None` where the kernel gives none. It is the caller's to close, by [`remove`].
pub(in super::super) fn breakpoint(addr: u64, data: u64) -> Option<u64> {
    let attr = attr(EXECUTE, addr, data, false);
    let args = [attr.as_ptr() as u64, 0, u64::MAX, u64::MAX, CLOEXEC, 0];
    // SAFETY: an attribute of the size that it names; a new descriptor.
    let fd = u64::try_from(unsafe { sys::call(PERF_EVENT_OPEN, args) }).ok()?;
    Some(moved_up(fd))
}

/// Off first: a child that was forked meanwhile holds the descriptor too.
pub(in super::super) fn remove(fd: u64) {
    // SAFETY: an ioctl of perf events; on any other file its number means nothing.
    unsafe { sys::call(IOCTL, [fd, DISABLE, 0, 0, 0, 0]) };
    // SAFETY: a descriptor of ours.
    unsafe { sys::call(CLOSE, [fd, 0, 0, 0, 0, 0]) };
}

fn id(fd: u64) -> Option<u64> {
    let mut id = 0_u64;
    // SAFETY: the kernel writes one word into `id`, if the file is a perf event.
    let result = unsafe { sys::call(IOCTL, [fd, ID, (&raw mut id) as u64, 0, 0, 0]) };
    (result == 0).then_some(id)
}

fn moved_up(fd: u64) -> u64 {
    // SAFETY: a second descriptor of ours.
    let high = unsafe { sys::call(FCNTL, [fd, DUP_CLOEXEC, HIGH, 0, 0, 0]) };
    let Ok(high) = u64::try_from(high) else {
        return fd;
    };
    // SAFETY: the first one, which nobody else knows.
    unsafe { sys::call(CLOSE, [fd, 0, 0, 0, 0, 0]) };
    high
}
