//! Single cases: ends that nobody tells, calls that nobody judges, waits.

use super::holder::UNWIND;
use super::tests::{FUNC, ROOMY, blocks, event, sieve, tree};
use super::*;
use crate::stack::program::PID;
use crate::stack::tests::sums;

#[test]
fn what_is_open_at_the_end_and_slow_already_is_kept_and_says_so() {
    for (end, slow) in [(150, false), (101 + 100, true)] {
        let mut sieve = sieve(&[(FUNC, 100)], ROOMY);
        let mut out = Vec::new();
        sieve.events(&[event(Kind::Enter, 1, 50, 0x9000)], &mut out);
        sieve.events(&[event(Kind::Enter, FUNC, 100, 0x8000)], &mut out);
        sieve.finish(MonoTime(end), &mut out);
        let blocks = blocks(&out);
        assert_eq!(blocks.len(), usize::from(slow));
        let trigger = &sieve.triggers()[0];
        assert_eq!(
            (trigger.calls, trigger.over),
            (u64::from(slow), u64::from(slow))
        );
        for block in blocks {
            assert_eq!(block.call.end, CallEnd::Open);
            assert_eq!(block.call.cpu_ns, None, "nobody told it");
            let [caller, call] = block.events.as_slice() else {
                panic!("{block:?}");
            };
            assert_eq!((caller.func, caller.flags), (1, flags::EARLIER));
            assert_eq!((call.func, call.flags), (FUNC, 0));
        }
    }
}

#[test]
fn a_thread_that_ends_ends_its_calls_and_a_later_one_of_its_number_begins_anew() {
    let mut sieve = sieve(&[(FUNC, 10)], ROOMY);
    let mut out = Vec::new();
    for start in [0, 1000] {
        sieve.events(&[event(Kind::Enter, FUNC, start + 1, 0x8000)], &mut out);
        sieve.thread_ended(MonoTime(start + 100), PID, Tid(1), &mut out);
    }
    let blocks = blocks(&out);
    let ends: Vec<_> = blocks
        .iter()
        .map(|b| (b.call.end, b.events[0].seq))
        .collect();
    assert_eq!(ends, [(CallEnd::ThreadEnded, 1); 2]);
    assert_eq!(sieve.triggers()[0].kept, 2);
}

#[test]
fn waits_and_samples_inside_are_kept_in_their_place_and_sums_without_a_place_are_not() {
    let wait = |time, value, flags| Sample {
        event: Event {
            value,
            flags,
            ..event(Kind::SwitchIn, 0, time, 0)
        },
        user: vec![1],
        kernel: Vec::new(),
        copy: None,
    };
    let mut sieve = sieve(&[(FUNC, 10)], ROOMY);
    let mut out = Vec::new();
    sieve.sample(wait(5, 1, 0), &mut out);
    sieve.events(&[event(Kind::Enter, FUNC, 10, 0x8000)], &mut out);
    sieve.sample(wait(60, 40, 0), &mut out);
    sieve.sample(wait(60, 7, flags::UNTOLD), &mut out);
    sieve.events(&[event(Kind::Exit, FUNC, 90, 0x8000)], &mut out);
    sieve.sample(wait(95, 1, 0), &mut out);
    let [
        Input::Kept(call),
        Input::Events(before),
        Input::Sample(inside),
        Input::Events(after),
    ] = out.as_slice()
    else {
        panic!("{out:?}");
    };
    assert_eq!((call.waits, call.waited_ns, call.items), (1, 40, 3));
    assert_eq!((call.wall_ns(), call.cpu_ns), (80, Some(20)));
    assert_eq!((before.len(), inside.event.time, after.len()), (1, 60, 1));
}

#[test]
fn calls_without_an_end_and_tasks_that_wait_are_counted_and_not_judged() {
    let mut sieve = sieve(&[(FUNC, 0)], ROOMY);
    let mut out = Vec::new();
    let endless = Event {
        flags: flags::NO_EXIT,
        ..event(Kind::Enter, FUNC, 10, 0x8000)
    };
    sieve.events(&[endless], &mut out);
    let python = |kind, time| Event {
        source: crate::event::Source::Python as u8,
        ..event(kind, FUNC, time, 0x70)
    };
    sieve.events(
        &[python(Kind::Enter, 20), python(Kind::Suspend, 40)],
        &mut out,
    );
    sieve.events(&[event(Kind::Exit, FUNC, 50, 0xf000)], &mut out);
    sieve.finish(MonoTime(60), &mut out);
    assert!(out.is_empty(), "{out:?}");
    let trigger = &sieve.triggers()[0];
    assert_eq!(
        (
            trigger.endless,
            trigger.suspended,
            trigger.headless,
            trigger.calls
        ),
        (1, 1, 1, 0)
    );
}

#[test]
fn a_call_that_an_exception_passed_ends_where_something_else_is_seen() {
    let mut sieve = sieve(&[(FUNC, 10)], ROOMY);
    let mut out = Vec::new();
    sieve.events(
        &[
            event(Kind::Enter, 1, 1, 0x9000),
            event(Kind::Enter, FUNC, 10, 0x8000),
            event(Kind::Enter, 3, 20, 0x7000),
            event(Kind::Exit, 1, 100, 0x9000),
        ],
        &mut out,
    );
    let blocks = blocks(&out);
    assert_eq!(
        (blocks[0].call.end, blocks[0].call.ended),
        (CallEnd::Unwound, MonoTime(100))
    );
    let last = blocks[0].events.last().unwrap();
    assert_eq!((last.kind, last.func, last.time), (UNWIND, FUNC, 100));
    let tree = tree(&out);
    let unwound: u64 = sums(&tree).values().map(|metrics| metrics.unwound).sum();
    assert_eq!(unwound, 2, "the call and what it had called");
}
