//! Random programs: exactly the slow calls are kept, each with all that it did.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::input::KeptCall;
use crate::stack::program::{FUNCTIONS, PID, Run, function, mapped, ops};
use crate::stack::tests::sums;
use crate::tree::{Metrics, Tree};

pub(super) const FUNC: u32 = 2;
pub(super) const ROOMY: Room = Room {
    thread: 1 << 20,
    all: 1 << 20,
};

fn trigger(threshold_ns: u64) -> Trigger {
    Trigger {
        text: "f".into(),
        threshold_ns,
        ..Trigger::default()
    }
}

pub(super) fn sieve(triggers: &[(u32, u64)], room: Room) -> Sieve {
    let of: Vec<u32> = triggers.iter().map(|&(func, _)| func).collect();
    let triggers = triggers.iter().map(|&(_, ns)| trigger(ns)).collect();
    let mut sieve = Sieve::new(MonoTime(0), triggers, room);
    for func in 1..=FUNCTIONS {
        let is_of = |place: usize| of[place] == func;
        sieve.function(FuncId::new(func).unwrap(), &function(func), is_of);
    }
    sieve.control(&mapped());
    sieve
}

fn builder() -> Builder {
    let mut builder = Builder::new(Options::default());
    for func in 1..=FUNCTIONS {
        builder.function(FuncId::new(func).unwrap(), &function(func));
    }
    builder.control(&mapped());
    builder
}

/// A kept call with what was written of it.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) call: KeptCall,
    inner: Vec<KeptCall>,
    pub(super) events: Vec<Event>,
}

/// What comes out, cut into calls; numbers that are missing are as many as were lost.
pub(super) fn blocks(out: &[Input]) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for input in out {
        match input {
            Input::Kept(call) if call.items > 0 => blocks.push(Block {
                call: call.clone(),
                inner: Vec::new(),
                events: Vec::new(),
            }),
            Input::Kept(call) => blocks.last_mut().unwrap().inner.push(call.clone()),
            Input::Events(events) => blocks.last_mut().unwrap().events.extend(events),
            other => panic!("{other:?}"),
        }
    }
    for block in &blocks {
        assert_eq!(block.call.items, block.events.len() as u64);
        assert!(
            block.events.is_sorted_by_key(|event| event.time),
            "{block:?}"
        );
    }
    blocks
}

/// The tree of a stream whose missing numbers are losses.
pub(super) fn tree(out: &[Input]) -> Tree {
    let mut builder = builder();
    let mut next: BTreeMap<u32, u32> = BTreeMap::new();
    for input in out {
        let Input::Events(events) = input else {
            continue;
        };
        for event in events {
            let next = next.entry(event.tid).or_insert(1);
            if event.seq != *next {
                builder.gap(PID, Tid(event.tid), u64::from(event.seq - *next));
            }
            *next = event.seq + 1;
            builder.events(&[*event]);
        }
    }
    finish(builder)
}

fn finish(builder: Builder) -> Tree {
    builder.finish(MonoTime(1 << 40), &mut |_, _| None)
}

/// What was measured inside calls of a function, by the path from the root.
fn inside(tree: &Tree, func: u32) -> BTreeMap<Vec<u32>, Metrics> {
    let mut found: BTreeMap<Vec<u32>, Metrics> = BTreeMap::new();
    for (context, metrics) in sums(tree) {
        let mut path = Vec::new();
        let mut at = context;
        while at.0 != 0 {
            let context = &tree.contexts[at.0 as usize];
            path.push(context.func.map_or(0, FuncId::get));
            at = context.parent;
        }
        if path.contains(&func) && metrics != Metrics::default() {
            path.reverse();
            found.entry(path).or_default().add(&metrics);
        }
    }
    found
}

/// Calls in a tree: recursion may be folded, so that not all are on a path with the function.
fn counted(tree: &Tree) -> u64 {
    sums(tree).values().map(|metrics| metrics.calls).sum()
}

fn entered(out: &[Input]) -> u64 {
    let events = blocks(out)
        .into_iter()
        .flat_map(|block| bare(&block.events));
    events.filter(|event| event.kind == ENTER).count() as u64
}

fn sift(sieve: &mut Sieve, runs: &[Run], size: usize) -> Vec<Input> {
    let mut out = Vec::new();
    let mut parts: Vec<_> = runs.iter().map(|run| run.events.chunks(size)).collect();
    while parts
        .iter_mut()
        .filter_map(|part| part.next().map(|events| sieve.events(events, &mut out)))
        .count()
        > 0
    {}
    sieve.finish(MonoTime(1 << 40), &mut out);
    out
}

/// Outermost calls of a function in a program that only returns: its events, from the ENTER to the EXIT.
fn calls(run: &Run, func: u32) -> Vec<&[Event]> {
    let (mut open, mut start, mut calls) = (0, 0, Vec::new());
    for (at, event) in run
        .events
        .iter()
        .enumerate()
        .filter(|(_, e)| e.func == func)
    {
        if event.kind == ENTER {
            start = if open == 0 { at } else { start };
            open += 1;
        } else {
            open -= 1;
            if open == 0 {
                calls.push(&run.events[start..=at]);
            }
        }
    }
    calls
}

fn lasted(call: &[Event]) -> u64 {
    call.last().unwrap().time - call[0].time
}

/// Without what was written for the callers, and without numbers.
fn bare(events: &[Event]) -> Vec<Event> {
    let told = events
        .iter()
        .filter(|event| event.flags & flags::EARLIER == 0);
    told.map(|event| Event { seq: 0, ..*event }).collect()
}

fn programs(throws: bool) -> impl Strategy<Value = Vec<Vec<crate::stack::program::Op>>> {
    proptest::collection::vec(ops(throws), 1..4)
}

fn runs(programs: &[Vec<crate::stack::program::Op>], entry_only: u32) -> Vec<Run> {
    (1..)
        .zip(programs)
        .map(|(tid, ops)| Run::of(tid, entry_only, ops))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn exactly_the_slow_calls_are_kept_each_with_all_its_events(programs in programs(false), threshold in 0u64..3000) {
        let runs = runs(&programs, 0);
        let mut sieve = sieve(&[(FUNC, threshold)], ROOMY);
        let out = sift(&mut sieve, &runs, 5);
        let mut slow: Vec<Vec<Event>> = Vec::new();
        let (mut all, mut slowest) = (0, 0);
        for call in runs.iter().flat_map(|run| calls(run, FUNC)) {
            (all, slowest) = (all + 1, lasted(call).max(slowest));
            if lasted(call) > threshold {
                slow.push(call.to_vec());
            }
        }
        let trigger = &sieve.triggers()[0];
        prop_assert_eq!((trigger.calls, trigger.over, trigger.kept, trigger.slowest_ns),
            (all, slow.len() as u64, slow.len() as u64, slowest));
        let mut kept: Vec<Vec<Event>> = blocks(&out).iter().map(|block| bare(&block.events)).collect();
        slow.sort_by_key(|call| (call[0].tid, call[0].time));
        kept.sort_by_key(|call| (call[0].tid, call[0].time));
        prop_assert_eq!(kept, slow);
        prop_assert_eq!(sieve.judge.held, 0);
    }

    #[test]
    fn what_is_measured_in_kept_calls_is_what_the_whole_recording_says(
        programs in programs(true),
        entry_only in 0u32..128,
    ) {
        let runs = runs(&programs, entry_only & !(1 << FUNC));
        let mut whole = builder();
        runs.iter().for_each(|run| whole.events(&run.events));
        let whole = finish(whole);
        let mut sieve = sieve(&[(FUNC, 0)], ROOMY);
        let out = sift(&mut sieve, &runs, 5);
        let kept = tree(&out);
        prop_assert_eq!(inside(&kept, FUNC), inside(&whole, FUNC));
        prop_assert_eq!(counted(&kept), entered(&out), "callers are no calls");
    }

    #[test]
    fn the_same_holds_of_what_is_lost(
        program in ops(true),
        lost in proptest::collection::vec(0usize..300, 0..20),
    ) {
        let run = Run::of(1, 0, &program);
        let (mut whole, mut sieve, mut out) = (builder(), sieve(&[(FUNC, 0)], ROOMY), Vec::new());
        let mut gap = 0;
        for (index, event) in run.events.iter().enumerate() {
            if lost.contains(&index) {
                gap += 1;
                continue;
            }
            if gap > 0 {
                sieve.gap(Stream::Calls, PID, Tid(1), gap, &mut out);
                whole.gap(PID, Tid(1), std::mem::take(&mut gap));
            }
            whole.events(&[*event]);
            sieve.events(&[*event], &mut out);
        }
        sieve.finish(MonoTime(1 << 40), &mut out);
        let calls = |tree: &Tree, func: u32| -> BTreeMap<Vec<u32>, u64> {
            let all = inside(tree, func).into_iter();
            all.map(|(path, metrics)| (path, metrics.calls)).filter(|&(_, calls)| calls > 0).collect()
        };
        // In the whole there are calls made from a call whose own beginning was lost.
        let whole = calls(&finish(whole), FUNC);
        let kept = calls(&tree(&out), FUNC);
        for (path, calls) in &kept {
            prop_assert!(whole.get(path).is_some_and(|whole| calls <= whole), "{:?}", path);
        }
        prop_assert_eq!(counted(&tree(&out)), entered(&out));
    }

    #[test]
    fn of_nested_triggers_each_judges_its_own_calls(programs in programs(false), a in 0u64..3000, b in 0u64..3000) {
        let runs = runs(&programs, 0);
        let mut sieve = sieve(&[(FUNC, a), (FUNC + 1, b)], ROOMY);
        let out = sift(&mut sieve, &runs, 5);
        let over = |func, least| -> Vec<(u32, u32, u64, u64)> {
            let all = runs.iter().flat_map(|run| calls(run, func));
            let slow = all.filter(|call| lasted(call) > least);
            slow.map(|call| (func, call[0].tid, call[0].time, call.last().unwrap().time)).collect()
        };
        let mut expect = over(FUNC, a);
        expect.extend(over(FUNC + 1, b));
        let told = |call: &KeptCall| (call.func.get(), call.tid.0, call.began.0, call.ended.0);
        let blocks = blocks(&out);
        let mut kept: Vec<_> = blocks.iter().flat_map(|block| std::iter::once(&block.call).chain(&block.inner)).map(told).collect();
        expect.sort_unstable();
        kept.sort_unstable();
        prop_assert_eq!(kept, expect);
        // What is inside another kept call is written once.
        let events: usize = blocks.iter().map(|block| bare(&block.events).len()).sum();
        let within = |&(_, tid, from, to): &(u32, u32, u64, u64), event: &Event| event.tid == tid && (from..=to).contains(&event.time);
        let all = runs.iter().flat_map(|run| &run.events);
        let told = blocks.iter().map(|block| told(&block.call)).collect::<Vec<_>>();
        prop_assert_eq!(events, all.filter(|event| told.iter().any(|call| within(call, event))).count());
    }

    #[test]
    fn where_room_is_short_the_shortest_calls_are_left_out_and_told(programs in programs(false), room in 16usize..64) {
        let runs = runs(&programs, 0);
        let mut sieve = sieve(&[(FUNC, 0)], Room { thread: room, all: 2 * room });
        let out = sift(&mut sieve, &runs, 5);
        let blocks = blocks(&out);
        let trigger = &sieve.triggers()[0];
        let all: Vec<&[Event]> = runs.iter().flat_map(|run| calls(run, FUNC)).collect();
        prop_assert_eq!((trigger.calls, trigger.over), (all.len() as u64, all.len() as u64));
        prop_assert_eq!(trigger.kept, blocks.len() as u64);
        for block in &blocks {
            let told = bare(&block.events);
            let call = all.iter().find(|call| call[0].time == block.call.began.0 && call[0].tid == block.call.tid.0).unwrap();
            prop_assert_eq!(told.last().unwrap().time, block.call.ended.0);
            let seen = told.iter().filter(|event| event.kind != Kind::Lost as u8).count() as u64;
            prop_assert_eq!(seen + block.call.left_out, call.len() as u64);
        }
        prop_assert_eq!(sieve.judge.held, 0);
    }
}

proptest! {
    /// Kind, function, frame, flags, step of time.
    #[test]
    fn any_stream_is_taken_and_nothing_is_held_at_the_end(
        events in proptest::collection::vec((0u8..14, 0u32..5, 0u64..6, any::<u16>(), 0u64..50), 0..300),
        source in 1u8..6,
        room in 4usize..40,
    ) {
        let mut sieve = sieve(&[(FUNC, 20), (FUNC + 1, 60)], Room { thread: room, all: 2 * room });
        let (mut out, mut time) = (Vec::new(), 0);
        for (kind, func, frame, flags, step) in events {
            time += step;
            let event = Event {
                kind,
                func,
                flags,
                source,
                frame: 0x7000 + 16 * frame,
                site: 16 * frame,
                tid: u32::from(flags & 1),
                ..event(Kind::Enter, func, time, 0)
            };
            if kind == 0 {
                sieve.gap(Stream::of(source), PID, Tid(event.tid), 1 + step, &mut out);
            }
            sieve.events(&[event], &mut out);
        }
        sieve.finish(MonoTime(time), &mut out);
        blocks(&out);
        prop_assert_eq!(sieve.judge.held, 0);
        for trigger in sieve.triggers() {
            prop_assert!(trigger.kept <= trigger.over && trigger.over <= trigger.calls);
        }
    }
}

pub(super) fn event(kind: Kind, func: u32, time: u64, frame: u64) -> Event {
    Event {
        time,
        cpu_ns: time / 4,
        pid: PID.0,
        tid: 1,
        func,
        frame,
        kind: kind as u8,
        source: 1,
        ..Event::default()
    }
}
