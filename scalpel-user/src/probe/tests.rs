use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, sync_channel};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use scalpel_common::segment::lane_state;
use scalpel_common::wire::transport;

use super::layout::{Layout, function, header, lane};
use super::memory::Memory;
use super::names::tests::record;
use super::wire::tests::hello_frame;
use super::*;
use crate::event::{CPU_NOT_MEASURED, Event, Kind, Source, Tid};
use crate::input::Loss;

/// A probe as a language's would be, in this process, that writes what a test says.
struct Fake {
    memory: Memory,
    layout: Layout,
}

impl Fake {
    fn connect(socket: &Path) -> Result<Self, Vec<u8>> {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream
            .write_all(&hello_frame(
                Source::Python,
                transport::SEGMENT,
                std::process::id(),
            ))
            .unwrap();
        let (bytes, descriptor) = answer_of(&stream);
        let descriptor = descriptor.ok_or(bytes)?;
        let memory = Memory::take_over(descriptor.into()).unwrap();
        Ok(Self {
            memory,
            layout: Layout::within(MEMORY),
        })
    }

    fn name(&self, func: u32, name: &str) {
        let bytes = record(func, Source::Python, name, "/app/a.py", "a", func);
        let used = self.memory.u64(header::NAMES_USED);
        self.memory.put(self.layout.names_at + used, &bytes);
        self.memory.set_u64(
            header::NAMES_USED,
            used + (bytes.len() as u64).next_multiple_of(8),
        );
        self.memory.set_u32(header::LAST_FUNCTION, func);
        self.memory
            .set_u64(self.layout.function(func) + function::NAME, used + 1);
    }

    fn claim(&self, index: u32, pid: u32, tid: u32) -> FakeLane<'_> {
        let entry = self.layout.lane(index);
        assert_eq!(self.memory.u32(entry + lane::STATE), lane_state::FREE);
        for (field, value) in [
            (lane::PID, pid),
            (lane::TID, tid),
            (lane::SOURCE, Source::Python as u32),
            (lane::STATE, lane_state::CLAIMED),
        ] {
            self.memory.set_u32(entry + field, value);
        }
        self.memory.set_u64(entry + lane::CLAIMED_AT, self.now());
        FakeLane {
            fake: self,
            entry,
            seq: 0,
        }
    }

    fn now(&self) -> u64 {
        match self.memory.u32(12) & 0xff {
            1 => memory::time_stamp_counter(),
            _ => drain::monotonic_ns(),
        }
    }
}

struct FakeLane<'a> {
    fake: &'a Fake,
    entry: u64,
    seq: u32,
}

impl FakeLane<'_> {
    fn write(&mut self, kind: Kind, func: u32, frame: u64) {
        let event = Event {
            time: self.fake.now(),
            cpu_ns: CPU_NOT_MEASURED,
            func,
            frame,
            seq: self.seq,
            kind: kind as u8,
            source: Source::Python as u8,
            ..Event::default()
        };
        self.raw(event);
        self.seq += 1;
    }

    fn raw(&mut self, event: Event) {
        let memory = &self.fake.memory;
        let (at, slots) = (
            memory.u64(self.entry + lane::MEMORY_AT),
            memory.u32(self.entry + lane::SLOTS),
        );
        let head = memory.u64(self.entry + lane::HEAD);
        memory.put(at + head % u64::from(slots) * 64, &event.to_bytes());
        memory.set_u64(self.entry + lane::HEAD, head + 1);
    }

    fn set(&self, field: u64, value: u64) {
        self.fake.memory.set_u64(self.entry + field, value);
    }

    fn release(self) {
        self.fake
            .memory
            .set_u32(self.entry + lane::STATE, lane_state::RELEASED);
    }
}

fn answer_of(stream: &UnixStream) -> (Vec<u8>, Option<OwnedFd>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 4096];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let message = recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        flags,
    )
    .unwrap();
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    (bytes[..message.bytes].to_vec(), descriptor)
}

const MEMORY: u64 = 16 << 20;

pub(super) struct Heard {
    pub(super) probes: Probes,
    inputs: Receiver<(Feed, Input)>,
}

impl Heard {
    pub(super) fn start(pids: &[u32]) -> Self {
        let uuid = uuid::Uuid::new_v4();
        let (send, inputs) = sync_channel(10_000);
        let options = Options {
            uuid,
            pids: pids.iter().copied().map(Pid).collect(),
            place: Place::choose(&uuid.to_string()).unwrap(),
            owner: (
                rustix::process::geteuid().as_raw(),
                rustix::process::getegid().as_raw(),
            ),
            memory: MEMORY,
            modes: modes::CALL,
            settings: vec![("py-include".into(), "app".into())],
            functions: FunctionTable::new(),
            ends_told_of: EndsTold::Nobody,
        };
        Self {
            probes: Probes::start(options, send).unwrap(),
            inputs,
        }
    }

    fn of_us() -> (Self, Fake) {
        let heard = Self::start(&[std::process::id()]);
        let fake = Fake::connect(heard.probes.socket()).unwrap_or_else(|why| panic!("{why:?}"));
        (heard, fake)
    }

    pub(super) fn finish(self) -> (Vec<Input>, ProbeReport) {
        let report = self.probes.finish();
        (
            self.inputs.try_iter().map(|(_, input)| input).collect(),
            report,
        )
    }
}

pub(super) fn events(inputs: &[Input]) -> Vec<Event> {
    let events = inputs.iter().filter_map(|input| match input {
        Input::Events(events) => Some(events.clone()),
        _ => None,
    });
    events.flatten().collect()
}

pub(super) fn names(inputs: &[Input]) -> Vec<String> {
    let names = inputs.iter().filter_map(|input| match input {
        Input::Function(_, info) => Some(info.name.clone()),
        _ => None,
    });
    names.collect()
}

pub(super) fn tid() -> u32 {
    rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .unsigned_abs()
}

#[test]
fn what_a_probe_writes_arrives_with_global_numbers_and_monotonic_times() {
    let before = drain::monotonic_ns();
    let (heard, fake) = Heard::of_us();
    fake.name(1, "outer");
    fake.name(2, "inner");
    let mut lane = fake.claim(0, std::process::id(), tid());
    for (kind, func) in [
        (Kind::Enter, 1),
        (Kind::Enter, 2),
        (Kind::Exit, 2),
        (Kind::Exit, 1),
    ] {
        lane.write(kind, func, u64::from(func));
    }
    let (inputs, report) = heard.finish();
    let events = events(&inputs);
    assert_eq!(events.len(), 4);
    assert_eq!(names(&inputs), ["outer", "inner"]);
    let (us, now) = (std::process::id(), drain::monotonic_ns());
    assert!(
        events
            .iter()
            .all(|event| (event.pid, event.tid) == (us, tid()))
    );
    assert!(
        events
            .iter()
            .all(|event| event.time > before - report.clock_error_ns && event.time < now)
    );
    assert!(events.is_sorted_by(|a, b| a.time <= b.time && b.seq == a.seq + 1));
    assert_eq!(events[0].seq, 1);
    assert_eq!(report.faults, 0);
    assert!(matches!(inputs.last(), Some(Input::Drained(until)) if until.0 >= events[3].time));
}

#[test]
fn a_process_keeps_its_segment_at_a_second_hello_and_a_stranger_gets_none() {
    let (heard, fake) = Heard::of_us();
    let again = Fake::connect(heard.probes.socket()).unwrap_or_else(|why| panic!("{why:?}"));
    assert_eq!(fake.memory.inode().unwrap(), again.memory.inode().unwrap());
    let strangers = Heard::start(&[1]);
    let Err(answer) = Fake::connect(strangers.probes.socket()) else {
        panic!("let in")
    };
    assert!(String::from_utf8_lossy(&answer).contains("not part of this recording"));
    let path = strangers.probes.socket().to_owned();
    strangers.finish();
    assert!(!path.exists(), "the socket goes with the recording");
}

#[test]
fn a_lane_that_is_given_back_goes_to_the_next_and_numbers_go_on() {
    let (heard, fake) = Heard::of_us();
    fake.name(1, "f");
    let mut lane = fake.claim(0, std::process::id(), tid());
    lane.write(Kind::Enter, 1, 7);
    lane.release();
    while fake.memory.u32(fake.layout.lane(0) + lane::STATE) != lane_state::FREE {
        std::thread::yield_now();
    }
    let mut lane = fake.claim(0, std::process::id(), tid());
    lane.write(Kind::Exit, 1, 7);
    let (inputs, _) = heard.finish();
    let numbers: Vec<u32> = events(&inputs).iter().map(|event| event.seq).collect();
    assert_eq!(numbers, [1, 2]);
}

#[test]
fn a_gap_in_a_lane_is_a_gap_of_its_thread() {
    let (heard, fake) = Heard::of_us();
    fake.name(1, "f");
    let mut lane = fake.claim(0, std::process::id(), tid());
    lane.write(Kind::Enter, 1, 7);
    lane.seq += 3;
    lane.write(Kind::Exit, 1, 7);
    let numbers: Vec<u32> = events(&heard.finish().0)
        .iter()
        .map(|event| event.seq)
        .collect();
    assert_eq!(numbers, [1, 5]);
}

#[test]
fn lost_calls_are_told_as_a_whole_and_by_function() {
    let (heard, fake) = Heard::of_us();
    fake.name(1, "f");
    fake.name(2, "g");
    let mut lane = fake.claim(0, std::process::id(), tid());
    lane.write(Kind::Enter, 1, 7);
    lane.set(lane::LOST_CALLS, 30);
    for (func, lost) in [(1, 10), (2, 20)] {
        fake.memory
            .set_u64(fake.layout.function(func) + function::LOST, lost);
    }
    fake.memory.set_u64(header::CALLS_PAST_LEASE, 5);
    let (inputs, report) = heard.finish();
    assert_eq!(report.lost_calls, 35);
    let told: Vec<&Loss> = inputs
        .iter()
        .filter_map(|input| match input {
            Input::Losses(losses) => Some(losses),
            _ => None,
        })
        .next_back()
        .unwrap()
        .iter()
        .collect();
    let count = |func: Option<&str>| {
        let id_of = |name: &str| {
            inputs.iter().find_map(|input| match input {
                Input::Function(id, info) if info.name == name => Some(*id),
                _ => None,
            })
        };
        told.iter()
            .find(|loss| loss.func == func.and_then(id_of) && loss.func.is_some() == func.is_some())
            .unwrap()
            .count
    };
    assert_eq!(
        [count(None), count(Some("f")), count(Some("g"))],
        [35, 10, 20]
    );
}

#[test]
fn counts_become_events() {
    let (heard, fake) = Heard::of_us();
    fake.name(1, "f");
    fake.memory
        .set_u64(fake.layout.function(1) + function::CALLS, 12);
    let (inputs, _) = heard.finish();
    let [event] = events(&inputs)[..] else {
        panic!()
    };
    assert_eq!(
        (event.kind, event.value, event.source),
        (Kind::Count as u8, 12, Source::Python as u8)
    );
}

/// A claim does not write to all of a lane: what its last holder has counted must be told, and gone by then.
#[test]
fn counters_that_are_given_back_are_told_and_0_for_the_next() {
    let (heard, fake) = Heard::of_us();
    fake.name(1, "f");
    fake.name(2, "g");
    let entry = fake.layout.lane(0);
    fake.memory.set_u32(
        entry + lane::LANE_USE,
        scalpel_common::segment::lane_use::COUNTERS_F64,
    );
    let counted = fake.claim(0, std::process::id(), tid());
    let at = fake.memory.u64(entry + lane::MEMORY_AT);
    for (local, calls) in [(1, 5.0f64), (2, 7.0)] {
        fake.memory.set_u64(at + local * 8, calls.to_bits());
    }
    // Before its counters were looked at: nothing of them is lost by that.
    counted.release();
    while fake.memory.u32(entry + lane::STATE) != lane_state::FREE {
        std::thread::yield_now();
    }
    assert_eq!([1, 2].map(|local| fake.memory.u64(at + local * 8)), [0, 0]);
    let counts: Vec<u64> = events(&heard.finish().0)
        .iter()
        .map(|event| event.value)
        .collect();
    assert_eq!(counts, [5, 7]);
}

#[test]
fn a_function_whose_name_is_missing_is_unknown_and_not_lost() {
    let (heard, fake) = Heard::of_us();
    let mut lane = fake.claim(0, std::process::id(), tid());
    lane.write(Kind::Enter, 9, 7);
    let (inputs, _) = heard.finish();
    assert_eq!(names(&inputs), ["<python function 9>"]);
    assert_ne!(events(&inputs)[0].func, 0);
}

/// Whatever is written, the collector goes on, and tells that something was wrong.
#[test]
fn a_hostile_segment_is_counted_and_never_followed() {
    let check = |harm: &dyn Fn(&Fake, FakeLane<'_>), faults: bool, strangers: bool| {
        let (heard, fake) = Heard::of_us();
        fake.name(1, "f");
        let lane = fake.claim(0, std::process::id(), tid());
        harm(&fake, lane);
        let (inputs, report) = heard.finish();
        assert_eq!(
            (report.faults > 0, report.strangers > 0),
            (faults, strangers),
            "{report:?}"
        );
        events(&inputs)
    };
    let event = |source: u8, kind: u8, func: u32| Event {
        source,
        kind,
        func,
        time: u64::MAX,
        ..Event::default()
    };
    let python = Source::Python as u8;
    let heads: [u64; 3] = [u64::MAX, 1 << 40, u64::MAX / 2];
    for head in heads {
        let found = check(&|_, lane| lane.set(lane::HEAD, head), true, false);
        assert!(found.is_empty());
    }
    let found = check(
        &|_, mut lane| lane.raw(event(Source::Uprobe as u8, 1, 1)),
        true,
        false,
    );
    assert_eq!(
        (found[0].source, found[0].kind),
        (python, 0),
        "nobody speaks for the kernel"
    );
    let found = check(
        &|_, mut lane| lane.raw(event(python, Kind::SwitchIn as u8, 0)),
        true,
        false,
    );
    assert_eq!(found[0].kind, 0);
    let found = check(
        &|_, mut lane| lane.raw(event(python, 1, u32::MAX)),
        true,
        false,
    );
    assert_eq!(found[0].func, 0);
    assert!(
        found[0].time < drain::monotonic_ns() + 2_000_000_000,
        "no time of a far future"
    );
    // Names: out of the area, overlong, nonsense.
    for offset in [u64::MAX, 1 << 50, 3] {
        let found = check(
            &|fake, mut lane| {
                fake.memory
                    .set_u64(fake.layout.function(1) + function::NAME, offset);
                lane.raw(Event {
                    time: 0,
                    ..event(python, 1, 1)
                });
            },
            false,
            false,
        );
        assert_ne!(found[0].func, 0);
    }
    // Geometry that the segment says is for probes alone.
    let found = check(
        &|fake, mut lane| {
            fake.memory.set_u64(40, u64::MAX);
            fake.memory.set_u32(header::LAST_FUNCTION, u32::MAX);
            fake.memory.set_u32(header::NOTES_USED, u32::MAX);
            fake.memory.set_u64(header::NAMES_USED, u64::MAX);
            fake.memory.set_u32(header::LANES_OPEN, u32::MAX);
            lane.set(lane::MEMORY_AT, u64::MAX);
            lane.set(lane::OPEN, u64::MAX);
            lane.raw(Event {
                time: 0,
                ..event(python, 1, 1)
            });
        },
        true,
        false,
    );
    assert_eq!(
        (found.len(), found[0].kind),
        (1, 0),
        "read where the collector put the lane"
    );
}

#[test]
fn nobody_writes_for_a_process_that_does_not_share_the_segment() {
    let (heard, fake) = Heard::of_us();
    fake.name(1, "f");
    let mut other = std::process::Command::new("sleep")
        .arg("100")
        .spawn()
        .unwrap();
    while std::fs::read_to_string(format!("/proc/{}/comm", other.id())).unwrap() != "sleep\n" {
        std::thread::yield_now();
    }
    let mut lane = fake.claim(0, other.id(), other.id());
    lane.write(Kind::Enter, 1, 7);
    let (inputs, report) = heard.finish();
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(events(&inputs).is_empty());
    assert_eq!(report.strangers, 1);
    assert!(
        !inputs
            .iter()
            .any(|input| matches!(input, Input::ThreadName(_, Tid(tid), _) if *tid == other.id()))
    );
}

#[test]
fn each_recording_has_a_socket_of_its_own_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let us = [std::process::id()];
    let (one, other) = (Heard::start(&us), Heard::start(&us));
    assert_ne!(one.probes.socket(), other.probes.socket());
    for heard in [&one, &other] {
        let metadata = std::fs::metadata(heard.probes.socket()).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    }
    one.finish();
    other.finish();
}
