//! The lane under a model checker: every order in which a producer and the collector can meet, and every value that the
//! memory model lets either see.
//!
//! The producer's code is the one that runs over shared memory; the collector's is what FORMAT.md asks of a reader.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests stand outside the test functions"
)]
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use scalpel::lane::{Producer, Ring};
use scalpel_common::event::{Event, Kind};

const SLOTS: u64 = 16;

struct Lane {
    slots: Vec<UnsafeCell<Event>>,
    head: AtomicU64,
    tail: AtomicU64,
}

impl Lane {
    /// A lane that has gone on to `at` already.
    fn new(at: u64) -> Self {
        Self {
            slots: (0..SLOTS)
                .map(|_| UnsafeCell::new(Event::default()))
                .collect(),
            head: AtomicU64::new(at),
            tail: AtomicU64::new(at),
        }
    }

    /// The collector: reads what is published, then gives the slots back.
    fn drain(&self, into: &mut Vec<Event>) {
        let tail = self.tail.load(Ordering::Relaxed);
        let head = self.head.load(Ordering::Acquire);
        for number in tail..head {
            let slot = &self.slots[usize::try_from(number % SLOTS).unwrap()];
            // SAFETY: the checker fails if the producer may write meanwhile.
            into.push(slot.with(|event| unsafe { *event }));
        }
        self.tail.store(head, Ordering::Release);
    }
}

impl Ring for Lane {
    fn tail(&self) -> u64 {
        self.tail.load(Ordering::Acquire)
    }

    fn write(&self, number: u64, event: &Event) {
        let slot = &self.slots[usize::try_from(number % SLOTS).unwrap()];
        // SAFETY: the checker fails if the collector may read meanwhile.
        slot.with_mut(|place| unsafe { *place = *event });
    }

    fn publish(&self, head: u64) {
        self.head.store(head, Ordering::Release);
    }
}

fn of(kind: Kind, func: u32) -> Event {
    Event {
        func,
        kind: kind as u8,
        ..Event::default()
    }
}

/// Nested calls while the collector drains: whole calls, in order, and none without trace.
fn calls(begin_at: u64, calls: u32, drains: usize) {
    loom::model(move || {
        let lane = Arc::new(Lane::new(begin_at));
        let reader = Arc::clone(&lane);
        let reading = thread::spawn(move || {
            let mut events = Vec::new();
            for _ in 0..drains {
                reader.drain(&mut events);
            }
            events
        });
        let mut producer = Producer::new(SLOTS, begin_at);
        let let_in: Vec<u32> = (1..=calls)
            .filter(|call| producer.begin(&*lane, &mut of(Kind::Enter, *call)))
            .collect();
        for call in let_in.iter().rev() {
            assert!(
                producer.end(&*lane, &mut of(Kind::Exit, *call)),
                "an end found no room"
            );
        }
        let mut events = reading.join().unwrap();
        lane.drain(&mut events);
        assert_whole(&events, &let_in);
        for (seq, event) in (0..).zip(&events) {
            assert_eq!(event.seq, seq);
        }
    });
}

fn assert_whole(events: &[Event], let_in: &[u32]) {
    let of_kind = |kind: Kind| -> Vec<u32> {
        let found = events.iter().filter(|event| event.kind == kind as u8);
        found.map(|event| event.func).collect()
    };
    assert_eq!(of_kind(Kind::Enter), let_in);
    let ended: Vec<u32> = let_in.iter().rev().copied().collect();
    assert_eq!(of_kind(Kind::Exit), ended);
}

#[test]
fn a_collector_that_drains_meanwhile_sees_whole_events_in_order() {
    calls(0, 2, 2);
}

#[test]
fn a_lane_that_runs_full_meanwhile_overwrites_nothing_that_is_being_read() {
    // Room for three calls: whether the fourth and fifth are let in depends on the collector.
    calls(SLOTS - 2, 5, 2);
}
