use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use scalpel_common::segment::note_kind;
use scalpel_common::wire::{TIMEOUT_SECONDS, frame, transport};

use super::super::clock::LaneClock;
use super::super::drain::monotonic_ns;
use super::super::functions::Functions;
use super::super::names::tests::record;
use super::super::shared::Sequences;
use super::super::tests::{Heard, events, names, tid};
use super::super::wire::tests::{frame_of, hello_frame};
use super::super::{EndsTold, SMALLEST_MEMORY};
use super::*;
use crate::event::Control;
use crate::event::{CPU_NOT_MEASURED, Event, FuncId, Kind, Source};
use crate::function::FunctionTable;
use crate::input::Input;

/// A peer that says what a test says.
struct Peer(UnixStream);

impl Peer {
    fn connect(socket: &Path) -> Self {
        let mut peer = Self(UnixStream::connect(socket).unwrap());
        peer.say(&hello_frame(
            Source::Ruby,
            transport::SOCKET,
            std::process::id(),
        ));
        let (kind, payload) = peer.answer().unwrap();
        assert_eq!(kind, frame::WELCOME);
        assert_eq!(payload[2..4], [0, 1], "CLOCK_MONOTONIC, and calls");
        assert_eq!(payload[20..28], [0; 8], "no segment");
        peer
    }

    fn say(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    fn tell(&mut self, kind: u8, payload: &[u8]) {
        self.say(&frame_of(kind, payload));
    }

    /// The next frame; `None` = the collector has closed.
    fn answer(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 8];
        self.0.read_exact(&mut head).ok()?;
        let len = u32::from_le_bytes(head[..4].try_into().unwrap());
        let mut payload = vec![0; len as usize];
        self.0.read_exact(&mut payload).ok()?;
        Some((head[4], payload))
    }

    fn why_refused(&mut self) -> String {
        loop {
            let (kind, payload) = self.answer().expect("a reason");
            if kind == frame::REFUSED {
                return String::from_utf8_lossy(&payload[2..]).into_owned();
            }
        }
    }

    fn name(&mut self, named: &[(u32, &str)]) {
        let records = named
            .iter()
            .flat_map(|(func, name)| record(*func, Source::Ruby, name, "/a.rb", "a", 3));
        let count = named.len() as u32;
        let payload: Vec<u8> = count.to_le_bytes().into_iter().chain(records).collect();
        self.tell(frame::INTERN, &payload);
    }

    fn acknowledged(&mut self) -> Vec<(u32, u32)> {
        let (kind, payload) = self.answer().unwrap();
        assert_eq!(kind, frame::INTERN_ACK);
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
        payload[4..]
            .chunks(8)
            .map(|pair| (word(&pair[..4]), word(&pair[4..])))
            .collect()
    }

    fn switched_off(&mut self) -> Vec<u32> {
        let (kind, payload) = self.answer().unwrap();
        assert_eq!(kind, frame::OFF);
        let words = payload[4..].chunks(4);
        words
            .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
            .collect()
    }

    fn events(&mut self, lane: u32, events: &[Event]) {
        self.tell(frame::EVENTS, &of_lane(lane, events));
    }

    fn bye(&mut self) {
        self.tell(frame::BYE, &[0, 0]);
    }
}

fn of_lane(lane: u32, events: &[Event]) -> Vec<u8> {
    let bytes = events.iter().flat_map(Event::to_bytes);
    lane.to_le_bytes().into_iter().chain(bytes).collect()
}

fn event(kind: Kind, func: u32, seq: u32) -> Event {
    Event {
        time: monotonic_ns(),
        cpu_ns: CPU_NOT_MEASURED,
        pid: 1,
        tid: tid(),
        func,
        seq,
        frame: 7,
        kind: kind as u8,
        source: Source::Ruby as u8,
        ..Event::default()
    }
}

fn call(func: u32, seq: u32) -> [Event; 2] {
    [
        event(Kind::Enter, func, seq),
        event(Kind::Exit, func, seq + 1),
    ]
}

fn of_us() -> (Heard, Peer) {
    let heard = Heard::start(&[std::process::id()]);
    let peer = Peer::connect(heard.probes.socket());
    (heard, peer)
}

fn words(inputs: &[Input], kind: u8) -> Vec<String> {
    let words = inputs.iter().filter_map(|input| match input {
        Input::Probe(word) if word.kind == kind => Some(word.text.clone()),
        _ => None,
    });
    words.collect()
}

fn numbers(inputs: &[Input]) -> Vec<u32> {
    events(inputs).iter().map(|event| event.seq).collect()
}

#[test]
fn what_is_said_in_frames_arrives_as_what_stands_in_lanes() {
    let (heard, mut peer) = of_us();
    let before = monotonic_ns();
    peer.name(&[(1, "outer"), (70, "inner")]);
    let pairs = peer.acknowledged();
    assert_eq!([pairs[0].0, pairs[1].0], [1, 70]);
    let (outer, inner) = (pairs[0].1, pairs[1].1);
    assert!(outer != 0 && inner != 0 && outer != inner);
    let said = [
        event(Kind::Enter, 1, 0),
        event(Kind::Enter, 70, 1),
        event(Kind::Exit, 70, 2),
        event(Kind::Exit, 1, 3),
    ];
    peer.events(9, &said);
    peer.tell(frame::BLIND_SPOTS, b"\x01\0\x02\0if");
    peer.bye();
    let (inputs, report) = heard.finish();
    let heard = events(&inputs);
    let funcs: Vec<u32> = heard.iter().map(|event| event.func).collect();
    assert_eq!(funcs, [outer, inner, inner, outer]);
    assert_eq!(names(&inputs), ["outer", "inner"]);
    let us = (std::process::id(), tid());
    assert!(heard.iter().all(|event| (event.pid, event.tid) == us));
    assert!(heard.is_sorted_by(|a, b| a.time <= b.time && b.seq == a.seq + 1));
    assert!(heard[0].seq == 1 && heard[0].time >= before && heard[3].time <= monotonic_ns());
    assert_eq!(words(&inputs, note_kind::BLIND_SPOT), ["if"]);
    assert_eq!(words(&inputs, note_kind::RUNTIME), ["Test 1.0"]);
    assert_eq!((report.events, report.faults, report.late), (4, 0, 0));
    assert!(matches!(inputs.last(), Some(Input::Drained(until)) if until.0 >= heard[3].time));
}

#[test]
fn frames_may_come_in_any_parts() {
    let (heard, mut peer) = of_us();
    let names = record(1, Source::Ruby, "f", "/a.rb", "a", 1);
    let said = [
        frame_of(frame::INTERN, &[&1u32.to_le_bytes()[..], &names].concat()),
        frame_of(frame::EVENTS, &of_lane(0, &call(1, 0))),
        frame_of(frame::BYE, &[0, 0]),
    ]
    .concat();
    for (number, byte) in said.iter().enumerate() {
        peer.say(&[*byte]);
        if number % 32 == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    let (inputs, report) = heard.finish();
    assert_eq!((events(&inputs).len(), report.faults), (2, 0));
}

#[test]
fn while_a_peer_may_still_send_nothing_young_is_certain_and_at_the_end_it_is_waited_for() {
    let (heard, mut peer) = of_us();
    peer.events(0, &call(1, 0));
    let asked = std::thread::spawn(move || {
        // The collector says no more: what is left comes now.
        assert_eq!(peer.answer(), None);
        peer.events(0, &call(1, 2));
        peer.bye();
    });
    std::thread::sleep(std::time::Duration::from_millis(20));
    let (inputs, report) = heard.finish();
    asked.join().unwrap();
    assert_eq!((events(&inputs).len(), report.events), (4, 4));
    let mut young = 0;
    for input in &inputs {
        match input {
            Input::Drained(until) => young = until.0,
            Input::Events(events) => assert!(events.iter().all(|event| event.time > young)),
            _ => {}
        }
    }
    assert!(words(&inputs, note_kind::NOTE).is_empty());
}

#[test]
fn what_a_peer_lost_is_counted_at_its_place() {
    let (heard, mut peer) = of_us();
    peer.events(0, &call(1, 0));
    let gap = [5u64.to_le_bytes(), 9u64.to_le_bytes(), 17u64.to_le_bytes()].concat();
    peer.tell(frame::GAP, &[&gap[..], b"\x03\0why"].concat());
    peer.events(0, &call(1, 2));
    peer.events(0, &call(1, 9));
    peer.bye();
    let (inputs, report) = heard.finish();
    assert_eq!(numbers(&inputs), [1, 2, 4, 5, 11, 12]);
    assert_eq!(report.lost_events, 17);
    assert_eq!(words(&inputs, note_kind::GAP), ["17 events were lost: why"]);
}

#[test]
fn counters_are_told_as_they_stand_and_only_what_is_more_counts() {
    let (heard, mut peer) = of_us();
    peer.name(&[(3, "f")]);
    for (calls, lost) in [(10u64, 1u64), (12, 1), (4, 0), (15, 3)] {
        let row = [
            &3u32.to_le_bytes()[..],
            &calls.to_le_bytes(),
            &lost.to_le_bytes(),
        ];
        peer.tell(
            frame::COUNTS,
            &[&1u32.to_le_bytes()[..], &row.concat()].concat(),
        );
    }
    peer.bye();
    let (inputs, report) = heard.finish();
    let counted: Vec<u64> = events(&inputs).iter().map(|event| event.value).collect();
    assert_eq!(counted, [10, 2, 3]);
    assert_eq!(report.lost_calls, 3);
}

#[test]
fn a_peer_that_goes_without_bye_left_something_out_and_may_come_again() {
    let (heard, mut peer) = of_us();
    peer.name(&[(1, "f")]);
    peer.acknowledged();
    peer.events(0, &call(1, 0));
    peer.say(&frame_of(frame::EVENTS, &of_lane(0, &call(1, 2)))[..40]);
    drop(peer);
    let mut peer = Peer::connect(heard.probes.socket());
    peer.name(&[(5, "f")]);
    peer.acknowledged();
    peer.events(0, &call(5, 0));
    peer.bye();
    let (inputs, report) = heard.finish();
    assert_eq!(numbers(&inputs), [1, 2, 4, 5]);
    assert_eq!(names(&inputs), ["f"], "one function, whatever its number");
    let told = words(&inputs, note_kind::NOTE);
    assert!(
        told.len() == 1 && told[0].contains("without a BYE"),
        "{told:?}"
    );
    assert_eq!(report.faults, 0);
}

#[test]
fn nobody_else_speaks_on_a_connection() {
    let (heard, mut peer) = of_us();
    peer.events(0, &call(1, 0));
    let handed_on = OwnedFd::from(peer.0.try_clone().unwrap());
    let child = Command::new("sh")
        .args(["-c", "printf x >&0"])
        .stdin(Stdio::from(handed_on))
        .status();
    assert!(child.unwrap().success());
    assert!(peer.why_refused().contains("wrote on the connection"));
    assert_eq!(peer.answer(), None);
    let (inputs, report) = heard.finish();
    assert_eq!((events(&inputs).len(), report.faults), (2, 1));
    assert_eq!(words(&inputs, note_kind::REFUSAL).len(), 1);
}

#[test]
fn a_stranger_is_not_listened_to() {
    let heard = Heard::start(&[1]);
    let mut peer = Peer(UnixStream::connect(heard.probes.socket()).unwrap());
    let hello = hello_frame(Source::Ruby, transport::SOCKET, std::process::id());
    peer.say(&[hello, frame_of(frame::EVENTS, &of_lane(0, &call(1, 0)))].concat());
    assert!(peer.why_refused().contains("not part of this recording"));
    assert!(events(&heard.finish().0).is_empty());
}

/// Whatever is said, the collector goes on, tells that something was wrong, and hears the next peer.
#[test]
fn hostile_frames_are_counted_and_end_their_own_connection_at_most() {
    let check = |said: &[u8], refused: Option<&str>| {
        let (heard, mut peer) = of_us();
        peer.say(said);
        match refused {
            Some(why) => {
                let told = peer.why_refused();
                assert!(told.contains(why), "{told}");
            }
            None => peer.bye(),
        }
        let mut other = Peer::connect(heard.probes.socket());
        other.events(0, &call(1, 0));
        other.bye();
        let (inputs, report) = heard.finish();
        let last = events(&inputs);
        assert!(last.len() >= 2, "the other is heard");
        assert!(report.faults > 0, "{report:?}");
        last
    };
    let hello = hello_frame(Source::Ruby, transport::SOCKET, 1);
    check(&hello, Some("HELLO twice"));
    check(&[255, 255, 255, 255, 6, 1, 0, 0], Some("at most"));
    check(&frame_of(200, &[]), Some("unknown kind 200"));
    check(&frame_of(frame::WELCOME, &[]), Some("unknown kind 2"));
    check(&frame_of(frame::EVENTS, &[0; 20]), Some("makes no sense"));
    check(
        &frame_of(frame::INTERN, &[0xff; 90]),
        Some("makes no sense"),
    );
    check(&[1, 0, 0, 0, 6, 9, 0, 0], Some("wire version 9"));
    let wrong = |event: Event| frame_of(frame::EVENTS, &of_lane(0, &[event]));
    let kernel = Event {
        source: Source::Uprobe as u8,
        ..event(Kind::Enter, 1, 0)
    };
    let heard = check(&wrong(kernel), None);
    assert_eq!((heard[0].source, heard[0].kind), (Source::Ruby as u8, 0));
    let heard = check(&wrong(event(Kind::SwitchIn, 1, 0)), None);
    assert_eq!(heard[0].kind, 0);
    let future = Event {
        time: u64::MAX,
        ..event(Kind::Enter, 1, 0)
    };
    let heard = check(&wrong(future), None);
    assert!(heard[0].time < monotonic_ns() + 2_000_000_000);
    // Id 0 cannot be named, and is told so.
    let nameless = record(0, Source::Ruby, "f", "/a.rb", "a", 1);
    check(
        &frame_of(
            frame::INTERN,
            &[&1u32.to_le_bytes()[..], &nameless].concat(),
        ),
        None,
    );
}

#[test]
fn lanes_and_words_of_one_process_are_bounded() {
    let (heard, mut peer) = of_us();
    let lanes = MOST_THREADS as u32 + 100;
    let said: Vec<u8> = (0..lanes)
        .flat_map(|lane| {
            let one = Event {
                tid: 1_000_000 + lane,
                ..event(Kind::Enter, 1, 0)
            };
            frame_of(frame::EVENTS, &of_lane(lane, &[one]))
        })
        .collect();
    peer.say(&said);
    for _ in 0..MOST_WORDS + 100 {
        peer.tell(frame::NOTE, b"\x05\0\0\0\0\0\0\0\0\x02\0hi");
    }
    peer.bye();
    let (inputs, report) = heard.finish();
    assert_eq!(events(&inputs).len(), MOST_THREADS);
    assert_eq!(report.lost_events, 100, "and what is not kept is lost");
    let told = words(&inputs, note_kind::NOTE);
    assert_eq!(told.len(), MOST_WORDS as usize);
    assert!(told.last().unwrap().contains("more to say"));
}

/// A pair of sockets whose other end is ours, so that a test has the clock in its hand.
struct Alone {
    frames: Frames,
    shared: Shared,
    peer: Peer,
    inputs: Vec<Input>,
}

impl Alone {
    fn new() -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        rustix::net::sockopt::set_socket_passcred(&theirs, true).unwrap();
        let budget = Arc::new(Budget::new(SMALLEST_MEMORY));
        let mut alone = Self {
            frames: Frames::new(Arc::clone(&budget)),
            shared: Shared {
                functions: Functions::after(FunctionTable::new()),
                sequences: Sequences::default(),
                clock: LaneClock::Monotonic,
                now: monotonic_ns(),
                ends: EndsTold::All,
                targets: Vec::new(),
                off: rustc_hash::FxHashSet::default(),
            },
            peer: Peer(ours),
            inputs: Vec::new(),
        };
        let newcomer = Newcomer {
            stream: theirs,
            process: Process::open(Pid(std::process::id())).unwrap(),
            source: Source::Ruby as u8,
            inbox: Vec::new(),
            answer: Vec::new(),
            charge: Charge::of(&budget, 1 << 20).unwrap(),
        };
        alone.frames.begin(newcomer, &alone.shared);
        alone
    }

    fn pass(&mut self) {
        let inputs = &mut self.inputs;
        let mut give = |input| {
            inputs.push(input);
            true
        };
        self.frames.pass(&mut self.shared, &mut give).unwrap();
    }

    fn later(&mut self, seconds: u64) {
        self.shared.now += seconds * 1_000_000_000;
        self.pass();
    }
}

#[test]
fn half_a_frame_is_waited_for_and_not_for_ever() {
    let mut alone = Alone::new();
    alone.later(2 * TIMEOUT_SECONDS);
    assert!(!alone.frames.is_silent(), "a peer may have nothing to say");
    alone.peer.say(&[1]);
    alone.later(1);
    alone.later(TIMEOUT_SECONDS - 10);
    alone.peer.say(&[0]);
    alone.later(1);
    alone.later(TIMEOUT_SECONDS - 10);
    assert!(!alone.frames.is_silent());
    alone.later(20);
    assert!(alone.frames.is_silent());
    assert!(alone.peer.why_refused().contains("nothing moved for 300 s"));
}

#[test]
fn a_peer_that_reads_no_answers_is_not_listened_to_for_ever() {
    let mut alone = Alone::new();
    alone.peer.0.set_nonblocking(true).unwrap();
    let records: Vec<u8> = (0..10_000)
        .flat_map(|_| record(1, Source::Ruby, "f", "", "", 1))
        .collect();
    let said = frame_of(
        frame::INTERN,
        &[&10_000u32.to_le_bytes()[..], &records].concat(),
    );
    let (mut sent, mut at) = (0, 0);
    for _ in 0..2000 {
        if let Ok(count) = alone.peer.0.write(&said[at..]) {
            sent += count;
            at = (at + count) % said.len();
        }
        alone.pass();
    }
    assert!(sent < 40 << 20, "{sent} bytes were taken");
    assert!(!alone.frames.is_silent());
    alone.later(TIMEOUT_SECONDS + 1);
    assert!(alone.frames.is_silent(), "an answer that nobody takes");
}

#[test]
fn names_are_within_the_budget() {
    let mut alone = Alone::new();
    alone.peer.0.set_nonblocking(true).unwrap();
    let long = "x".repeat(60 << 10);
    let mut refused = false;
    for func in 1..200u32 {
        let name = record(func, Source::Ruby, &long, "", "", func);
        let said = frame_of(frame::INTERN, &[&1u32.to_le_bytes()[..], &name].concat());
        alone.peer.say(&said);
        alone.pass();
        alone.pass();
        let pairs = alone.peer.acknowledged();
        refused |= pairs[0].1 == 0;
    }
    assert!(refused);
    let told = alone
        .inputs
        .iter()
        .filter(|input| matches!(input, Input::Function(..)));
    assert!((60 << 10) * told.count() as u64 <= SMALLEST_MEMORY / 8);
}

#[test]
fn a_process_that_is_gone_ends_its_threads() {
    let mut alone = Alone::new();
    alone.shared.ends = EndsTold::Nobody;
    alone.peer.events(0, &[event(Kind::Enter, 1, 0)]);
    alone.peer.bye();
    alone.pass();
    let mut child = Command::new("sleep").arg("100").spawn().unwrap();
    let gone = Process::open(Pid(child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    for known in alone.frames.known.values_mut() {
        known.process = gone.clone();
    }
    alone.later(1);
    let ends = |input: &&Input| matches!(input, Input::Control(Control::Exit { tid: Tid(ended), .. }) if *ended == tid());
    assert_eq!(alone.inputs.iter().filter(ends).count(), 1);
    assert!(alone.frames.known.is_empty());
}

#[test]
fn a_peer_is_told_once_of_each_function_that_is_off() {
    let (heard, mut peer) = of_us();
    peer.name(&[(1, "hot"), (2, "rare")]);
    let hot = FuncId::new(peer.acknowledged()[0].1).unwrap();
    heard.probes.switch_off(&[hot]);
    assert_eq!(peer.switched_off(), [1]);
    peer.name(&[(3, "late")]);
    // The next answer is no second OFF.
    assert_eq!(peer.acknowledged().len(), 1);
    peer.bye();
    let mut again = Peer::connect(heard.probes.socket());
    again.name(&[(9, "hot")]);
    assert_eq!(again.acknowledged(), [(9, hot.get())]);
    assert_eq!(again.switched_off(), [9], "it has another number for it");
    again.bye();
    heard.finish();
}
