//! How fast a recorded stream becomes a tree: decode, order, stacks and tree, on one core.
//!
//! `ingest LOG` prints events per second of CPU time. `ingest --synthesize EVENTS LOG` writes a stream to measure with: 32 threads serving
//! 20 kinds of requests over 5,000 functions, spread over rings as eight processors would.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use scalpel_user::event::{Event, FuncId, Kind, MonoTime, Source};
use scalpel_user::input::Input;
use scalpel_user::log::{Reader, Writer};
use scalpel_user::order::{Order, Released};
use scalpel_user::stack::{Builder, Options};
use scalpel_user::tree::Tree;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["--synthesize", events, log] => synthesize(
            events.parse().context("EVENTS is a number")?,
            &PathBuf::from(log),
        ),
        [log] => measure(&PathBuf::from(log)),
        _ => bail!("usage: ingest LOG | ingest --synthesize EVENTS LOG"),
    }
}

fn measure(path: &Path) -> Result<()> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let begin = cpu_time();
    let events: usize = Reader::new(bytes.as_slice(), path)?
        .map(|input| count_events(&input))
        .sum();
    let decode = cpu_time() - begin;
    let begin = cpu_time();
    let (builder, end, late) = build(Reader::new(bytes.as_slice(), path)?);
    let all = cpu_time() - begin;
    let contexts = builder.contexts();
    let begin = cpu_time();
    let tree = builder.finish(end, &mut |_pid, _address| None);
    let finish = cpu_time() - begin;
    let out = &mut io::stdout();
    writeln!(out, "events            {events}")?;
    writeln!(
        out,
        "decode            {:.1} ns/event",
        per_event(decode, events)
    )?;
    writeln!(
        out,
        "decode to tree    {:.1} ns/event, {:.2} M events/s",
        per_event(all, events),
        rate(all, events)
    )?;
    writeln!(out, "finish            {:.3} s", finish.as_secs_f64())?;
    writeln!(
        out,
        "contexts          {contexts}, cells {}, calls {}, late {late}",
        tree.cells.len(),
        calls(&tree)
    )?;
    Ok(())
}

/// CPU time of this thread: other programs on the machine don't count.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

fn count_events(input: &Input) -> usize {
    if let Input::Events(events) = input {
        std::hint::black_box(events).len()
    } else {
        0
    }
}

fn per_event(time: Duration, events: usize) -> f64 {
    time.as_secs_f64() * 1e9 / events.max(1) as f64
}

fn rate(time: Duration, events: usize) -> f64 {
    events as f64 / 1e6 / time.as_secs_f64().max(1e-9)
}

fn calls(tree: &Tree) -> u64 {
    tree.cells.iter().map(|cell| cell.metrics.calls).sum()
}

/// What the session does with a stream, without the sinks.
fn build(inputs: impl Iterator<Item = Input>) -> (Builder, MonoTime, u64) {
    let (mut order, mut builder) = (Order::new(), Builder::new(Options::default()));
    let mut last = MonoTime(0);
    for input in inputs {
        match input {
            Input::Run(run) => {
                builder = Builder::new(Options {
                    start: run.started,
                    ..Options::default()
                })
            }
            Input::Function(func, info) => builder.function(func, &info),
            Input::Events(events) => order.events(&events),
            Input::Counts(counts) => builder.counts(&counts),
            Input::Sample(sample) => order.sample(sample),
            Input::Control(control) => {
                builder.control(&control);
                order.control(&control);
            }
            Input::Drained(time) => order.drained(time, &mut |item| take(&mut builder, item)),
            Input::ThreadName(pid, tid, name) => builder.thread_name(pid, tid, &name),
            Input::End(time) => last = time,
            Input::Inlined(inlined) => builder.inlined(inlined),
            Input::Losses(_)
            | Input::Bound(_)
            | Input::Symbols(_)
            | Input::Note(_)
            | Input::Probe(_)
            | Input::Triggers(_)
            | Input::Kept(_)
            | Input::Returns(_) => {}
        }
    }
    order.finish(&mut |item| take(&mut builder, item));
    (builder, last, order.late())
}

fn take(builder: &mut Builder, item: Released<'_>) {
    match item {
        Released::Events(events) => builder.events(events),
        Released::Gap { pid, tid, lost, .. } => builder.gap(pid, tid, lost),
        Released::Sample(sample) => builder.sample(&sample),
        Released::ThreadEnded { time, pid, tid } => builder.thread_ended(time, pid, tid),
        Released::Executed { time, pid } => builder.executed(time, pid),
    }
}

const THREADS: usize = 32;
const RINGS: usize = 8;
const FUNCTIONS: u64 = 5000;
const REQUESTS: u64 = 20;
/// Events between two drains.
const PASS: usize = 1 << 16;

/// A step of a request: a call at a depth, or its return.
#[derive(Clone, Copy)]
struct Step {
    func: u32,
    depth: u32,
    kind: Kind,
}

struct Worker {
    ring: usize,
    request: usize,
    step: usize,
    seq: u32,
    cpu_ns: u64,
}

fn synthesize(events: usize, path: &Path) -> Result<()> {
    let mut writer = Writer::create(path)?;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let requests: Vec<Vec<Step>> = (0..REQUESTS)
        .map(|seed| request(&mut Random(seed * 77 + 1)))
        .collect();
    let new_worker = |_| Worker {
        ring: 0,
        request: 0,
        step: 0,
        seq: 0,
        cpu_ns: 0,
    };
    let mut workers: Vec<Worker> = (0..THREADS).map(new_worker).collect();
    let mut time = 1_000_000_000;
    let mut rings: Vec<Vec<Event>> = vec![Vec::new(); RINGS];
    let mut written = 0;
    while written < events {
        for _ in 0..PASS / 64 {
            let thread = random.below(THREADS as u64) as usize;
            let Some(worker) = workers.get_mut(thread) else {
                continue;
            };
            if random.below(16) == 0 {
                worker.ring = random.below(RINGS as u64) as usize;
            }
            let Some(ring) = rings.get_mut(worker.ring) else {
                continue;
            };
            for _ in 0..64 {
                time += 20 + random.below(60);
                ring.extend(worker.next(&requests, thread as u32, time, &mut random));
            }
        }
        for ring in &mut rings {
            written += ring.len();
            writer.write(&Input::Events(std::mem::take(ring)))?;
        }
        writer.write(&Input::Drained(MonoTime(time)))?;
    }
    writer.write(&Input::End(MonoTime(time)))?;
    writer.finish()?;
    Ok(())
}

impl Worker {
    fn next(
        &mut self,
        requests: &[Vec<Step>],
        thread: u32,
        time: u64,
        random: &mut Random,
    ) -> Option<Event> {
        let steps = requests.get(self.request)?;
        let Some(step) = steps.get(self.step) else {
            (self.request, self.step) = (random.below(REQUESTS) as usize, 0);
            return None;
        };
        self.step += 1;
        self.seq = self.seq.wrapping_add(1);
        self.cpu_ns += 20 + random.below(20);
        Some(Event {
            time,
            cpu_ns: self.cpu_ns,
            pid: 1000,
            tid: 1000 + thread,
            func: FuncId::new(step.func)?.get(),
            seq: self.seq,
            frame: 0x7f00_0000_0000 + u64::from(thread) * 0x80_0000 - u64::from(step.depth) * 96,
            site: 0x40_0000 + u64::from(step.func) * 0x40 + u64::from(step.depth % 3) * 8,
            kind: step.kind as u8,
            source: Source::Uprobe as u8,
            ..Event::default()
        })
    }
}

/// About a thousand calls, up to 30 deep: some functions call one another in loops, some recurse.
fn request(random: &mut Random) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut open: Vec<u32> = Vec::new();
    while steps.len() < 2000 || !open.is_empty() {
        let depth = open.len() as u32;
        if steps.len() < 2000 && depth < 30 && random.below(100) < 52 {
            let func = callee(open.last().copied().unwrap_or(0), random);
            steps.push(Step {
                func,
                depth,
                kind: Kind::Enter,
            });
            open.push(func);
        } else if let Some(func) = open.pop() {
            steps.push(Step {
                func,
                depth: depth - 1,
                kind: Kind::Exit,
            });
        }
    }
    steps
}

/// A function calls one of four others, the first ones more often.
fn callee(caller: u32, random: &mut Random) -> u32 {
    let choice = random.below(4).min(random.below(4)).min(random.below(4));
    let mut of_caller = Random(u64::from(caller) * 4 + choice + 1);
    of_caller.below(1000);
    of_caller.below(FUNCTIONS) as u32 + 1
}

/// Xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % end.max(1)
    }
}
