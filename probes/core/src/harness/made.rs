//! A segment that the stand-in for the collector made, and how its lanes, names and notes are read.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use scalpel_common::event::{EVENT_VERSION, Event};
use scalpel_common::segment::{
    Function, Header, Lane, MAGIC, MEMORY_NAME, NameHead, Note, SEGMENT_VERSION, lane_state,
    lane_use, note_state,
};

/// What a segment is made of.
#[derive(Clone, Debug)]
pub struct Shape {
    /// A [`clock`](scalpel_common::segment::clock) number.
    pub clock: u8,
    /// Bits of [`modes`](crate::modes).
    pub modes: u8,
    /// Lanes.
    pub lanes: u32,
    /// Slots of each, a power of two.
    pub slots: u32,
    /// Function ids.
    pub functions: u32,
    /// Bytes of names.
    pub names: u64,
    /// Options of WELCOME.
    pub options: Vec<(String, String)>,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            clock: scalpel_common::segment::clock::MONOTONIC,
            modes: scalpel_common::segment::modes::CALL,
            lanes: 64,
            slots: 1 << 16,
            functions: 1 << 17,
            names: 32 << 20,
            options: Vec::new(),
        }
    }
}

/// One function, as the name area tells.
#[derive(Clone, Debug)]
pub struct Named {
    /// The numbers of its record.
    pub head: NameHead,
    /// Qualified name.
    pub name: String,
    /// Path or URL.
    pub file: String,
    /// Module, class or package.
    pub owner: String,
    /// Calls counted.
    pub calls: u64,
    /// Calls lost.
    pub lost: u64,
}

/// A note, with its kind and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// A [`note_kind`](crate::note_kind).
    pub kind: u8,
    /// Its value.
    pub value: u64,
    /// Its text.
    pub text: String,
}

/// Events of one lane, since it was last read.
#[derive(Clone, Debug)]
pub struct LaneEvents {
    /// Index of the lane.
    pub lane: u32,
    /// Process and thread that claimed it.
    pub pid: u32,
    /// As above.
    pub tid: u32,
    /// Its events.
    pub events: Vec<Event>,
}

/// A segment that this process made.
#[derive(Debug)]
pub struct Made {
    /// Its memory.
    pub descriptor: OwnedFd,
    base: NonNull<u8>,
    pub(super) shape: Shape,
    at: Offsets,
}

// SAFETY: what is shared is atomic or published by an atomic.
unsafe impl Send for Made {}
// SAFETY: as above.
unsafe impl Sync for Made {}

#[derive(Clone, Copy, Debug)]
struct Offsets {
    lanes: u64,
    functions: u64,
    notes: u64,
    names: u64,
    memory: u64,
    size: u64,
}

const NOTES: u32 = 1024;

impl Offsets {
    fn of(shape: &Shape) -> Self {
        let page = |at: u64| at.next_multiple_of(4096);
        let lanes = 4096;
        let functions = page(lanes + u64::from(shape.lanes) * size_of::<Lane>() as u64);
        let notes = page(functions + u64::from(shape.functions) * size_of::<Function>() as u64);
        let names = page(notes + u64::from(NOTES) * size_of::<Note>() as u64);
        let memory = page(names + shape.names);
        let size = memory + u64::from(shape.lanes) * u64::from(shape.slots) * 64;
        Self {
            lanes,
            functions,
            notes,
            names,
            memory,
            size,
        }
    }
}

impl Made {
    /// Makes a segment whose lanes are all open and whose lease never ends.
    pub fn new(shape: Shape) -> Result<Self, Errno> {
        let at = Offsets::of(&shape);
        let descriptor =
            memfd_create(MEMORY_NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&descriptor, at.size)?;
        fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW)?;
        let size = usize::try_from(at.size).unwrap_or(0);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                size,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &descriptor,
                0,
            )
        }?;
        let made = Self {
            descriptor,
            base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?,
            shape,
            at,
        };
        made.fill();
        Ok(made)
    }

    fn fill(&self) {
        let (shape, at) = (&self.shape, self.at);
        let header = Header {
            magic: MAGIC,
            segment_version: SEGMENT_VERSION,
            event_version: EVENT_VERSION,
            clock: shape.clock,
            modes: shape.modes,
            reserved: 0,
            pid: 0,
            exec_epoch: 0,
            start_time: 0,
            size: at.size,
            lanes_at: at.lanes,
            lanes_max: shape.lanes,
            functions_max: shape.functions,
            functions_at: at.functions,
            names_at: at.names,
            names_size: shape.names,
            notes_at: at.notes,
            notes_max: NOTES,
            reserved_2: 0,
            recording: [0; 16],
            reserved_3: [0; 2],
            lease: u64::MAX,
            generation: 0,
            lanes_open: shape.lanes,
            stop: 0,
            reserved_4: [0; 11],
            last_function: 0,
            notes_used: 0,
            names_used: 0,
            calls_without_lane: 0,
            functions_refused: 0,
            names_refused: 0,
            calls_past_lease: 0,
            reserved_5: [0; 2],
        };
        // SAFETY: the mapping is larger than a header, and nobody else has it yet.
        unsafe { self.base.cast::<Header>().write(header) };
        for index in 0..shape.lanes {
            let lane = self.lane(index);
            // SAFETY: below `lanes_max`, and nobody else has the mapping yet.
            unsafe {
                (*lane).memory_at = at.memory + u64::from(index) * u64::from(shape.slots) * 64;
                (*lane).slots = shape.slots;
                (*lane).state = lane_state::FREE;
            }
        }
    }

    fn part(&self, at: u64) -> *mut u8 {
        // SAFETY: all offsets in use lie within the mapping.
        unsafe { self.base.as_ptr().add(usize::try_from(at).unwrap_or(0)) }
    }

    fn lane(&self, index: u32) -> *mut Lane {
        self.part(self.at.lanes + u64::from(index) * size_of::<Lane>() as u64)
            .cast()
    }

    fn function(&self, func: u32) -> *mut Function {
        self.part(self.at.functions + u64::from(func) * size_of::<Function>() as u64)
            .cast()
    }

    /// The header as it stands.
    pub fn header(&self) -> Header {
        // SAFETY: mapped; a torn counter is only a wrong number in a test.
        unsafe { self.base.cast::<Header>().as_ptr().read_volatile() }
    }

    /// Ends the lease (0) or moves it.
    pub fn set_lease(&self, lease: u64) {
        let header = self.base.cast::<Header>().as_ptr();
        // SAFETY: an aligned field of the mapping, only used as an atomic.
        unsafe { AtomicU64::from_ptr(&raw mut (*header).lease) }.store(lease, Ordering::Relaxed);
    }

    /// Switches a function off or on.
    pub fn switch(&self, func: u32, off: bool) {
        let header = self.base.cast::<Header>().as_ptr();
        // SAFETY: aligned fields of the mapping, only used as atomics.
        unsafe {
            AtomicU32::from_ptr(&raw mut (*self.function(func)).off)
                .store(u32::from(off), Ordering::Relaxed);
            AtomicU32::from_ptr(&raw mut (*header).generation).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What was published in each ring lane since the last time; the slots are free again.
    pub fn drain(&self) -> Vec<LaneEvents> {
        (0..self.shape.lanes)
            .filter_map(|index| self.drain_lane(index))
            .collect()
    }

    /// Frees all published slots without reading them: how many there were.
    pub fn skip(&self) -> u64 {
        let lanes = (0..self.shape.lanes).map(|index| self.lane(index));
        lanes
            .map(|lane| {
                // SAFETY: aligned fields of the mapping, only used as atomics.
                let (head, tail) = unsafe {
                    (
                        AtomicU64::from_ptr(&raw mut (*lane).head).load(Ordering::Acquire),
                        AtomicU64::from_ptr(&raw mut (*lane).tail),
                    )
                };
                head - tail.swap(head, Ordering::Release)
            })
            .sum()
    }

    fn drain_lane(&self, index: u32) -> Option<LaneEvents> {
        let lane = self.lane(index);
        // SAFETY: aligned fields of the mapping, only used as atomics.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*lane).head).load(Ordering::Acquire),
                AtomicU64::from_ptr(&raw mut (*lane).tail),
            )
        };
        let from = tail.load(Ordering::Relaxed);
        // SAFETY: written before `head` was published.
        let (used, pid, tid, memory_at, slots) = unsafe {
            (
                (*lane).lane_use,
                (*lane).pid,
                (*lane).tid,
                (*lane).memory_at,
                u64::from((*lane).slots),
            )
        };
        if from == head || used != lane_use::RING {
            return None;
        }
        let slot = |number: u64| {
            let at = memory_at + (number % slots) * 64;
            // SAFETY: the slot was published, and the producer leaves it alone until `tail` passes.
            unsafe { self.part(at).cast::<Event>().read() }
        };
        let events = (from..head).map(slot).collect();
        tail.store(head, Ordering::Release);
        Some(LaneEvents {
            lane: index,
            pid,
            tid,
            events,
        })
    }

    /// Counters of all counter lanes, summed by function.
    pub fn counters(&self) -> BTreeMap<u32, f64> {
        let mut sums = BTreeMap::new();
        for index in 0..self.shape.lanes {
            let lane = self.lane(index);
            // SAFETY: fields of the mapping.
            let (state, used, at, slots) = unsafe {
                (
                    (*lane).state,
                    (*lane).lane_use,
                    (*lane).memory_at,
                    (*lane).slots,
                )
            };
            if state == lane_state::FREE || used != lane_use::COUNTERS_F64 {
                continue;
            }
            for func in 0..(slots * 8).min(self.header().last_function + 1) {
                // SAFETY: within the lane's memory.
                let calls = unsafe {
                    self.part(at)
                        .cast::<f64>()
                        .add(func as usize)
                        .read_volatile()
                };
                if calls != 0.0 {
                    *sums.entry(func).or_default() += calls;
                }
            }
        }
        sums
    }

    /// All functions that were given out, by id; without name where none was written.
    pub fn functions(&self) -> BTreeMap<u32, Option<Named>> {
        (1..=self.header().last_function)
            .map(|func| (func, self.named(func)))
            .collect()
    }

    fn named(&self, func: u32) -> Option<Named> {
        let function = self.function(func);
        // SAFETY: an aligned field of the mapping, only used as an atomic.
        let at = unsafe { AtomicU64::from_ptr(&raw mut (*function).name) }.load(Ordering::Acquire);
        let record = self.part(self.at.names + at.checked_sub(1)?);
        // SAFETY: the record was written before its offset.
        let head = unsafe { record.cast::<NameHead>().read() };
        let mut from = size_of::<NameHead>();
        let mut text = |len: u32| {
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts(record.add(from), len as usize) };
            from += len as usize;
            String::from_utf8_lossy(bytes).into_owned()
        };
        let (name, file, owner) = (
            text(head.name_len),
            text(head.file_len),
            text(head.owner_len),
        );
        // SAFETY: as above.
        let (calls, lost) = unsafe { ((*function).calls, (*function).lost) };
        Some(Named {
            head,
            name,
            file,
            owner,
            calls,
            lost,
        })
    }

    /// The notes that are whole.
    pub fn notes(&self) -> Vec<Told> {
        let used = self.header().notes_used.min(NOTES);
        (0..used)
            .map(|number| {
                self.part(self.at.notes + u64::from(number) * 256)
                    .cast::<Note>()
            })
            // SAFETY: within the notes.
            .map(|note| unsafe { note.read_volatile() })
            .filter(|note| note.state == note_state::READY)
            .map(|note| Told {
                kind: note.kind,
                value: note.value,
                text: String::from_utf8_lossy(
                    note.text
                        .get(..usize::from(note.text_len))
                        .unwrap_or_default(),
                )
                .into_owned(),
            })
            .collect()
    }
}
