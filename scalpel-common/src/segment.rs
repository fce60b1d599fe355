//! The shared-memory segment between in-process probes and the collector: one a process, made, sized and sealed by the
//! collector, mapped by each probe of that process.
//!
//! ```text
//! Header | lanes: Lane x lanes_max | functions: Function x functions_max | notes: Note x notes_max | names | lane memory
//! ```
//!
//! The probe trusts the header's offsets; the collector trusts nothing that a probe could have written, and keeps its own
//! copy of every offset and size. Each field has one writer, named in its comment. "Atomic" fields are read and written as
//! relaxed atomics unless an order is named.

use core::mem::offset_of;

use crate::event::Event;

/// `SCPLSEG` and a zero byte, little-endian.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SCPLSEG\0");

/// Version of everything in this file. A probe that reads another one does nothing.
pub const SEGMENT_VERSION: u16 = 1;

/// Name of the memory file, as it stands in `/proc/PID/maps` behind `memfd:`.
pub const MEMORY_NAME: &str = "scalpel-segment";

/// Slots of a ring lane that are kept free beside those for the ends of its open calls: ends come from other lanes too.
pub const LOST_SLOTS: u64 = 8;

/// `cpu` of an event whose writer did not read the processor's number.
pub const CPU_NOT_READ: u16 = u16::MAX;

/// What [`Event::time`], [`Header::lease`] and every other time of a segment count.
pub mod clock {
    /// `CLOCK_MONOTONIC` in ns.
    pub const MONOTONIC: u8 = 0;
    /// The processor's time-stamp counter, raw.
    pub const TSC: u8 = 1;
}

/// Bits of [`Header::modes`]: what the recording asks for.
pub mod modes {
    /// Each call: enter and exit, suspend and resume.
    pub const CALL: u8 = 1 << 0;
    /// How often, or whether, each function ran.
    pub const COUNT: u8 = 1 << 1;
    /// Native functions called from the language, too.
    pub const NATIVE: u8 = 1 << 2;
}

/// States of a [`Lane`].
pub mod lane_state {
    /// No memory behind it (yet).
    pub const CLOSED: u32 = 0;
    /// May be claimed: a probe sets `CLAIMED` by compare-and-swap (acquire).
    pub const FREE: u32 = 1;
    /// Written by one thread or isolate.
    pub const CLAIMED: u32 = 2;
    /// Its writer is done with it (release); the collector drains it and frees it.
    pub const RELEASED: u32 = 3;
}

/// What a lane's memory holds.
pub mod lane_use {
    /// A ring of events.
    pub const RING: u32 = 0;
    /// One f64 a function id: calls counted by generated code of one isolate. Its writer is not the only reader.
    pub const COUNTERS_F64: u32 = 1;
}

/// First page of the segment.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`SEGMENT_VERSION`].
    pub segment_version: u16,
    /// [`EVENT_VERSION`](crate::event::EVENT_VERSION).
    pub event_version: u16,
    /// A [`clock`] number.
    pub clock: u8,
    /// Bits of [`modes`].
    pub modes: u8,
    /// 0.
    pub reserved: u16,
    /// Process, in the initial pid namespace.
    pub pid: u32,
    /// How many times the process had executed another program before.
    pub exec_epoch: u32,
    /// Start of the process, as field 22 of `/proc/PID/stat`.
    pub start_time: u64,
    /// Size of the segment in bytes.
    pub size: u64,
    /// Offset of the lanes.
    pub lanes_at: u64,
    /// Lanes there can be.
    pub lanes_max: u32,
    /// Function ids there can be; ids are 1 to `functions_max - 1`.
    pub functions_max: u32,
    /// Offset of the functions.
    pub functions_at: u64,
    /// Offset of the name area.
    pub names_at: u64,
    /// Its size in bytes.
    pub names_size: u64,
    /// Offset of the notes.
    pub notes_at: u64,
    /// Notes there can be.
    pub notes_max: u32,
    /// 0.
    pub reserved_2: u32,
    /// UUID of the recording.
    pub recording: [u8; 16],
    /// 0.
    pub reserved_3: [u64; 2],
    /// Collector, atomic: probes are silent when the lane clock is past this.
    pub lease: u64,
    /// Collector, atomic: raised whenever a [`Function::off`] changed.
    pub generation: u32,
    /// Collector, atomic (release): the first this many lanes have memory, or had.
    pub lanes_open: u32,
    /// Collector, atomic: not 0 = the recording is over.
    pub stop: u32,
    /// 0.
    pub reserved_4: [u32; 11],
    /// Probes, atomic: the last function id given out.
    pub last_function: u32,
    /// Probes, atomic: notes given out; may exceed `notes_max`, the rest is lost and counted so.
    pub notes_used: u32,
    /// Probes, atomic: bytes of the name area given out; may exceed `names_size`.
    pub names_used: u64,
    /// Probes, atomic: calls that happened on threads without a lane.
    pub calls_without_lane: u64,
    /// Probes, atomic: functions that got no id because all were given out.
    pub functions_refused: u64,
    /// Probes, atomic: functions whose name found no room; their id stays without a name.
    pub names_refused: u64,
    /// Probes, atomic: calls that happened while the lease had run out.
    pub calls_past_lease: u64,
    /// 0.
    pub reserved_5: [u64; 2],
}

/// A single-producer ring of [`Event`]s, or counters; its memory lies elsewhere in the segment.
///
/// Event number `n` (from 0) stands in slot `n % slots`. The producer writes the slot, then stores `head` (release); the
/// collector loads `head` (acquire), reads, and stores `tail` (release). A call is let in only while [`LOST_SLOTS`] +
/// min(`open`, `slots / 2`) + 3 slots are free: for a `Lost` event before it, itself, and its end. Whole calls are lost.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Lane {
    /// Collector, before `state` leaves `CLOSED`: offset of its memory in the segment.
    pub memory_at: u64,
    /// Collector: slots of 64 bytes, a power of two.
    pub slots: u32,
    /// Both, atomic: a [`lane_state`] number.
    pub state: u32,
    /// Probe, at the claim: process, in its own pid namespace (a forked child claims lanes of its own).
    pub pid: u32,
    /// Probe, at the claim: thread, in its own pid namespace.
    pub tid: u32,
    /// Probe, at the claim: when, by the lane clock.
    pub claimed_at: u64,
    /// Probe, at the claim: a [`Source`](crate::event::Source) number.
    pub source: u32,
    /// Probe, at the claim: a [`lane_use`] number.
    pub lane_use: u32,
    /// 0.
    pub reserved: [u64; 3],
    /// Producer, atomic (release): events published.
    pub head: u64,
    /// Producer, atomic: calls that found no room.
    pub lost_calls: u64,
    /// Producer, atomic: events other than whole calls that found no room; `seq` was advanced for each.
    pub lost_events: u64,
    /// Producer, atomic: calls let in whose end has not been written.
    pub open: u64,
    /// Producer, private: `seq` of the next event.
    pub seq: u32,
    /// 0.
    pub reserved_2: [u32; 7],
    /// Collector, atomic (release): events consumed.
    pub tail: u64,
    /// 0.
    pub reserved_3: [u64; 7],
    /// 0.
    pub reserved_4: [u64; 8],
}

/// What the segment knows of one function id. Entry 0 is never used.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Function {
    /// Probe, atomic (release, after the record is written): offset of its [`NameHead`] in the name area, plus 1; 0 = none.
    pub name: u64,
    /// Probes, atomic: calls counted in count mode.
    pub calls: u64,
    /// Probes, atomic: calls that found no room in a lane, or had no lane.
    pub lost: u64,
    /// Collector, atomic: not 0 = switched off by the breaker.
    pub off: u32,
    /// 0.
    pub reserved: u32,
}

/// Bits of [`NameHead::flags`].
pub mod name_flags {
    /// `async` function.
    pub const ASYNC: u16 = 1 << 0;
    /// Generator.
    pub const GENERATOR: u16 = 1 << 1;
    /// Native code called from a language runtime.
    pub const NATIVE: u16 = 1 << 2;
    /// Made at run time from text that is no file: `eval`, `exec`, `new Function`.
    pub const GENERATED: u16 = 1 << 3;
    /// A class body or static initializer.
    pub const CLASS_BODY: u16 = 1 << 4;
    /// Top level of a module or script.
    pub const MODULE: u16 = 1 << 5;
    /// No name in the source: lambda, arrow, function expression.
    pub const ANONYMOUS: u16 = 1 << 6;
    /// Belongs to the language's own library.
    pub const STANDARD_LIBRARY: u16 = 1 << 7;
    /// Belongs to an installed package, not to the program.
    pub const THIRD_PARTY: u16 = 1 << 8;
}

/// A number of [`NameHead`] that is not known.
pub const NOT_KNOWN: u32 = u32::MAX;

/// Head of a name record, in the name area (8-byte aligned) and in an INTERN frame; then the texts `name`, `file`, `owner`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NameHead {
    /// Bytes of the whole record, without padding.
    pub len: u32,
    /// 0x01.
    pub version: u8,
    /// A [`Source`](crate::event::Source) number.
    pub source: u8,
    /// Bits of [`name_flags`].
    pub flags: u16,
    /// Process-local function id.
    pub func: u32,
    /// First line, from 1; for Python that of the code object. 0 = not known.
    pub line: u32,
    /// Last line; 0 = not known.
    pub end_line: u32,
    /// Column of the start in UTF-16 units from 0, or [`NOT_KNOWN`].
    pub column: u32,
    /// Offset of the start in the loaded text in UTF-16 units, or [`NOT_KNOWN`].
    pub start: u32,
    /// Offset behind the end, or [`NOT_KNOWN`].
    pub end: u32,
    /// Bytes of the qualified name (UTF-8).
    pub name_len: u32,
    /// Bytes of the path or URL.
    pub file_len: u32,
    /// Bytes of the owner: module, class, package.
    pub owner_len: u32,
    /// 0.
    pub reserved: u32,
    /// Hash of the function's own body or byte code, 0 = none.
    pub body_hash: u64,
    /// Hash of the whole loaded text, 0 = none.
    pub text_hash: u64,
}

/// What a [`Note`] tells.
pub mod note_kind {
    /// Runtime and mechanism in use, as `CPython 3.12.1, sys.monitoring`.
    pub const RUNTIME: u8 = 1;
    /// What this probe cannot see.
    pub const BLIND_SPOT: u8 = 2;
    /// Events were not written for a while: `time` is the start, `value` the end (0 = still).
    pub const GAP: u8 = 3;
    /// A mechanism that was not used, and why.
    pub const REFUSAL: u8 = 4;
    /// Anything else a reader should know.
    pub const NOTE: u8 = 5;
    /// Functions that a filter left out: `value` is how many.
    pub const EXCLUDED: u8 = 6;
    /// Functions that may run without being seen: those of the file that the text names, below the folder if it ends in a
    /// slash, or any of the language if it is empty. `value` is an [`unseen`](super::unseen) number.
    pub const UNSEEN: u8 = 7;
}

/// Why functions may run without being seen.
pub mod unseen {
    /// Their text was loaded before the probe, or for an earlier recording.
    pub const BEFORE: u64 = 1;
    /// A filter left them out, or there was no room for them.
    pub const EXCLUDED: u64 = 2;
    /// Their text runs as it is, because it could not be read or rewritten.
    pub const UNREAD: u64 = 3;
    /// Something of their language ran where nothing was watched.
    pub const UNWATCHED: u64 = 4;
}

/// States of a [`Note`].
pub mod note_state {
    /// Not written (yet).
    pub const EMPTY: u32 = 0;
    /// Whole (release).
    pub const READY: u32 = 1;
}

/// Most bytes of text in a [`Note`]; longer ones are cut.
pub const NOTE_TEXT: usize = 232;

/// A short text for the reader of the result.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Note {
    /// Atomic: a [`note_state`] number.
    pub state: u32,
    /// A [`note_kind`] number.
    pub kind: u8,
    /// A [`Source`](crate::event::Source) number.
    pub source: u8,
    /// Bytes of text.
    pub text_len: u16,
    /// When, by the lane clock.
    pub time: u64,
    /// Depends on `kind`.
    pub value: u64,
    /// UTF-8.
    pub text: [u8; NOTE_TEXT],
}

const _: () = {
    assert!(size_of::<Header>() == 256);
    assert!(offset_of!(Header, pid) == 16);
    assert!(offset_of!(Header, lanes_at) == 40);
    assert!(offset_of!(Header, functions_at) == 56);
    assert!(offset_of!(Header, names_at) == 64);
    assert!(offset_of!(Header, notes_at) == 80);
    assert!(offset_of!(Header, recording) == 96);
    assert!(offset_of!(Header, lease) == 128);
    assert!(offset_of!(Header, generation) == 136);
    assert!(offset_of!(Header, last_function) == 192);
    assert!(offset_of!(Header, names_used) == 200);
    assert!(offset_of!(Header, calls_past_lease) == 232);
    assert!(size_of::<Lane>() == 256);
    assert!(offset_of!(Lane, state) == 12);
    assert!(offset_of!(Lane, claimed_at) == 24);
    assert!(offset_of!(Lane, head) == 64);
    assert!(offset_of!(Lane, seq) == 96);
    assert!(offset_of!(Lane, tail) == 128);
    assert!(size_of::<Function>() == 32);
    assert!(offset_of!(Function, off) == 24);
    assert!(size_of::<NameHead>() == 64);
    assert!(offset_of!(NameHead, name_len) == 32);
    assert!(offset_of!(NameHead, body_hash) == 48);
    assert!(size_of::<Note>() == 256);
    assert!(offset_of!(Note, text) == 24);
    assert!(size_of::<Event>() == 64);
};
