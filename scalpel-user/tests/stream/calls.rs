//! ENTER, EXIT and COMPLETE records against what the programs say about themselves.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use scalpel_common::event::flags::{NO_EXIT, RETURN_REFUSED};
use scalpel_common::kernel::{LossClass, MAX_RETURN_DEPTH};
use scalpel_tests::catalog;
use scalpel_tests::fixture::Fixture;
use scalpel_tests::suite::Outcome;
use scalpel_tests::target::Target;
use scalpel_tests::truth::Truth;
use scalpel_user::event::{Event, Kind};
use scalpel_user::function::ExitStrategy::Return;
use scalpel_user::kernel::Family;

use crate::recording::{Plan, Recording, Stream};

const CALLS: &[&str] = &[
    "leaf",
    "other_leaf",
    "middle",
    "left",
    "right",
    "through_pointer",
    "deep",
    "is_even",
    "is_odd",
    "fib",
    "work",
];

/// Records `names` of `fixture` from before its work to after its end.
fn record(fixture: Fixture, names: &[&str], plan: Plan) -> anyhow::Result<(Stream, Truth)> {
    let path = fixture.build()?;
    let mut target = Target::start(&path, &[])?;
    let recording = Recording::start(&target, &path, names, plan)?;
    let truth = target.work()?;
    target.finish()?;
    Ok((recording.finish()?, truth))
}

fn complete() -> Plan {
    let mut plan = Plan::new(Return);
    plan.options.family = Family::Complete;
    plan
}

fn truth_of(truth: &Truth, names: &[&str]) -> anyhow::Result<BTreeMap<String, u64>> {
    names
        .iter()
        .map(|name| Ok(((*name).to_owned(), truth.calls(name)?)))
        .collect()
}

const fn is(event: &Event, kind: Kind) -> bool {
    event.kind == kind as u8
}

const fn has_exit(event: &Event) -> bool {
    event.flags & NO_EXIT == 0
}

pub(crate) fn every_call_is_an_entry_and_an_exit_in_sequence() -> Outcome {
    let (stream, truth) = record(catalog::CALLS, CALLS, Plan::new(Return))?;
    ensure!(
        stream.count(Kind::Enter) == truth_of(&truth, CALLS)?,
        "{:?}",
        stream.count(Kind::Enter)
    );
    for (tid, events) in stream.threads()? {
        let mut open: Vec<Event> = Vec::new();
        for event in events {
            if is(&event, Kind::Enter) && has_exit(&event) {
                ensure!(
                    open.last().is_none_or(|outer| outer.frame > event.frame),
                    "thread {tid}: {event:?}"
                );
                open.push(event);
            } else if is(&event, Kind::Exit) {
                let entry = open
                    .pop()
                    .with_context(|| format!("thread {tid}: {event:?} ends nothing"))?;
                ensure!(
                    entry.frame == event.frame && entry.func == event.func,
                    "{entry:?} ended by {event:?}"
                );
                ensure!(
                    event.cpu_ns - entry.cpu_ns <= event.time - entry.time,
                    "more CPU than time: {event:?}"
                );
            }
        }
        ensure!(
            open.is_empty(),
            "thread {tid}: {} calls have no end",
            open.len()
        );
    }
    Ok(())
}

pub(crate) fn a_call_past_the_return_depth_says_that_it_has_no_exit() -> Outcome {
    let (stream, truth) = record(catalog::CALLS, &["deep"], Plan::new(Return))?;
    let (mut depth, mut deepest, mut refused) = (0, 0, 0);
    for event in &stream.events {
        if is(event, Kind::Exit) {
            depth -= 1;
        } else if has_exit(event) {
            depth += 1;
            deepest = deepest.max(depth);
        } else {
            ensure!(
                event.flags & RETURN_REFUSED != 0 && depth == MAX_RETURN_DEPTH,
                "{event:?} at {depth}"
            );
            refused += 1;
        }
    }
    ensure!(
        deepest == MAX_RETURN_DEPTH && depth == 0,
        "deepest {deepest}, {depth} open"
    );
    let beyond = truth.calls("deep")? - 5 * MAX_RETURN_DEPTH as u64;
    ensure!(refused == beyond, "{refused} of {beyond} refused");
    ensure!(
        stream.lost(LossClass::ReturnRefused) == refused,
        "{:?}",
        stream.losses
    );
    Ok(())
}

/// Calls with a COMPLETE record or, where the return was refused, an ENTER.
fn whole(stream: &Stream) -> BTreeMap<String, u64> {
    let mut counts = stream.count(Kind::Complete);
    for (name, count) in stream.count(Kind::Enter) {
        *counts.entry(name).or_default() += count;
    }
    counts
}

/// Complete calls of a thread as (begin, end): each pair must lie one in the other or apart.
fn nest(events: &[Event]) -> Outcome {
    let mut calls: Vec<(u64, u64)> = events
        .iter()
        .filter(|event| is(event, Kind::Complete))
        .map(|e| (e.time - e.value, e.time))
        .collect();
    calls.sort_by_key(|&(begin, end)| (begin, std::cmp::Reverse(end)));
    let mut open: Vec<(u64, u64)> = Vec::new();
    for call in calls {
        while open.last().is_some_and(|&(_, end)| end <= call.0) {
            open.pop();
        }
        ensure!(
            open.last().is_none_or(|&(_, end)| call.1 <= end),
            "{call:?} overlaps {:?}",
            open.last()
        );
        open.push(call);
    }
    Ok(())
}

pub(crate) fn complete_records_find_their_own_call_under_recursion() -> Outcome {
    let (stream, truth) = record(catalog::CALLS, CALLS, complete())?;
    ensure!(
        whole(&stream) == truth_of(&truth, CALLS)?,
        "{:?}",
        whole(&stream)
    );
    for events in stream.threads()?.values() {
        nest(events)?;
        let bad = events
            .iter()
            .find(|event| is(event, Kind::Complete) && event.cpu_ns > event.value);
        ensure!(bad.is_none(), "more CPU than time: {bad:?}");
    }
    Ok(())
}

pub(crate) fn complete_records_survive_tail_calls_and_jumps() -> Outcome {
    let tail = &["first", "second", "third", "ping", "pong", "work"];
    let (stream, truth) = record(catalog::TAIL, tail, complete())?;
    ensure!(
        whole(&stream) == truth_of(&truth, tail)?,
        "{:?}",
        whole(&stream)
    );
    ensure!(
        stream.count(Kind::Complete) == whole(&stream),
        "refused: {:?}",
        stream.count(Kind::Enter)
    );
    stream
        .threads()?
        .values()
        .try_for_each(|events| nest(events))?;

    let jump = &["thrower", "between", "catcher", "after", "work"];
    let (stream, truth) = record(catalog::JUMP, jump, complete())?;
    let ended = whole(&stream);
    for name in ["catcher", "after", "work"] {
        ensure!(
            ended.get(name) == Some(&truth.calls(name)?),
            "{name}: {ended:?}"
        );
    }
    stream
        .threads()?
        .values()
        .try_for_each(|events| nest(events))
}

pub(crate) fn the_guard_refuses_returns_on_alternate_stacks_only() -> Outcome {
    let names = &["in_handler", "handler", "interrupted", "around", "work"];
    let (stream, truth) = record(catalog::ALTSTACK, names, Plan::new(Return))?;
    ensure!(
        stream.count(Kind::Enter) == truth_of(&truth, names)?,
        "{:?}",
        stream.count(Kind::Enter)
    );
    for event in stream.events.iter().filter(|event| is(event, Kind::Enter)) {
        let on_alternate = matches!(stream.name(event), "in_handler" | "handler");
        ensure!(
            has_exit(event) != on_alternate,
            "{} {event:?}",
            stream.name(event)
        );
    }
    Ok(())
}

pub(crate) fn a_refused_return_is_told_to_those_who_ask() -> Outcome {
    let path = catalog::ALTSTACK.build()?;
    let mut target = Target::start(&path, &[])?;
    let mut plan = Plan::new(Return);
    plan.options.diagnostics = true;
    let mut recording = Recording::start(&target, &path, &["handler"], plan)?;
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&lines);
    let mut diagnostics = recording.kernel.diagnostics(move |line| {
        sink.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(line.to_owned());
    })?;
    target.work()?;
    target.finish()?;
    let stream = recording.finish()?;
    diagnostics.flush();
    let lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
    let told = lines
        .iter()
        .filter(|line| line.contains("is left alone"))
        .count();
    let refused = stream.lost(LossClass::ReturnRefused);
    // The log's ring holds some 490 lines, and nobody reads it meanwhile.
    ensure!(
        told > 400 && told as u64 <= refused,
        "{told} of {refused} refusals told"
    );
    Ok(())
}

pub(crate) fn cpu_time_agrees_with_the_threads_own_clock() -> Outcome {
    let names = &["burn_alone", "nap_alone", "both"];
    let stolen_before = stolen_ns()?;
    let (stream, truth) = record(catalog::TIMES, names, Plan::new(Return))?;
    // The thread's clock leaves out what a hypervisor took from its processor, which nobody shows to a program here.
    let stolen = stolen_ns()? - stolen_before;
    for name in names {
        let of = |kind| {
            let found = |e: &&Event| is(e, kind) && stream.name(e) == *name;
            stream.events.iter().find(found).context("no event")
        };
        let (entry, exit) = (of(Kind::Enter)?, of(Kind::Exit)?);
        // The program's own reads lie around the call; the probe itself lies between them.
        let (cpu, time) = (exit.cpu_ns - entry.cpu_ns, exit.time - entry.time);
        close(
            "CPU",
            name,
            cpu,
            truth.measured(&format!("cpu_ns:{name}"))?,
            stolen,
        )?;
        close(
            "time",
            name,
            time,
            truth.measured(&format!("wall_ns:{name}"))?,
            0,
        )?;
    }
    Ok(())
}

/// Within 1 %, or 0.3 ms for what is short; `more` is known to be counted by us only.
fn close(what: &str, name: &str, ours: u64, truth: u64, more: u64) -> Outcome {
    let tolerance = (truth / 100).max(300_000);
    let within = ours + tolerance >= truth && ours <= truth + tolerance + more;
    ensure!(
        within,
        "{what} of {name}: {ours} ns, the program says {truth} ns, stolen {more} ns"
    );
    Ok(())
}

/// Time that the hypervisor took from all processors so far, rounded up to a tick of `/proc/stat`.
fn stolen_ns() -> anyhow::Result<u64> {
    const TICK_NS: u64 = 10_000_000;
    let stat = std::fs::read_to_string("/proc/stat")?;
    let total = stat.lines().next().context("/proc/stat is empty")?;
    let steal = total.split_whitespace().nth(8).unwrap_or("0");
    Ok(steal.parse::<u64>()? * TICK_NS)
}

pub(crate) fn what_a_small_ring_loses_is_counted_to_the_event() -> Outcome {
    let names = &["hot", "warm", "flood"];
    let mut plan = Plan::new(Return);
    plan.options.call_ring_bytes = 0;
    plan.room = 0;
    let (stream, truth) = record(catalog::FLOOD, names, plan)?;
    let calls: u64 = truth_of(&truth, names)?.values().sum();
    for (kind, class) in [
        (Kind::Enter, LossClass::Enter),
        (Kind::Exit, LossClass::Exit),
    ] {
        let seen: u64 = stream.count(kind).values().sum();
        let (lost, by_function) = (stream.lost(class), stream.lost_by_functions(class));
        ensure!(
            seen + lost == calls && lost == by_function,
            "{kind:?}: {seen} + {lost} ({by_function}) of {calls}"
        );
        ensure!(
            lost > 0,
            "{kind:?}: nothing was lost, the ring is not small enough"
        );
    }
    Ok(())
}

pub(crate) fn without_a_lease_nothing_is_recorded() -> Outcome {
    let path = catalog::CALLS.build()?;
    let mut target = Target::start(&path, &[])?;
    let mut recording = Recording::start(&target, &path, CALLS, Plan::new(Return))?;
    recording.lease = None;
    target.work()?;
    target.finish()?;
    let stream = recording.finish()?;
    ensure!(
        stream.events.is_empty() && stream.losses.is_empty(),
        "{} events",
        stream.events.len()
    );
    Ok(())
}
