//! Frames: bytes of a stranger -> what they say, and our answers. Pure, bounded, and never a panic.

use scalpel_common::wire::{MAX_PAYLOAD, WIRE_VERSION, frame, transport};

use super::names::{Get, NameRecord, clean, length, parse};
use crate::event::{EVENT_SIZE, EVENT_VERSION, Event};

/// Bytes of a frame's head.
const HEAD: usize = 8;

/// What a probe says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// HELLO.
    Hello(Hello),
    /// Names of functions, in the order they came. What could not be read carries the id, if there was one.
    Intern(Vec<Result<NameRecord, u32>>),
    /// Events of one lane.
    Events(u32, Vec<Event>),
    /// What the probe cannot see.
    BlindSpots(Vec<String>),
    /// Local id, calls so far, lost calls so far.
    Counts(Vec<(u32, u64, u64)>),
    /// Start, end, events lost, why.
    Gap(u64, u64, u64, String),
    /// The last word: why.
    Bye(String),
    /// Kind, value, text.
    Note(u8, u64, String),
}

/// Who a probe says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// A source number.
    pub source: u8,
    /// Wants a segment, not frames.
    pub wants_segment: bool,
    /// In its own namespace.
    pub pid: u32,
    /// In its own namespace.
    pub tid: u32,
    /// The runtime.
    pub runtime: String,
}

/// Why a peer is not listened to any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A payload longer than a frame may have.
    #[error("a frame of {0} bytes, at most {MAX_PAYLOAD} are allowed")]
    TooLong(u32),
    /// Another version.
    #[error("wire version {0}, this collector speaks {WIRE_VERSION}")]
    Version(u8),
    /// A kind that a probe may not send, or that is not known.
    #[error("a frame of unknown kind {0}")]
    Kind(u8),
    /// A payload that is not what its kind says.
    #[error("the payload of a frame of kind {0} makes no sense")]
    Payload(u8),
    /// Events of another layout.
    #[error("event version {0}, this collector reads {EVENT_VERSION}")]
    EventVersion(u16),
}

/// Takes the first whole frame off `bytes`. `None` = more has to come.
pub fn next(bytes: &mut Vec<u8>) -> Result<Option<Frame>, FrameError> {
    let mut get = Get(bytes);
    let (Some(len), Some(kind), Some(version)) = (get.u32(), get.u8(), get.u8()) else {
        return Ok(None);
    };
    if len > MAX_PAYLOAD {
        return Err(FrameError::TooLong(len));
    }
    if version != WIRE_VERSION {
        return Err(FrameError::Version(version));
    }
    let whole = HEAD + len as usize;
    let Some(payload) = bytes.get(HEAD..whole) else {
        return Ok(None);
    };
    let decoded = decode(kind, payload);
    bytes.drain(..whole);
    decoded.map(Some)
}

fn decode(kind: u8, payload: &[u8]) -> Result<Frame, FrameError> {
    let mut get = Get(payload);
    let bad = FrameError::Payload(kind);
    let decoded = match kind {
        frame::HELLO => return hello(&mut get),
        frame::INTERN => intern(&mut get),
        frame::EVENTS => events(&mut get),
        frame::BLIND_SPOTS => texts(&mut get).map(Frame::BlindSpots),
        frame::COUNTS => counts(&mut get).map(Frame::Counts),
        frame::GAP => gap(&mut get),
        frame::BYE => text(&mut get).map(Frame::Bye),
        frame::NOTE => note(&mut get),
        other => return Err(FrameError::Kind(other)),
    };
    decoded.filter(|_| get.0.is_empty()).ok_or(bad)
}

fn hello(get: &mut Get<'_>) -> Result<Frame, FrameError> {
    let bad = FrameError::Payload(frame::HELLO);
    let version = get.u16().ok_or(bad)?;
    if version != EVENT_VERSION {
        return Err(FrameError::EventVersion(version));
    }
    let (source, how) = (get.u8().ok_or(bad)?, get.u8().ok_or(bad)?);
    if !matches!(how, transport::SEGMENT | transport::SOCKET) {
        return Err(bad);
    }
    Ok(Frame::Hello(Hello {
        source,
        wants_segment: how == transport::SEGMENT,
        pid: get.u32().ok_or(bad)?,
        tid: get.u32().ok_or(bad)?,
        runtime: text(get).ok_or(bad)?,
    }))
}

fn intern(get: &mut Get<'_>) -> Option<Frame> {
    let count = get.u32()?;
    let mut records = Vec::new();
    for _ in 0..count {
        let len = usize::try_from(length(get.0)?).ok()?;
        let bytes = get.take(len)?;
        records.push(parse(bytes).ok_or_else(|| local_id(bytes)));
    }
    Some(Frame::Intern(records))
}

/// The id in a record that makes no sense otherwise.
fn local_id(record: &[u8]) -> u32 {
    let mut get = Get(record);
    get.u64();
    get.u32().unwrap_or(0)
}

fn events(get: &mut Get<'_>) -> Option<Frame> {
    let lane = get.u32()?;
    let (records, rest) = get.0.as_chunks::<EVENT_SIZE>();
    let events = records.iter().map(Event::from_bytes).collect();
    get.0 = rest;
    Some(Frame::Events(lane, events))
}

fn texts(get: &mut Get<'_>) -> Option<Vec<String>> {
    let count = get.u16()?;
    (0..count).map(|_| text(get)).collect()
}

fn counts(get: &mut Get<'_>) -> Option<Vec<(u32, u64, u64)>> {
    let count = get.u32()?;
    // Twenty bytes each: a count of more than the payload has room for ends at the first that is missing.
    (0..count)
        .map(|_| Some((get.u32()?, get.u64()?, get.u64()?)))
        .collect()
}

fn gap(get: &mut Get<'_>) -> Option<Frame> {
    Some(Frame::Gap(get.u64()?, get.u64()?, get.u64()?, text(get)?))
}

fn note(get: &mut Get<'_>) -> Option<Frame> {
    Some(Frame::Note(get.u8()?, get.u64()?, text(get)?))
}

fn text(get: &mut Get<'_>) -> Option<String> {
    let len = get.u16()?;
    get.take(usize::from(len)).map(clean)
}

/// What the collector tells a probe that may take part.
#[derive(Clone, Debug)]
pub(super) struct Welcome<'a> {
    /// A clock number.
    pub(super) clock: u8,
    /// Bits of the modes.
    pub(super) modes: u8,
    /// UUID of the recording.
    pub(super) recording: [u8; 16],
    /// Size of the segment; 0 = frames.
    pub(super) segment: u64,
    /// Settings for probes.
    pub(super) options: &'a [(String, String)],
}

impl Welcome<'_> {
    /// The whole frame.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        payload.extend(EVENT_VERSION.to_le_bytes());
        payload.extend([self.clock, self.modes]);
        payload.extend(self.recording);
        payload.extend(self.segment.to_le_bytes());
        payload.extend(
            u16::try_from(self.options.len())
                .unwrap_or(u16::MAX)
                .to_le_bytes(),
        );
        for (name, value) in self.options.iter().take(usize::from(u16::MAX)) {
            put_text(&mut payload, name);
            put_text(&mut payload, value);
        }
        whole(frame::WELCOME, &payload)
    }
}

/// The answer to a probe that may not take part.
pub(super) fn refused(why: &str) -> Vec<u8> {
    let mut payload = Vec::new();
    put_text(&mut payload, why);
    whole(frame::REFUSED, &payload)
}

/// What names have become: local id, global id.
pub(super) fn acknowledged(pairs: &[(u32, u32)]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(4 + pairs.len() * 8);
    payload.extend(u32::try_from(pairs.len()).unwrap_or(0).to_le_bytes());
    for (local, global) in pairs {
        payload.extend(local.to_le_bytes());
        payload.extend(global.to_le_bytes());
    }
    whole(frame::INTERN_ACK, &payload)
}

/// Functions, by local id, of which nothing more is wanted.
pub(super) fn switch_off(locals: &[u32]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(4 + locals.len() * 4);
    payload.extend(u32::try_from(locals.len()).unwrap_or(0).to_le_bytes());
    for local in locals {
        payload.extend(local.to_le_bytes());
    }
    whole(frame::OFF, &payload)
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    let text = text
        .get(..text.floor_char_boundary(usize::from(u16::MAX)))
        .unwrap_or_default();
    bytes.extend(u16::try_from(text.len()).unwrap_or(0).to_le_bytes());
    bytes.extend(text.as_bytes());
}

fn whole(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + payload.len());
    bytes.extend(
        u32::try_from(payload.len())
            .unwrap_or(u32::MAX)
            .to_le_bytes(),
    );
    bytes.extend([kind, WIRE_VERSION, 0, 0]);
    bytes.extend(payload);
    bytes
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::names::tests::record;
    use super::*;
    use crate::event::{Kind, Source};

    pub(in super::super) fn frame_of(kind: u8, payload: &[u8]) -> Vec<u8> {
        whole(kind, payload)
    }

    pub(in super::super) fn hello_frame(source: Source, how: u8, pid: u32) -> Vec<u8> {
        let mut payload = Vec::new();
        payload.extend(EVENT_VERSION.to_le_bytes());
        payload.extend([source as u8, how]);
        payload.extend(pid.to_le_bytes());
        payload.extend(pid.to_le_bytes());
        put_text(&mut payload, "Test 1.0");
        whole(frame::HELLO, &payload)
    }

    #[test]
    fn a_frame_is_read_when_all_of_it_is_there() {
        let bytes = hello_frame(Source::Python, transport::SEGMENT, 7);
        for cut in 0..bytes.len() {
            assert_eq!(next(&mut bytes[..cut].to_vec()), Ok(None));
        }
        let mut two = [&bytes[..], &bytes[..3]].concat();
        let Ok(Some(Frame::Hello(hello))) = next(&mut two) else {
            panic!()
        };
        assert!(hello.wants_segment && hello.pid == 7 && hello.runtime == "Test 1.0");
        assert_eq!(two, &bytes[..3]);
    }

    #[test]
    fn names_and_events_come_back_as_they_were_sent() {
        let names = [
            record(1, Source::Php, "f", "a.php", "", 3),
            record(2, Source::Php, "g", "a.php", "", 9),
        ];
        let payload = [&2u32.to_le_bytes()[..], &names.concat()].concat();
        let Ok(Some(Frame::Intern(records))) = next(&mut frame_of(frame::INTERN, &payload)) else {
            panic!()
        };
        assert_eq!(records.len(), 2);
        assert_eq!(records[1].as_ref().unwrap().info.line, Some(9));
        let event = Event {
            time: 5,
            kind: Kind::Enter as u8,
            ..Event::default()
        };
        let payload = [&4u32.to_le_bytes()[..], &event.to_bytes()].concat();
        let read = next(&mut frame_of(frame::EVENTS, &payload));
        assert_eq!(read, Ok(Some(Frame::Events(4, vec![event]))));
    }

    #[test]
    fn frames_that_make_no_sense_end_the_conversation() {
        let check = |mut bytes: Vec<u8>, expect| assert_eq!(next(&mut bytes), Err(expect));
        check(
            [&(MAX_PAYLOAD + 1).to_le_bytes()[..], &[1, 1, 0, 0]].concat(),
            FrameError::TooLong(MAX_PAYLOAD + 1),
        );
        check(vec![0, 0, 0, 0, 1, 9, 0, 0], FrameError::Version(9));
        check(frame_of(200, &[]), FrameError::Kind(200));
        check(
            frame_of(frame::WELCOME, &[]),
            FrameError::Kind(frame::WELCOME),
        );
        check(frame_of(frame::HELLO, &[9, 0]), FrameError::EventVersion(9));
        check(
            frame_of(frame::EVENTS, &[0; 60]),
            FrameError::Payload(frame::EVENTS),
        );
        check(
            frame_of(frame::COUNTS, &u32::MAX.to_le_bytes()),
            FrameError::Payload(frame::COUNTS),
        );
        check(
            frame_of(frame::INTERN, &u32::MAX.to_le_bytes()),
            FrameError::Payload(frame::INTERN),
        );
        check(
            frame_of(frame::BYE, &[1, 0, b'x', 0]),
            FrameError::Payload(frame::BYE),
        );
    }

    /// What the vectors of `scalpel-common/golden/frames.txt` say of a frame, read or written here.
    #[test]
    fn frames_have_the_bytes_of_the_golden_vectors() {
        let text = include_str!("../../../scalpel-common/golden/frames.txt");
        let mut seen = Vec::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (said, hex) = line.split_once(" => ").unwrap();
            let (kind, fields) = said.split_once(' ').unwrap();
            let fields: serde_json::Value = serde_json::from_str(fields).unwrap();
            let bytes: Vec<u8> = (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
                .collect();
            golden(kind, &fields, &bytes);
            seen.push(bytes[4]);
        }
        assert_eq!(seen, (frame::HELLO..=frame::OFF).collect::<Vec<u8>>());
    }

    fn golden(kind: &str, fields: &serde_json::Value, bytes: &[u8]) {
        let number = |name: &str| fields[name].as_u64().unwrap();
        let text = |name: &str| fields[name].as_str().unwrap().to_owned();
        let pairs = |name: &str| fields[name].as_array().unwrap().clone();
        match kind {
            "WELCOME" => {
                let options: Vec<(String, String)> =
                    serde_json::from_value(fields["options"].clone()).unwrap();
                let welcome = Welcome {
                    clock: number("clock") as u8,
                    modes: number("modes") as u8,
                    recording: uuid::Uuid::parse_str(&text("recording"))
                        .unwrap()
                        .into_bytes(),
                    segment: number("segment"),
                    options: &options,
                };
                return assert_eq!(welcome.to_bytes(), bytes);
            }
            "REFUSED" => return assert_eq!(refused(&text("why")), bytes),
            "INTERN_ACK" => {
                let acked: Vec<(u32, u32)> =
                    serde_json::from_value(fields["pairs"].clone()).unwrap();
                return assert_eq!(acknowledged(&acked), bytes);
            }
            "OFF" => {
                let ids: Vec<u32> = serde_json::from_value(fields["ids"].clone()).unwrap();
                return assert_eq!(switch_off(&ids), bytes);
            }
            _ => {}
        }
        let expect = match next(&mut bytes.to_vec()).unwrap().unwrap() {
            Frame::Hello(hello) => {
                assert!(!hello.wants_segment);
                [u64::from(hello.source), hello.pid.into(), hello.tid.into()]
                    == ["source", "pid", "tid"].map(number)
                    && hello.runtime == text("runtime")
            }
            Frame::Intern(records) => records.iter().zip(pairs("records")).all(|(record, said)| {
                let NameRecord { func, source, info } = record.as_ref().unwrap();
                said["id"] == *func
                    && said["source"] == *source
                    && said["name"] == *info.raw_name
                    && said["file"] == *info.path
                    && info
                        .line
                        .map_or(said["line"] == 0, |line| said["line"] == line)
            }),
            Frame::Events(lane, events) => {
                number("lane") == u64::from(lane)
                    && events.len() == pairs("events").len()
                    && events.iter().zip(pairs("events")).all(|(event, said)| {
                        said["seq"] == event.seq
                            && said["frame"] == event.frame
                            && said["time"] == event.time
                            && said["kind"] == event.kind
                    })
            }
            Frame::BlindSpots(texts) => pairs("texts") == texts,
            Frame::Counts(counts) => fields["counts"] == serde_json::json!(counts),
            Frame::Gap(start, end, lost, why) => {
                [start, end, lost] == ["start", "end", "lost"].map(number) && why == text("why")
            }
            Frame::Bye(why) => why == text("why"),
            Frame::Note(kind, value, said) => {
                [u64::from(kind), value] == ["kind", "value"].map(number) && said == text("text")
            }
        };
        assert!(expect, "{kind} {fields}");
    }

    #[test]
    fn a_welcome_has_its_options() {
        let options = [("py-include".to_owned(), "app/*".to_owned())];
        let welcome = Welcome {
            clock: 1,
            modes: 1,
            recording: [7; 16],
            segment: 4096,
            options: &options,
        };
        let bytes = welcome.to_bytes();
        assert_eq!(
            bytes.len() as u32,
            8 + u32::from_le_bytes(bytes[..4].try_into().unwrap())
        );
        assert!(bytes.ends_with(b"\x0a\0py-include\x05\0app/*"));
    }
}
