//! One [`Input`] <-> one payload, and the numbers that chunks call them by.

use super::chunk::Span;
use super::codec::{Get, Malformed, Put};
use super::counts as c;
use super::kept as k;
use super::records as r;
use crate::event::{EVENT_SIZE, Event, MonoTime, Pid, Tid};
use crate::input::Input;

/// Kind of a chunk. Numbers are appended, never reused.
const RUN: u32 = 1;
const FUNCTION: u32 = 2;
pub(super) const EVENTS: u32 = 3;
const SAMPLE: u32 = 4;
const CONTROL: u32 = 5;
const DRAINED: u32 = 6;
const LOSSES: u32 = 7;
const BOUND: u32 = 8;
const SYMBOLS: u32 = 9;
const THREAD_NAME: u32 = 10;
const NOTE: u32 = 11;
const END: u32 = 12;
const PROBE: u32 = 13;
const COUNTS: u32 = 14;
const INLINED: u32 = 15;
const TRIGGERS: u32 = 16;
const KEPT: u32 = 17;
const RETURNS: u32 = 18;

/// Appends `input`'s payload; returns its chunk kind and how many records it holds.
pub(super) fn put(input: &Input, out: &mut Vec<u8>) -> (u32, usize) {
    let put = &mut Put(out);
    let mut count = 1;
    match input {
        Input::Run(run) => r::put_run(put, run),
        Input::Function(func, info) => r::put_function(put, *func, info),
        Input::Events(events) => count = put_events(events, out),
        Input::Counts(counts) => count = c::put_counts(put, counts),
        Input::Sample(sample) => r::put_sample(put, sample),
        Input::Control(control) => r::put_control(put, control),
        Input::Losses(losses) => count = put_list(put, losses, r::put_loss),
        Input::Bound(bound) => r::put_bound(put, bound),
        Input::Symbols(symbols) => count = put_list(put, symbols, r::put_symbol),
        Input::Inlined(inlined) => count = put_list(put, inlined, r::put_inlined),
        Input::ThreadName(pid, tid, name) => {
            put.u32(pid.0).u32(tid.0).text(name);
        }
        Input::Note(note) => {
            put.text(note);
        }
        Input::Probe(word) => r::put_word(put, word),
        Input::Triggers(triggers) => count = put_list(put, triggers, k::put_trigger),
        Input::Kept(call) => k::put_kept(put, call),
        Input::Returns(funcs) => count = put_list(put, funcs, r::put_func),
        Input::Drained(time) | Input::End(time) => {
            put.u64(time.0);
        }
    }
    (kind(input), count)
}

const fn kind(input: &Input) -> u32 {
    match input {
        Input::Run(_) => RUN,
        Input::Function(..) => FUNCTION,
        Input::Events(_) => EVENTS,
        Input::Counts(_) => COUNTS,
        Input::Sample(_) => SAMPLE,
        Input::Control(_) => CONTROL,
        Input::Drained(_) => DRAINED,
        Input::Losses(_) => LOSSES,
        Input::Bound(_) => BOUND,
        Input::Symbols(_) => SYMBOLS,
        Input::Inlined(_) => INLINED,
        Input::ThreadName(..) => THREAD_NAME,
        Input::Note(_) => NOTE,
        Input::End(_) => END,
        Input::Probe(_) => PROBE,
        Input::Triggers(_) => TRIGGERS,
        Input::Kept(_) => KEPT,
        Input::Returns(_) => RETURNS,
    }
}

pub(super) fn put_events(events: &[Event], out: &mut Vec<u8>) -> usize {
    out.reserve(events.len() * EVENT_SIZE);
    for event in events {
        out.extend_from_slice(&event.to_bytes());
    }
    events.len()
}

fn put_list<T>(put: &mut Put<'_>, list: &[T], each: impl Fn(&mut Put<'_>, &T)) -> usize {
    put.u32(u32::try_from(list.len()).unwrap_or(u32::MAX));
    for item in list {
        each(put, item);
    }
    list.len()
}

/// The input in a sound payload; `None` for a kind that this version does not know.
pub(super) fn get(kind: u32, payload: &[u8]) -> Result<Option<Input>, Malformed> {
    let get = &mut Get(payload);
    let input = match kind {
        RUN => Input::Run(r::run(get)?),
        FUNCTION => r::function(get).map(|(func, info)| Input::Function(func, info.into()))?,
        EVENTS => return events(payload).map(Some),
        SAMPLE => Input::Sample(r::sample(get)?),
        CONTROL => Input::Control(r::control(get)?),
        DRAINED => Input::Drained(MonoTime(get.u64()?)),
        LOSSES => Input::Losses(get.list(r::loss)?),
        BOUND => Input::Bound(r::bound(get)?),
        SYMBOLS => Input::Symbols(get.list(r::symbol)?),
        INLINED => Input::Inlined(get.list(r::inlined)?),
        THREAD_NAME => Input::ThreadName(Pid(get.u32()?), Tid(get.u32()?), get.text()?),
        NOTE => Input::Note(get.text()?),
        END => Input::End(MonoTime(get.u64()?)),
        PROBE => Input::Probe(r::word(get)?),
        COUNTS => Input::Counts(c::counts(get)?),
        TRIGGERS => Input::Triggers(get.list(k::trigger)?),
        KEPT => Input::Kept(k::kept(get)?),
        RETURNS => Input::Returns(get.list(r::func_id)?),
        _ => return Ok(None),
    };
    if get.is_empty() {
        Ok(Some(input))
    } else {
        Err(Malformed("bytes left over"))
    }
}

fn events(payload: &[u8]) -> Result<Input, Malformed> {
    match payload.as_chunks::<EVENT_SIZE>() {
        (events, []) => Ok(Input::Events(
            events.iter().map(Event::from_bytes).collect(),
        )),
        _ => Err(Malformed("not a whole number of events")),
    }
}

/// Time range of an input; (0, 0) if it has no time.
pub(super) fn span(input: &Input, lost: u64) -> Span {
    let point = |time: u64| Span {
        first_ns: time,
        last_ns: time,
        lost,
    };
    match input {
        Input::Run(run) => point(run.started.0),
        Input::Events(events) => events_span(events, lost),
        Input::Counts(counts) => Span {
            first_ns: counts.from.0,
            last_ns: counts.until.0,
            lost,
        },
        Input::Sample(sample) => point(sample.event.time),
        Input::Control(control) => point(control.time().0),
        Input::Drained(time) | Input::End(time) => point(time.0),
        Input::Probe(word) => point(word.time.0),
        Input::Kept(call) => Span {
            first_ns: call.began.0,
            last_ns: call.ended.0,
            lost,
        },
        Input::Bound(bound) => point(bound.since.map_or(0, |since| since.0)),
        Input::Function(..)
        | Input::Losses(_)
        | Input::Symbols(_)
        | Input::Inlined(_)
        | Input::Triggers(_)
        | Input::Returns(_)
        | Input::ThreadName(..)
        | Input::Note(_) => point(0),
    }
}

pub(super) fn events_span(events: &[Event], lost: u64) -> Span {
    let first_ns = events.iter().map(|event| event.time).min().unwrap_or(0);
    let last_ns = events.iter().map(|event| event.time).max().unwrap_or(0);
    Span {
        first_ns,
        last_ns,
        lost,
    }
}
