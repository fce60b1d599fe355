//! Perfetto's protobuf trace: a track a thread, names interned, times on `CLOCK_MONOTONIC`.
//!
//! What is not plain about a call is in annotations: `start`, `end`, `calls`; missing events are instants named `[lost]`.

mod proto;

use std::io::{self, Write};

use rustc_hash::FxHashSet;

use super::{Moment, ThreadKey, What};
use crate::event::{FuncId, MonoTime};
use crate::function::FunctionTable;
use crate::sink::export::wire;
use crate::sink::text::clean;
use proto::{
    Clock, ClockSnapshot, DebugAnnotation, EventName, InternedData, ProcessDescriptor,
    ThreadDescriptor, TracePacket, TracePacketDefaults, TrackDescriptor, TrackEvent,
};

const MONOTONIC: u32 = 3;
const SEQUENCE: u32 = 1;
const STATE_CLEARED: u32 = 1;
const NEEDS_STATE: u32 = 2;
/// Name number of `[lost]`: functions are numbered from 1 up to [`FunctionTable::MOST`].
const LOST: u64 = FunctionTable::MOST as u64 + 1;
/// The field of a trace that is a packet.
const PACKET: u32 = 1;

/// A trace that is being written.
pub struct Perfetto<'a> {
    out: &'a mut dyn Write,
    named: FxHashSet<u64>,
}

impl<'a> Perfetto<'a> {
    /// Writes the head: the clock, and the process with its command.
    pub fn begin(
        out: &'a mut dyn Write,
        start: MonoTime,
        pid: u32,
        command: &str,
    ) -> io::Result<Self> {
        let mut trace = Self {
            out,
            named: FxHashSet::default(),
        };
        trace.packet(TracePacket {
            clock_snapshot: Some(ClockSnapshot {
                clocks: vec![Clock {
                    id: MONOTONIC,
                    timestamp: start.0,
                }],
                primary: MONOTONIC as i32,
            }),
            sequence_flags: STATE_CLEARED,
            defaults: Some(TracePacketDefaults {
                timestamp_clock_id: MONOTONIC,
            }),
            ..TracePacket::default()
        })?;
        trace.track(TrackDescriptor {
            uuid: u64::from(pid) << 32,
            process: Some(ProcessDescriptor {
                pid: pid.cast_signed(),
                name: clean(command).into_owned(),
            }),
            ..TrackDescriptor::default()
        })?;
        Ok(trace)
    }

    /// Names a thread; comes before its moments.
    pub fn thread(&mut self, thread: ThreadKey, name: &str) -> io::Result<()> {
        self.track(TrackDescriptor {
            uuid: uuid(thread),
            thread: Some(ThreadDescriptor {
                pid: thread.0.cast_signed(),
                tid: thread.1.cast_signed(),
                name: clean(name).into_owned(),
            }),
            ..TrackDescriptor::default()
        })
    }

    /// Writes a moment.
    pub fn moment(&mut self, moment: &Moment, functions: &FunctionTable) -> io::Result<()> {
        let (kind, name, annotations) = match moment.what {
            What::Begin { func, calls, start } => {
                let mut annotations = text("start", start.word());
                annotations.extend(number("calls", calls).filter(|_| calls > 1));
                (SLICE_BEGIN, func.into(), annotations)
            }
            // An end has no name: it ends what is innermost.
            What::End { end, .. } => (SLICE_END, 0, text("end", end.word())),
            What::Entry { func, calls } => {
                let calls = number("calls", calls).filter(|_| calls > 1);
                (INSTANT, func.into(), calls.into_iter().collect())
            }
            What::Lost(lost) => {
                let events = number("events", lost);
                (INSTANT, LOST, events.into_iter().collect())
            }
        };
        let interned = self.intern(name, functions);
        self.packet(TracePacket {
            timestamp: moment.time.0,
            interned_data: interned,
            sequence_flags: NEEDS_STATE,
            track_event: Some(TrackEvent {
                annotations,
                kind,
                name,
                track: uuid(moment.thread),
            }),
            ..TracePacket::default()
        })
    }

    /// The name of a number that was not used before.
    fn intern(&mut self, number: u64, functions: &FunctionTable) -> Option<InternedData> {
        if number == 0 || !self.named.insert(number) {
            return None;
        }
        let info = || functions.get(FuncId::new(u32::try_from(number).ok()?)?);
        let name = match number {
            LOST => "[lost]".into(),
            _ => info().map_or_else(
                || format!("<function {number}>"),
                |info| clean(&info.name).into_owned(),
            ),
        };
        Some(InternedData {
            names: vec![EventName { number, name }],
        })
    }

    fn track(&mut self, descriptor: TrackDescriptor) -> io::Result<()> {
        self.packet(TracePacket {
            track_descriptor: Some(descriptor),
            ..TracePacket::default()
        })
    }

    fn packet(&mut self, packet: TracePacket) -> io::Result<()> {
        let packet = TracePacket {
            sequence: SEQUENCE,
            ..packet
        };
        wire::message(PACKET, &packet, self.out)
    }
}

const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const INSTANT: i32 = 3;

const fn uuid((pid, tid): ThreadKey) -> u64 {
    (pid as u64) << 32 | tid as u64
}

fn text(name: &str, word: Option<&str>) -> Vec<DebugAnnotation> {
    let annotation = |word: &str| DebugAnnotation {
        text: Some(word.into()),
        name: name.into(),
        ..DebugAnnotation::default()
    };
    word.map(annotation).into_iter().collect()
}

fn number(name: &str, number: u64) -> Option<DebugAnnotation> {
    Some(DebugAnnotation {
        number: Some(number),
        name: name.into(),
        ..DebugAnnotation::default()
    })
}
