//! The mapped segment, as probes use it: ids, names, notes, counters, and the lanes that threads claim.
//!
//! The only file that turns offsets of the header into pointers. The collector made the segment and is trusted.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use scalpel_common::event::{EVENT_SIZE, Event, Source};
use scalpel_common::segment::{
    Function, Header, Lane, NOTE_TEXT, NameHead, Note, lane_state, lane_use, note_state,
};

use crate::clock;
use crate::lane::Ring;
use crate::name::Name;

/// A recording that this process takes part in. It stays mapped until the process ends.
#[derive(Debug)]
pub struct Segment {
    base: NonNull<u8>,
    clock: u8,
    modes: u8,
    lanes_max: u32,
    functions_max: u32,
    notes_max: u32,
    lanes: NonNull<Lane>,
    functions: NonNull<Function>,
    notes: NonNull<Note>,
    names: NonNull<u8>,
    names_size: u64,
    options: Vec<(String, String)>,
}

// SAFETY: all that is shared behind the pointers is atomic, or written by one thread before an atomic store publishes it.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

/// One counter a function id, written by generated code of one isolate. Survives the process.
#[derive(Clone, Copy, Debug)]
pub struct Counters {
    /// First counter; index = function id.
    pub at: NonNull<f64>,
    /// How many.
    pub len: usize,
}

/// An atomic field of a struct in shared memory.
macro_rules! atomic {
    ($kind:ty, $at:expr, $field:ident) => {{
        let at = $at;
        // SAFETY: the struct lies within the mapping, which stays; the field is aligned and only used as an atomic.
        unsafe { <$kind>::from_ptr(&raw mut (*at).$field) }
    }};
}

impl Segment {
    /// # Safety
    /// `base` is the start of a mapping of a whole segment of this version, readable, writable and never unmapped.
    pub(crate) unsafe fn new(base: NonNull<u8>, options: Vec<(String, String)>) -> Self {
        // SAFETY: the caller's promise; the fields read here are never written after the segment was made.
        let header = unsafe { base.cast::<Header>().read() };
        // SAFETY: the collector laid the parts out within the segment.
        let part = |at: u64| unsafe { base.add(usize::try_from(at).unwrap_or(0)) };
        Self {
            base,
            clock: header.clock,
            modes: header.modes,
            lanes_max: header.lanes_max,
            functions_max: header.functions_max,
            notes_max: header.notes_max,
            lanes: part(header.lanes_at).cast(),
            functions: part(header.functions_at).cast(),
            notes: part(header.notes_at).cast(),
            names: part(header.names_at),
            names_size: header.names_size,
            options,
        }
    }

    const fn header(&self) -> *mut Header {
        self.base.as_ptr().cast()
    }

    const fn function(&self, func: u32) -> Option<*mut Function> {
        if func == 0 || func >= self.functions_max {
            return None;
        }
        // SAFETY: below `functions_max`.
        Some(unsafe { self.functions.as_ptr().add(func as usize) })
    }

    /// What the recording asks for: bits of [`modes`](crate::modes).
    pub const fn modes(&self) -> u8 {
        self.modes
    }

    /// What the collector said about a setting, as `py-include`.
    pub fn option(&self, name: &str) -> Option<&str> {
        let found = self.options.iter().find(|(option, _)| option == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The lane clock.
    #[inline]
    pub fn clock(&self) -> u64 {
        clock::now(self.clock)
    }

    /// Whether the recording has ended.
    pub fn over(&self) -> bool {
        atomic!(AtomicU32, self.header(), stop).load(Ordering::Relaxed) != 0
    }

    /// Whether events are wanted at this time of the lane clock.
    #[inline]
    pub(crate) fn listens(&self, now: u64) -> bool {
        now <= atomic!(AtomicU64, self.header(), lease).load(Ordering::Relaxed)
    }

    /// Which recording listens: another number once a new collector has taken the segment over. What a runtime was told to
    /// forget may then be wanted again.
    #[inline]
    pub fn recording(&self) -> u64 {
        // SAFETY: the header lies in the mapping, which stays; the 16 bytes are aligned to 8 and used as atomics here.
        let first = unsafe { AtomicU64::from_ptr((&raw mut (*self.header()).recording).cast()) };
        first.load(Ordering::Relaxed)
    }

    /// A number that changes when functions were switched off or on.
    #[inline]
    pub fn generation(&self) -> u32 {
        atomic!(AtomicU32, self.header(), generation).load(Ordering::Relaxed)
    }

    /// Whether the breaker has switched this function off. An id out of range is.
    #[inline]
    pub fn is_off(&self, func: u32) -> bool {
        self.function(func)
            .is_none_or(|function| atomic!(AtomicU32, function, off).load(Ordering::Relaxed) != 0)
    }

    /// The table of functions as 32-bit words, for generated code that looks at its own switch: word `8 * id + 6` is not 0
    /// where the breaker has switched the function off. Other words are not the reader's.
    pub fn switches(&self) -> (NonNull<u32>, usize) {
        let words = size_of::<Function>() / size_of::<u32>();
        (self.functions.cast(), self.functions_max as usize * words)
    }

    /// A fresh id, unique in the process and its forked children; 0 = all are given out, which is counted.
    pub fn new_function(&self) -> u32 {
        let last = atomic!(AtomicU32, self.header(), last_function);
        let next = last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
            (last < self.functions_max - 1).then_some(last + 1)
        });
        next.map_or_else(
            |_| {
                atomic!(AtomicU64, self.header(), functions_refused)
                    .fetch_add(1, Ordering::Relaxed);
                0
            },
            |last| last + 1,
        )
    }

    /// Tells what an id stands for; before its first event. `false`: the name area is full, which is counted.
    pub fn name(&self, func: u32, name: &Name<'_>) -> bool {
        let Some(function) = self.function(func) else {
            return false;
        };
        let (head, texts) = name.record(func);
        let Some(at) = self.reserve_name(u64::from(head.len)) else {
            atomic!(AtomicU64, self.header(), names_refused).fetch_add(1, Ordering::Relaxed);
            return false;
        };
        // SAFETY: `reserve_name` gave these bytes of the name area, 8-byte aligned, to this call alone.
        unsafe {
            let record = self.names.add(usize::try_from(at).unwrap_or(0));
            record.cast::<NameHead>().write(head);
            let mut text_at = record.add(size_of::<NameHead>());
            for text in texts {
                text_at.copy_from_nonoverlapping(NonNull::from(text.as_bytes()).cast(), text.len());
                text_at = text_at.add(text.len());
            }
        }
        atomic!(AtomicU64, function, name).store(at + 1, Ordering::Release);
        true
    }

    fn reserve_name(&self, len: u64) -> Option<u64> {
        let room = len.next_multiple_of(8);
        let used = atomic!(AtomicU64, self.header(), names_used);
        used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(room).filter(|end| *end <= self.names_size)
        })
        .ok()
    }

    /// Adds counted calls of a function.
    #[inline]
    pub fn count(&self, func: u32, calls: u64) {
        if let Some(function) = self.function(func) {
            atomic!(AtomicU64, function, calls).fetch_add(calls, Ordering::Relaxed);
        }
    }

    /// Leaves a short text (kind: [`note_kind`](crate::note_kind)) for the reader of the result; longer than 232 bytes is cut.
    pub fn note(&self, kind: u8, source: Source, value: u64, text: &str) {
        let used = atomic!(AtomicU32, self.header(), notes_used);
        let number = used.fetch_add(1, Ordering::Relaxed);
        if number >= self.notes_max {
            // Not to come round to 0 again; the collector sees that some are missing.
            used.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let text = text
            .get(..text.floor_char_boundary(NOTE_TEXT))
            .unwrap_or("");
        // SAFETY: below `notes_max`, and this call alone has the number.
        let note = unsafe { self.notes.as_ptr().add(number as usize) };
        // SAFETY: the note lies in the mapping, nobody else writes it, and nobody reads it before `state` says so.
        unsafe {
            (*note).kind = kind;
            (*note).source = source as u8;
            (*note).text_len = u16::try_from(text.len()).unwrap_or(0);
            (*note).time = self.clock();
            (*note).value = value;
            (&raw mut (*note).text)
                .cast::<u8>()
                .copy_from_nonoverlapping(text.as_ptr(), text.len());
        }
        atomic!(AtomicU32, note, state).store(note_state::READY, Ordering::Release);
    }

    /// A call happened that could not be written.
    #[cold]
    pub(crate) fn lost_call(&self, func: u32) {
        if let Some(function) = self.function(func) {
            atomic!(AtomicU64, function, lost).fetch_add(1, Ordering::Relaxed);
        }
    }

    #[cold]
    pub(crate) fn call_without_lane(&self, func: u32) {
        atomic!(AtomicU64, self.header(), calls_without_lane).fetch_add(1, Ordering::Relaxed);
        self.lost_call(func);
    }

    #[cold]
    pub(crate) fn call_past_lease(&self) {
        if !self.over() {
            atomic!(AtomicU64, self.header(), calls_past_lease).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many lanes have memory: a new number means that a search may succeed.
    #[inline]
    pub(crate) fn lanes_open(&self) -> u32 {
        atomic!(AtomicU32, self.header(), lanes_open)
            .load(Ordering::Acquire)
            .min(self.lanes_max)
    }

    /// Takes a free lane, looking from `hint` on.
    pub(crate) fn claim(&self, source: Source, used_as: u32, hint: u32) -> Option<Claimed> {
        let open = self.lanes_open();
        (0..open)
            .map(|step| hint.wrapping_add(step) % open)
            .find_map(|index| self.claim_one(index, source, used_as))
    }

    fn claim_one(&self, index: u32, source: Source, used_as: u32) -> Option<Claimed> {
        // SAFETY: below `lanes_open`, which is at most `lanes_max`.
        let lane = unsafe { self.lanes.as_ptr().add(index as usize) };
        let state = atomic!(AtomicU32, lane, state);
        state
            .compare_exchange(
                lane_state::FREE,
                lane_state::CLAIMED,
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .ok()?;
        // SAFETY: claimed: this thread alone writes these fields, and the collector reads them behind `head`.
        let (memory_at, slots) = unsafe {
            (*lane).pid = rustix::process::getpid()
                .as_raw_nonzero()
                .get()
                .cast_unsigned();
            (*lane).tid = rustix::thread::gettid()
                .as_raw_nonzero()
                .get()
                .cast_unsigned();
            (*lane).claimed_at = self.clock();
            (*lane).source = source as u32;
            (*lane).lane_use = used_as;
            ((*lane).memory_at, (*lane).slots)
        };
        // SAFETY: the collector put the lane's memory within the segment.
        let memory = unsafe { self.base.add(usize::try_from(memory_at).unwrap_or(0)) };
        Some(Claimed {
            lane,
            memory: memory.cast(),
            slots: u64::from(slots),
            index,
        })
    }

    /// A lane as counters of one isolate, all 0; `None` = no lane is free.
    pub fn counters(&self, source: Source) -> Option<Counters> {
        let claimed = self.claim(source, lane_use::COUNTERS_F64, 0)?;
        let len = usize::try_from(claimed.slots).unwrap_or(0) * EVENT_SIZE / size_of::<f64>();
        let at = claimed.memory.cast::<f64>();
        // New memory is 0, and counters of others were cleared by the collector: only what was a ring has to be.
        if claimed.head() != 0 {
            // SAFETY: the lane's memory is `slots` times 64 bytes, claimed for this call.
            unsafe { at.write_bytes(0, len) };
        }
        Some(Counters { at, len })
    }
}

/// A lane that one thread has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimed {
    lane: *mut Lane,
    memory: NonNull<Event>,
    pub(crate) slots: u64,
    pub(crate) index: u32,
}

impl Claimed {
    pub(crate) fn head(&self) -> u64 {
        atomic!(AtomicU64, self.lane, head).load(Ordering::Relaxed)
    }

    /// Tells the collector, which alone reads them, what stands in the producer's own memory.
    #[inline]
    pub(crate) fn set_open(&self, open: u64) {
        atomic!(AtomicU64, self.lane, open).store(open, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn lost_call(&self) {
        let lost = atomic!(AtomicU64, self.lane, lost_calls);
        lost.store(lost.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn lost_event(&self) {
        let lost = atomic!(AtomicU64, self.lane, lost_events);
        lost.store(lost.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(crate) fn give_back(&self) {
        atomic!(AtomicU32, self.lane, state).store(lane_state::RELEASED, Ordering::Release);
    }
}

impl Ring for Claimed {
    #[inline]
    fn tail(&self) -> u64 {
        atomic!(AtomicU64, self.lane, tail).load(Ordering::Acquire)
    }

    #[inline]
    fn write(&self, number: u64, event: &Event) {
        let slot = usize::try_from(number & (self.slots - 1)).unwrap_or(0);
        // SAFETY: the slot lies in the lane's memory, and the collector reads it only after `publish`.
        unsafe { self.memory.add(slot).write(*event) };
    }

    #[inline]
    fn publish(&self, head: u64) {
        atomic!(AtomicU64, self.lane, head).store(head, Ordering::Release);
    }
}

/// A segment in memory of our own, so that an interpreter of unsafe code (Miri) can watch both of its sides.
#[cfg(test)]
mod tests {
    use std::thread;

    use scalpel_common::event::Kind;
    use scalpel_common::segment::note_kind;

    use super::*;
    use crate::lane::Producer;

    #[derive(Clone, Copy)]
    #[repr(C, align(4096))]
    struct Page([u8; 4096]);

    const LANES_AT: u64 = 4096;
    const FUNCTIONS_AT: u64 = 2 * 4096;
    const NOTES_AT: u64 = 3 * 4096;
    const NAMES_AT: u64 = 4 * 4096;
    const MEMORY_AT: u64 = 5 * 4096;
    const SLOTS: u32 = 64;
    const LANES: u32 = 2;

    /// As the collector lays it out.
    fn pages() -> Vec<Page> {
        let mut pages = vec![Page([0; 4096]); 5 + LANES as usize];
        let base = pages.as_mut_ptr().cast::<u8>();
        // SAFETY: all of it lies within the pages, and nobody else knows them yet.
        unsafe {
            let header = base.cast::<Header>();
            (*header).lanes_at = LANES_AT;
            (*header).lanes_max = LANES;
            (*header).functions_at = FUNCTIONS_AT;
            (*header).functions_max = 8;
            (*header).names_at = NAMES_AT;
            (*header).names_size = 256;
            (*header).notes_at = NOTES_AT;
            (*header).notes_max = 4;
            (*header).lanes_open = LANES;
            for index in 0..LANES {
                let lane = base
                    .add(LANES_AT as usize)
                    .cast::<Lane>()
                    .add(index as usize);
                (*lane).memory_at = MEMORY_AT + 4096 * u64::from(index);
                (*lane).slots = SLOTS;
                (*lane).state = lane_state::FREE;
            }
        }
        pages
    }

    /// What the collector does with a lane, by FORMAT.md.
    fn drain(segment: &Segment, index: u32, into: &mut Vec<Event>) {
        // SAFETY: within the pages.
        let lane = unsafe { segment.lanes.as_ptr().add(index as usize) };
        let head = atomic!(AtomicU64, lane, head).load(Ordering::Acquire);
        let tail = atomic!(AtomicU64, lane, tail);
        let memory_at = (MEMORY_AT + 4096 * u64::from(index)) as usize;
        for number in tail.load(Ordering::Relaxed)..head {
            let slot = (number % u64::from(SLOTS)) as usize;
            // SAFETY: within the pages; it is read behind `head` alone, and written again only behind `tail`.
            into.push(unsafe { segment.base.add(memory_at).cast::<Event>().add(slot).read() });
        }
        tail.store(head, Ordering::Release);
    }

    fn drain_both(segment: &Segment, events: &mut [Vec<Event>; 2]) {
        for (index, events) in (0..).zip(events) {
            drain(segment, index, events);
        }
    }

    #[test]
    fn two_threads_write_what_another_reads_meanwhile() {
        const CALLS: u32 = if cfg!(miri) { 40 } else { 4000 };
        let mut pages = pages();
        let base = NonNull::new(pages.as_mut_ptr().cast()).unwrap();
        // SAFETY: a whole segment, which outlives the threads.
        let segment = unsafe { Segment::new(base, Vec::new()) };
        let segment = &segment;
        let write = move || {
            let func = segment.new_function();
            assert!(segment.name(func, &Name::new(Source::C, "work")));
            segment.note(note_kind::NOTE, Source::C, 1, "begun");
            let lane = segment.claim(Source::C, lane_use::RING, 0).unwrap();
            let mut producer = Producer::new(lane.slots, lane.head());
            let mut event = |kind: Kind| {
                let mut event = Event {
                    func,
                    kind: kind as u8,
                    ..Event::default()
                };
                match kind {
                    Kind::Enter => producer.begin(&lane, &mut event),
                    _ => producer.end(&lane, &mut event),
                }
            };
            for _ in 0..CALLS {
                if event(Kind::Enter) {
                    assert!(event(Kind::Exit), "an end found no room");
                    segment.count(func, 1);
                } else {
                    lane.lost_call();
                    segment.lost_call(func);
                    thread::yield_now();
                }
            }
            lane.give_back();
            func
        };
        let (funcs, events) = thread::scope(|scope| {
            let writers = [scope.spawn(write), scope.spawn(write)];
            let mut events = [Vec::new(), Vec::new()];
            while writers.iter().any(|writer| !writer.is_finished()) {
                drain_both(segment, &mut events);
                thread::yield_now();
            }
            let funcs = writers.map(|writer| writer.join().unwrap());
            drain_both(segment, &mut events);
            (funcs, events)
        });
        for func in funcs {
            let at = segment.function(func).unwrap();
            let (calls, lost) = (
                atomic!(AtomicU64, at, calls).load(Ordering::Relaxed),
                atomic!(AtomicU64, at, lost).load(Ordering::Relaxed),
            );
            assert_eq!(calls + lost, u64::from(CALLS));
            let begun = |event: &&Event| event.func == func && event.kind == Kind::Enter as u8;
            let seen = events.iter().flatten().filter(begun).count() as u64;
            assert_eq!(seen, calls);
        }
        for events in &events {
            assert!((0..).zip(events).all(|(seq, event)| event.seq == seq));
        }
        assert_eq!(segment.new_function(), 3);
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut pages = pages();
        let base = NonNull::new(pages.as_mut_ptr().cast()).unwrap();
        // SAFETY: a whole segment, which outlives the use of it.
        let segment = unsafe { Segment::new(base, Vec::new()) };
        let ids: Vec<u32> = (0..9).map(|_| segment.new_function()).collect();
        assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7, 0, 0]);
        let long = "x".repeat(100);
        let named: Vec<bool> = ids[..3]
            .iter()
            .map(|func| segment.name(*func, &Name::new(Source::C, &long)))
            .collect();
        assert_eq!(named, [true, false, false]);
        (0..6).for_each(|_| segment.note(note_kind::NOTE, Source::C, 0, &long.repeat(3)));
        let claims: Vec<bool> = (0..3)
            .map(|_| segment.claim(Source::C, lane_use::RING, 1).is_some())
            .collect();
        assert_eq!(claims, [true, true, false]);
        let word = |at: &AtomicU64| at.load(Ordering::Relaxed);
        assert_eq!(
            word(atomic!(AtomicU64, segment.header(), functions_refused)),
            2
        );
        assert_eq!(word(atomic!(AtomicU64, segment.header(), names_refused)), 2);
        let notes = atomic!(AtomicU32, segment.header(), notes_used).load(Ordering::Relaxed);
        assert_eq!(notes, 4);
    }
}
