//! A program with a probe and a stand-in for the collector: what is published is read, what is lost is counted, and the
//! program does the same as without.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stand outside the test functions"
)]
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use scalpel::harness::{Made, Server, Shape};
use scalpel_common::event::{Event, Kind};

struct Guest {
    child: Child,
    segment: Option<Arc<Made>>,
    events: Vec<(u32, u32, Event)>,
    _folder: tempfile::TempDir,
}

fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("examples/guest")
}

fn start(shape: Shape, arguments: &[&str], joins: bool) -> Guest {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(&folder.path().join("s"), shape).unwrap();
    let child = Command::new(program())
        .args(arguments)
        .env("SCALPEL_SOCKET", server.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let segment = joins.then(|| server.accept().unwrap().2);
    Guest {
        child,
        segment,
        events: Vec::new(),
        _folder: folder,
    }
}

impl Guest {
    fn drain(&mut self) {
        for read in self.segment.iter().flat_map(|segment| segment.drain()) {
            let events = read
                .events
                .iter()
                .map(|event| (read.pid, read.lane, *event));
            self.events.extend(events);
        }
    }

    /// Reads lanes until the program ends; what it printed.
    fn finish(&mut self) -> String {
        while self.child.try_wait().unwrap().is_none() {
            self.drain();
            std::thread::sleep(Duration::from_micros(200));
        }
        self.drain();
        let mut text = String::new();
        let mut stdout = self.child.stdout.take().unwrap();
        stdout.read_to_string(&mut text).unwrap();
        assert!(
            self.child.wait().unwrap().success(),
            "the program failed: {text}"
        );
        text.trim().to_owned()
    }

    fn count(&self, kind: Kind) -> u64 {
        let of_kind = self
            .events
            .iter()
            .filter(|(.., event)| event.kind == kind as u8);
        of_kind.count() as u64
    }

    fn lost(&self) -> u64 {
        let functions = self.segment.as_ref().unwrap().functions();
        functions.values().flatten().map(|named| named.lost).sum()
    }
}

fn run(shape: Shape, arguments: &[&str]) -> (Guest, String) {
    let mut guest = start(shape, arguments, true);
    let text = guest.finish();
    (guest, text)
}

/// The events of each lane: whole numbers in `seq`, and each EXIT after its ENTER.
fn assert_sound(guest: &Guest) {
    let mut lanes: BTreeMap<(u32, u32), Vec<Event>> = BTreeMap::new();
    for (pid, lane, event) in &guest.events {
        lanes.entry((*pid, *lane)).or_default().push(*event);
    }
    for events in lanes.values() {
        let mut open = Vec::new();
        for event in events {
            match Kind::from_u8(event.kind) {
                Some(Kind::Enter) => open.push(event.frame),
                Some(Kind::Exit) => assert_eq!(open.pop(), Some(event.frame)),
                Some(Kind::Lost) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(open.is_empty());
    }
}

#[test]
fn each_call_is_written_with_its_name_and_in_order() {
    let (guest, _) = run(Shape::default(), &["calls", "1000"]);
    assert_eq!(
        (guest.count(Kind::Enter), guest.count(Kind::Exit)),
        (1000, 1000)
    );
    assert_sound(&guest);
    let seqs: Vec<u32> = guest.events.iter().map(|(.., event)| event.seq).collect();
    assert_eq!(seqs, (0..2000).collect::<Vec<u32>>());
    let named = guest.segment.as_ref().unwrap().functions()[&1]
        .clone()
        .unwrap();
    assert_eq!(
        (named.name.as_str(), named.file.as_str(), named.head.line),
        ("work", "guest.rs", 7)
    );
}

#[test]
fn with_small_lanes_what_is_written_and_what_is_lost_are_all() {
    let shape = Shape {
        slots: 64,
        ..Shape::default()
    };
    let (guest, _) = run(shape, &["threads", "200000"]);
    assert!(guest.lost() > 0, "nothing was lost: the test shows nothing");
    assert_eq!(guest.count(Kind::Enter) + guest.lost(), 8 * 200_000);
    assert_eq!(guest.count(Kind::Enter), guest.count(Kind::Exit));
    assert_sound(&guest);
}

#[test]
fn threads_beyond_the_lanes_are_counted_as_lost() {
    let shape = Shape {
        lanes: 3,
        ..Shape::default()
    };
    let (guest, _) = run(shape, &["threads", "5000"]);
    assert_eq!(guest.count(Kind::Enter) + guest.lost(), 8 * 5000);
    let without = guest.segment.as_ref().unwrap().header().calls_without_lane;
    assert_eq!(without, guest.lost());
}

#[test]
fn a_child_forked_by_a_bare_system_call_has_a_lane_of_its_own() {
    let (guest, _) = run(Shape::default(), &["fork", "20000"]);
    assert_eq!(guest.count(Kind::Enter) + guest.lost(), 40_001);
    assert_eq!(guest.lost(), 0);
    let pids: std::collections::BTreeSet<u32> = guest.events.iter().map(|(pid, ..)| *pid).collect();
    assert_eq!(pids.len(), 2);
    assert_sound(&guest);
}

#[test]
fn a_child_that_borrows_its_parents_memory_writes_where_the_parent_does() {
    let (guest, _) = run(Shape::default(), &["vfork", "1000"]);
    assert_eq!(guest.count(Kind::Enter) + guest.lost(), 3000);
    assert_eq!(guest.lost(), 0);
    assert_sound(&guest);
}

#[test]
fn a_killed_program_leaves_all_that_it_published() {
    let mut guest = start(Shape::default(), &["endless"], true);
    while guest.events.len() < 1000 {
        guest.drain();
    }
    guest.child.kill().unwrap();
    guest.child.wait().unwrap();
    guest.drain();
    let header = guest.segment.as_ref().unwrap().header();
    assert_eq!(header.last_function, 1);
    assert!(guest.count(Kind::Enter) - guest.count(Kind::Exit) <= 1);
}

#[test]
fn a_signal_handler_that_interrupts_a_write_harms_no_event() {
    let (guest, all) = run(Shape::default(), &["handler", "2000000"]);
    assert_eq!(
        guest.count(Kind::Enter) + guest.lost(),
        all.parse::<u64>().unwrap()
    );
}

#[test]
fn calls_after_the_end_of_thread_locals_do_no_harm() {
    let (guest, _) = run(Shape::default(), &["exit", "10"]);
    assert_eq!(guest.count(Kind::Enter) + guest.lost(), 12);
}

#[test]
fn no_descriptor_thread_or_signal_differs() {
    let without = |what: &str| {
        let output = Command::new(program())
            .arg(what)
            .env_remove("SCALPEL_SOCKET")
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(without("signals").starts_with("refused: no recording"));
    let (_, descriptors) = run(Shape::default(), &["descriptors"]);
    assert_eq!(descriptors, "0");
    let (_, signals) = run(Shape::default(), &["signals"]);
    assert!(signals.contains("Threads:\t1"), "{signals}");
    assert!(signals.contains("SigBlk:\t0000000000000000"), "{signals}");
    assert!(
        signals.contains("SigCgt:\t0000000000000440") || signals.contains("SigCgt:"),
        "{signals}"
    );
}

#[test]
fn a_program_without_descriptors_or_room_runs_on() {
    let (mut guest, mut text) = (
        start(Shape::default(), &["no-descriptors"], false),
        String::new(),
    );
    text.push_str(&guest.finish());
    assert!(
        text.starts_with("refused: the collector cannot be reached"),
        "{text}"
    );
    let (_, text) = run(Shape::default(), &["no-address-space"]);
    assert!(
        text.starts_with("refused: the segment cannot be mapped"),
        "{text}"
    );
    let (guest, _) = run(Shape::default(), &["no-file-size", "1000"]);
    assert_eq!(guest.count(Kind::Enter), 1000);
}

#[test]
fn a_program_that_may_not_read_the_counter_runs_on() {
    let shape = Shape {
        clock: scalpel_common::segment::clock::TSC,
        ..Shape::default()
    };
    let text = start(shape, &["no-clock"], false).finish();
    assert!(text.contains("PR_SET_TSC"), "{text}");
}

#[test]
fn a_full_name_area_and_exhausted_ids_are_counted() {
    let shape = Shape {
        functions: 512,
        names: 8192,
        ..Shape::default()
    };
    let (guest, _) = run(shape, &["names", "1000"]);
    let segment = guest.segment.as_ref().unwrap();
    let header = segment.header();
    assert_eq!(header.last_function, 511);
    assert_eq!(header.functions_refused, 1001 - 511);
    let named = segment.functions().values().flatten().count() as u64;
    assert_eq!(named + header.names_refused, 511);
    for event in guest.events.iter().map(|(.., event)| event) {
        assert_ne!(event.func, 0);
    }
}

#[test]
fn without_lease_nothing_is_written_and_the_calls_are_counted() {
    let mut guest = start(Shape::default(), &["calls", "3000000"], true);
    let segment = Arc::clone(guest.segment.as_ref().unwrap());
    segment.set_lease(0);
    guest.finish();
    let counted = segment.header().calls_past_lease;
    assert!(counted > 0);
    assert_eq!(guest.count(Kind::Enter) + guest.lost() + counted, 3_000_000);
}

#[test]
fn a_stopped_collector_holds_no_start_for_longer_than_it_may() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(&folder.path().join("s"), Shape::default()).unwrap();
    // Nobody accepts.
    let output = Command::new(program())
        .arg("calls")
        .env("SCALPEL_SOCKET", server.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.trim(), "refused: the collector did not answer in 2 s");
    assert!(output.status.success());
}
