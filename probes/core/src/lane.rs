//! The producer's side of a ring lane: what is let in, what is lost, and how the loss is told.
//!
//! Pure over [`Ring`], so that the same code runs over shared memory and under a model checker.

use scalpel_common::event::{Event, Kind};
use scalpel_common::segment::LOST_SLOTS;

/// The memory of one lane. Only its one producer uses it.
pub trait Ring {
    /// Events that the collector has consumed (load-acquire: their slots may be written again).
    fn tail(&self) -> u64;
    /// Writes the slot of event number `number`, which the collector does not read before [`Ring::publish`].
    fn write(&self, number: u64, event: &Event);
    /// Events there are from now on (store-release).
    fn publish(&self, head: u64);
}

/// What the producer keeps of its lane between two events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Producer {
    slots: u64,
    head: u64,
    tail: u64,
    open: u64,
    seq: u32,
    untold: u64,
}

impl Producer {
    /// A lane of `slots` slots whose head and tail stand at `head`.
    pub const fn new(slots: u64, head: u64) -> Self {
        Self {
            slots,
            head,
            tail: head,
            open: 0,
            seq: 0,
            untold: 0,
        }
    }

    /// Events published since the lane was made.
    pub const fn head(&self) -> u64 {
        self.head
    }

    /// Calls that were let in and have not ended.
    pub const fn open(&self) -> u64 {
        self.open
    }

    /// Writes the beginning of a call, if its end will find room too. `false`: the whole call is lost, and nothing may be
    /// written of it.
    #[inline]
    pub fn begin(&mut self, ring: &impl Ring, event: &mut Event) -> bool {
        if !self.room(ring, self.kept() + 3) {
            self.untold += 1;
            return false;
        }
        self.open += 1;
        self.tell(ring, event);
        self.write(ring, event);
        true
    }

    /// Writes the end of a call that was let in, here or on another lane. `false`: there was no room, and the gap in `seq`
    /// says so.
    #[inline]
    pub fn end(&mut self, ring: &impl Ring, event: &mut Event) -> bool {
        self.open = self.open.saturating_sub(1);
        if !self.room(ring, 1) {
            self.seq = self.seq.wrapping_add(1);
            return false;
        }
        self.write(ring, event);
        true
    }

    /// Writes what happens within a call that was let in. `false` as in [`Producer::end`].
    #[inline]
    pub fn within(&mut self, ring: &impl Ring, event: &mut Event) -> bool {
        if !self.room(ring, self.kept() + 2) {
            self.seq = self.seq.wrapping_add(1);
            return false;
        }
        self.tell(ring, event);
        self.write(ring, event);
        true
    }

    /// Slots for the ends of open calls, and some more for ends that come from other lanes. Frames that never end (abandoned
    /// generators) must not close the lane for ever: hence the half.
    #[inline]
    fn kept(&self) -> u64 {
        LOST_SLOTS + self.open.min(self.slots / 2)
    }

    #[inline]
    fn room(&mut self, ring: &impl Ring, need: u64) -> bool {
        if self.slots - (self.head - self.tail) >= need {
            return true;
        }
        self.tail = ring.tail();
        self.slots - (self.head - self.tail) >= need
    }

    /// How many calls were lost, at the place in the stream where they were lost.
    #[inline]
    fn tell(&mut self, ring: &impl Ring, next: &Event) {
        if self.untold > 0 {
            let mut lost = Event {
                func: 0,
                frame: 0,
                site: 0,
                value: self.untold,
                kind: Kind::Lost as u8,
                flags: 0,
                ..*next
            };
            self.untold = 0;
            self.write(ring, &mut lost);
        }
    }

    #[inline]
    fn write(&mut self, ring: &impl Ring, event: &mut Event) {
        event.seq = self.seq;
        self.seq = self.seq.wrapping_add(1);
        ring.write(self.head, event);
        self.head += 1;
        ring.publish(self.head);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    struct Plain {
        slots: usize,
        tail: Cell<u64>,
        events: RefCell<Vec<Event>>,
        head: Cell<u64>,
    }

    impl Plain {
        fn new(slots: usize) -> Self {
            Self {
                slots,
                tail: Cell::new(0),
                events: RefCell::new(vec![Event::default(); slots]),
                head: Cell::new(0),
            }
        }

        fn drain(&self) -> Vec<Event> {
            let read = (self.tail.get()..self.head.get())
                .map(|number| self.events.borrow()[number as usize % self.slots])
                .collect();
            self.tail.set(self.head.get());
            read
        }
    }

    impl Ring for Plain {
        fn tail(&self) -> u64 {
            self.tail.get()
        }
        fn write(&self, number: u64, event: &Event) {
            assert!(
                number - self.tail.get() < self.slots as u64,
                "a slot that was not consumed is overwritten"
            );
            self.events.borrow_mut()[number as usize % self.slots] = *event;
        }
        fn publish(&self, head: u64) {
            self.head.set(head);
        }
    }

    fn of(kind: Kind) -> Event {
        Event {
            kind: kind as u8,
            ..Event::default()
        }
    }

    fn count(events: &[Event], kind: Kind) -> u64 {
        events
            .iter()
            .filter(|event| event.kind == kind as u8)
            .count() as u64
    }

    #[test]
    fn a_full_lane_loses_whole_calls_and_says_how_many() {
        let ring = Plain::new(32);
        let mut producer = Producer::new(32, 0);
        let mut let_in = 0;
        for _ in 0..100 {
            if producer.begin(&ring, &mut of(Kind::Enter)) {
                let_in += 1;
                assert!(producer.end(&ring, &mut of(Kind::Exit)));
            }
        }
        let first = ring.drain();
        assert_eq!(count(&first, Kind::Enter), let_in);
        assert_eq!(count(&first, Kind::Exit), let_in);
        assert!(producer.begin(&ring, &mut of(Kind::Enter)));
        let then = ring.drain();
        assert_eq!(then[0].kind, Kind::Lost as u8);
        assert_eq!(let_in + then[0].value, 100);
        assert_eq!(then[1].seq, then[0].seq + 1, "whole calls leave no gap");
    }

    #[test]
    fn every_call_that_is_let_in_finds_room_for_its_end() {
        let ring = Plain::new(64);
        let mut producer = Producer::new(64, 0);
        let depth = (0..64)
            .take_while(|_| producer.begin(&ring, &mut of(Kind::Enter)))
            .count();
        assert!(depth > 20, "only {depth} calls deep");
        for _ in 0..depth {
            assert!(producer.end(&ring, &mut of(Kind::Exit)));
        }
        assert_eq!(producer.open(), 0);
    }

    #[test]
    fn calls_that_never_end_do_not_close_the_lane() {
        let ring = Plain::new(64);
        let mut producer = Producer::new(64, 0);
        for _ in 0..10_000 {
            assert!(producer.begin(&ring, &mut of(Kind::Enter)));
            ring.drain();
        }
        assert!(producer.begin(&ring, &mut of(Kind::Enter)));
    }

    #[test]
    fn an_end_without_room_leaves_a_gap() {
        let ring = Plain::new(16);
        let mut producer = Producer::new(16, 0);
        assert!(producer.begin(&ring, &mut of(Kind::Enter)));
        while producer.within(&ring, &mut of(Kind::Suspend)) {}
        let before = ring.drain().last().unwrap().seq;
        assert!(producer.end(&ring, &mut of(Kind::Exit)));
        assert_eq!(ring.drain()[0].seq, before + 2);
    }
}
