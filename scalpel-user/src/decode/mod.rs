//! Bytes of one ring record -> an event, a sample or a control record. Layouts: FORMAT.md.
//!
//! Pure, and never a panic whatever the bytes: what makes no sense is a typed error, what is unknown is counted.

use scalpel_common::kernel::{
    ControlKind, ControlRecord, MAX_PATH, MAX_STACK_FRAMES, SampleHeader,
};
use scalpel_common::wait::WaitHeader;
use thiserror::Error;

use crate::event::{
    Addr, Control, EVENT_SIZE, Event, Kind, MonoTime, Pid, Sample, Source, StackCopy, Tid,
};

const SAMPLE_HEADER: usize = size_of::<SampleHeader>();
const CONTROL_HEADER: usize = size_of::<ControlRecord>() - MAX_PATH;

/// Why a ring record could not be read. The record is skipped; count it with [`Census::bad_record`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The record ends before its fixed part.
    #[error(
        "{record} record of {got} bytes, at least {need} expected: object and collector differ in version"
    )]
    Short {
        /// `event`, `sample`, `wait` or `control`.
        record: &'static str,
        /// Smallest length.
        need: usize,
        /// Length found.
        got: usize,
    },
    /// A call ring's record that is no whole number of events.
    #[error(
        "{got} bytes in a call ring, not a multiple of {EVENT_SIZE}: object and collector differ in version"
    )]
    NotEvents {
        /// Length found.
        got: usize,
    },
    /// A sample claims more frames than can be.
    #[error(
        "sample with {user} user and {kernel} kernel frames, at most {MAX_STACK_FRAMES} each expected"
    )]
    TooManyFrames {
        /// User frames claimed.
        user: u32,
        /// Kernel frames claimed.
        kernel: u32,
    },
    /// A control record of a kind that this version does not know.
    #[error("control record of unknown kind {0}")]
    UnknownControl(u32),
}

/// What the decoded events looked like: the facts from which a run diagnoses itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Events seen.
    pub events: u64,
    /// Of those, events that should name a function and name none (`func` 0).
    pub zero_func: u64,
    /// Events of a kind that this version does not know.
    pub unknown_kind: u64,
    /// Events of a source that this version does not know.
    pub unknown_source: u64,
    /// Events with no bit set.
    pub all_zero: u64,
    /// Records that could not be decoded at all.
    pub bad_records: u64,
}

impl Census {
    /// Counts a batch of events.
    pub fn note(&mut self, events: &[Event]) {
        self.events += events.len() as u64;
        for event in events {
            let known = matches!(event.kind, FIRST_KIND..=LAST_KIND)
                && matches!(event.source, FIRST_SOURCE..=LAST_SOURCE);
            if !known || event.func == 0 {
                self.note_odd(event);
            }
        }
    }

    #[cold]
    fn note_odd(&mut self, event: &Event) {
        let kind = Kind::from_u8(event.kind);
        self.unknown_kind += u64::from(kind.is_none());
        self.unknown_source += u64::from(Source::from_u8(event.source).is_none());
        self.zero_func += u64::from(event.func == 0 && kind.is_none_or(names_a_function));
        self.all_zero += u64::from(*event == Event::default());
    }

    /// Counts a record that could not be decoded.
    pub fn bad_record(&mut self) {
        self.bad_records += 1;
    }

    /// Whether there were events and none named a function: the writer's ids are broken.
    pub fn all_ids_zero(&self) -> bool {
        self.events > 0 && self.zero_func == self.events
    }
}

const FIRST_KIND: u8 = Kind::Enter as u8;
const LAST_KIND: u8 = Kind::ThreadEnd as u8;
const FIRST_SOURCE: u8 = Source::Uprobe as u8;
const LAST_SOURCE: u8 = Source::C as u8;

const fn names_a_function(kind: Kind) -> bool {
    !matches!(
        kind,
        Kind::Sample
            | Kind::SwitchIn
            | Kind::SwitchOut
            | Kind::Lost
            | Kind::ThreadStart
            | Kind::ThreadEnd
    )
}

/// Appends the events of a call ring's record, or of several written one after the other.
pub fn events(bytes: &[u8], out: &mut Vec<Event>) -> Result<(), DecodeError> {
    let (events, rest) = bytes.as_chunks::<EVENT_SIZE>();
    if !rest.is_empty() {
        return Err(DecodeError::NotEvents { got: bytes.len() });
    }
    out.extend(events.iter().map(Event::from_bytes));
    Ok(())
}

/// A record of the sample ring. Frames that the record claims but does not hold are left out, zero frames dropped.
pub fn sample(bytes: &[u8]) -> Result<Sample, DecodeError> {
    let short = DecodeError::Short {
        record: "sample",
        need: SAMPLE_HEADER,
        got: bytes.len(),
    };
    let (event, rest) = bytes
        .split_first_chunk::<EVENT_SIZE>()
        .ok_or_else(|| short.clone())?;
    let event = Event::from_bytes(event);
    if event.kind == Kind::SwitchIn as u8 {
        return wait(event, rest);
    }
    let (user, rest) = take_u32(rest).ok_or_else(|| short.clone())?;
    let (kernel, rest) = take_u32(rest).ok_or(short)?;
    if user.max(kernel) as usize > MAX_STACK_FRAMES {
        return Err(DecodeError::TooManyFrames { user, kernel });
    }
    let frames = rest.as_chunks::<8>().0;
    let (user_frames, kernel_frames) = frames.split_at((user as usize).min(frames.len()));
    let kernel_frames = kernel_frames
        .get(..kernel as usize)
        .unwrap_or(kernel_frames);
    Ok(Sample {
        event,
        user: addresses(user_frames),
        kernel: addresses(kernel_frames),
        copy: None,
    })
}

/// A record of a thread that goes on. Bytes of the stack that the record claims but does not hold are left out.
fn wait(event: Event, rest: &[u8]) -> Result<Sample, DecodeError> {
    let short = DecodeError::Short {
        record: "wait",
        need: size_of::<WaitHeader>(),
        got: EVENT_SIZE + rest.len(),
    };
    let (bp, rest) = take_u64(rest).ok_or_else(|| short.clone())?;
    let (short_ns, rest) = take_u64(rest).ok_or_else(|| short.clone())?;
    let (short_waits, rest) = take_u32(rest).ok_or_else(|| short.clone())?;
    let (length, stack) = take_u32(rest).ok_or(short)?;
    let bytes = stack.get(..length as usize).unwrap_or(stack).to_vec();
    let innermost = (event.site != 0).then_some(event.site);
    Ok(Sample {
        event,
        user: innermost.into_iter().collect(),
        kernel: Vec::new(),
        copy: Some(Box::new(StackCopy {
            bp,
            short_ns,
            short_waits,
            bytes,
        })),
    })
}

fn addresses(frames: &[[u8; 8]]) -> Vec<u64> {
    frames
        .iter()
        .map(|&frame| u64::from_le_bytes(frame))
        .filter(|&address| address != 0)
        .collect()
}

/// A record of the control ring. It may be cut after the bytes of `path` that are used.
pub fn control(bytes: &[u8]) -> Result<Control, DecodeError> {
    let record = ControlFields::read(bytes).ok_or(DecodeError::Short {
        record: "control",
        need: CONTROL_HEADER,
        got: bytes.len(),
    })?;
    record.into_control()
}

struct ControlFields<'a> {
    time: MonoTime,
    address: u64,
    length: u64,
    value: u64,
    kind: u32,
    pid: Pid,
    tid: Tid,
    other_pid: u32,
    other_tid: u32,
    path: &'a [u8],
}

impl<'a> ControlFields<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (time, rest) = take_u64(bytes)?;
        let (address, rest) = take_u64(rest)?;
        let (length, rest) = take_u64(rest)?;
        let (value, rest) = take_u64(rest)?;
        let (kind, rest) = take_u32(rest)?;
        let (pid, rest) = take_u32(rest)?;
        let (tid, rest) = take_u32(rest)?;
        let (other_pid, rest) = take_u32(rest)?;
        let (other_tid, rest) = take_u32(rest)?;
        let (path_len, path) = take_u32(rest)?;
        let path = path.get(..path_len as usize).unwrap_or(path);
        Some(Self {
            time: MonoTime(time),
            address,
            length,
            value,
            kind,
            pid: Pid(pid),
            tid: Tid(tid),
            other_pid,
            other_tid,
            path,
        })
    }

    fn into_control(self) -> Result<Control, DecodeError> {
        let (time, pid, tid) = (self.time, self.pid, self.tid);
        Ok(match self.kind {
            kind if kind == ControlKind::Fork as u32 => Control::Fork {
                time,
                parent: pid,
                child: Pid(self.other_pid),
                tid: Tid(self.other_tid),
                name: self.text(),
            },
            kind if kind == ControlKind::Exec as u32 => Control::Exec {
                time,
                pid,
                path: self.text(),
            },
            kind if kind == ControlKind::Exit as u32 => Control::Exit {
                time,
                pid,
                tid,
                process_ended: (self.other_pid == 1).then_some(self.value as u32),
            },
            kind if kind == ControlKind::Map as u32 => Control::Map {
                time,
                pid,
                start: Addr(self.address),
                end: Addr(self.address.saturating_add(self.length)),
                offset: self.value,
                path: self.text(),
            },
            kind => return Err(DecodeError::UnknownControl(kind)),
        })
    }

    /// Up to the first NUL; bytes that are not UTF-8 are replaced.
    fn text(&self) -> String {
        let end = self
            .path
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(self.path.len());
        String::from_utf8_lossy(self.path.get(..end).unwrap_or_default()).into_owned()
    }
}

fn take_u64(bytes: &[u8]) -> Option<(u64, &[u8])> {
    bytes
        .split_first_chunk()
        .map(|(field, rest)| (u64::from_le_bytes(*field), rest))
}

fn take_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    bytes
        .split_first_chunk()
        .map(|(field, rest)| (u32::from_le_bytes(*field), rest))
}

#[cfg(test)]
mod tests;
