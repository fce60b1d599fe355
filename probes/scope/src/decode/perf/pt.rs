//! Intel PT of a `perf.data`: every buffer is a stream; those of processors are followed in turns, in the order of time, so
//! that a thread that moved is one flow.
use std::collections::VecDeque;
use std::rc::Rc;

use super::layout::Attr;
use super::scan::{Chunk, Scan, Trace};
use crate::decode::files::Files;
use crate::decode::tasks::{Change, Follower, Switch, Tasks, Track};
use crate::decode::{DecodeError, Request, Told};
use crate::pt::{Clock, Flows, State, Stream, Summary};
use crate::sink::Sink;
use crate::trace::Reasons;

/// Words of `AUXTRACE_INFO`, as perf numbers them.
const TSC_BIT: usize = 5;
const SNAPSHOT: usize = 8;
const MTC_FREQ_BITS: usize = 11;
const TSC_CTC_NUMERATOR: usize = 12;
const TSC_CTC_DENOMINATOR: usize = 13;
const MAX_RATIO: usize = 15;

/// One buffer on its way.
struct Buffer<'s> {
    scan: &'s Scan,
    stream: Stream,
    track: Track,
    chunks: VecDeque<Chunk>,
    /// Places in the stream behind which trace was dropped.
    drops: VecDeque<u64>,
    /// Where the stream has come to.
    at: Option<u64>,
    /// Its chunks are pieces that samples hold.
    sampled: bool,
    done: bool,
}

/// Decodes all buffers.
pub(super) fn decode(
    request: &Request,
    scan: &Scan,
    files: &mut Files,
    sink: &mut dyn Sink,
    told: &mut Told<'_>,
) -> Result<Summary, DecodeError> {
    let timed = scan.conversion.is_some() && uses_time(scan);
    let changes: Rc<[(u64, Change)]> = scan
        .changes
        .iter()
        .map(|(time, change)| (tsc(scan, *time), change.clone()))
        .collect();
    let mut flows = Flows::new(sink);
    flows.doubt(scan.reasons);
    let mut buffers: Vec<Buffer<'_>> = scan
        .traces
        .values()
        .map(|trace| Buffer::new(scan, trace))
        .collect();
    if !timed && buffers.iter().any(Buffer::is_of_cpu) {
        flows.doubt(Reasons::SIDEBAND);
    }
    let run = Run {
        request,
        changes,
        timed,
        total: scan.layout.records.1,
    };
    let (cpus, threads): (Vec<_>, Vec<_>) = buffers.drain(..).partition(Buffer::is_of_cpu);
    run.in_turns(cpus, files, &mut flows, told)?;
    for thread in threads {
        if request.thread.is_none_or(|tid| tid == thread.track.tid) {
            run.in_turns(vec![thread], files, &mut flows, told)?;
        }
    }
    Ok(flows.finish())
}

fn word(scan: &Scan, at: usize) -> u64 {
    scan.info.get(at).copied().unwrap_or(0)
}

/// The event whose trace it is.
fn event(scan: &Scan) -> Option<&Attr> {
    let kind = u32::try_from(word(scan, 0)).ok();
    let mut attrs = scan.layout.attrs.iter();
    attrs.find(|attr| Some(attr.kind) == kind)
}

/// Whether the trace has time stamps.
fn uses_time(scan: &Scan) -> bool {
    let bit = word(scan, TSC_BIT);
    event(scan).is_none_or(|attr| attr.config & bit != 0)
}

fn tsc(scan: &Scan, time: u64) -> u64 {
    // Records that perf made before it began have no time.
    match scan.conversion {
        Some(conversion) if time > 0 => conversion.tsc(time),
        _ => 0,
    }
}

fn clock(scan: &Scan) -> Clock {
    let small = |at| u32::try_from(word(scan, at)).unwrap_or(0);
    let mask = word(scan, MTC_FREQ_BITS);
    let mtc = event(scan).map_or(0, |attr| {
        (attr.config & mask) >> mask.trailing_zeros().min(63)
    });
    Clock {
        crystal: [small(TSC_CTC_DENOMINATOR), small(TSC_CTC_NUMERATOR)],
        mtc_freq: u8::try_from(mtc).unwrap_or(0),
        nominal: u8::try_from(word(scan, MAX_RATIO)).unwrap_or(0),
    }
}

struct Run<'r> {
    request: &'r Request,
    changes: Rc<[(u64, Change)]>,
    timed: bool,
    total: u64,
}

impl Run<'_> {
    /// Follows buffers, always the one whose time is the earliest.
    fn in_turns(
        &self,
        mut buffers: Vec<Buffer<'_>>,
        files: &mut Files,
        flows: &mut Flows<'_>,
        told: &mut Told<'_>,
    ) -> Result<(), DecodeError> {
        let changes = Rc::clone(&self.changes);
        let mut tasks =
            Tasks::new(files, changes, self.request.thread, true).map_err(DecodeError::Library)?;
        let yields = buffers.len() > 1;
        let mut failed = None;
        while let Some(buffer) = buffers
            .iter_mut()
            .filter(|buffer| !buffer.done)
            .min_by_key(|buffer| buffer.track.tsc)
        {
            let done = buffer.turn(&mut tasks, flows, (self.timed, yields), &mut failed);
            done.map_err(DecodeError::Library)?;
            if let Some(why) = failed.take() {
                return Err(DecodeError::Library(why));
            }
            if let Some(chunk) = buffer.chunks.front() {
                told.progress(chunk.raw.at, self.total);
            }
        }
        Ok(())
    }
}

impl<'s> Buffer<'s> {
    fn new(scan: &'s Scan, trace: &Trace) -> Self {
        let track = match (trace.cpu, trace.tid) {
            (Some(cpu), None | Some(_)) => {
                let switches = scan.switches.get(&cpu).into_iter().flatten();
                let switches = switches.map(|(time, tid)| Switch {
                    tsc: tsc(scan, *time),
                    tid: *tid,
                });
                Track::of_cpu(switches.collect())
            }
            (None, tid) => Track::of_thread(tid.unwrap_or(0)),
        };
        let own = |drop: &&super::scan::Drop| match trace.cpu {
            Some(cpu) => drop.cpu == Some(cpu),
            None => drop.tid == trace.tid,
        };
        let mut drops: Vec<u64> = scan
            .drops
            .iter()
            .filter(own)
            .map(|drop| drop.offset)
            .collect();
        drops.sort_unstable();
        let mut chunks = trace.chunks.clone();
        if word(scan, SNAPSHOT) == 0 {
            chunks.sort_by_key(|chunk| chunk.offset);
        }
        Self {
            scan,
            stream: Stream::new(scan.processor(), clock(scan)),
            track,
            chunks: chunks.into(),
            drops: drops.into(),
            at: None,
            sampled: trace.sampled,
            done: false,
        }
    }

    fn is_of_cpu(&self) -> bool {
        self.track.is_of_cpu()
    }

    /// Goes on until another buffer may come first.
    fn turn(
        &mut self,
        tasks: &mut Tasks<'_>,
        flows: &mut Flows<'_>,
        (timed, yields): (bool, bool),
        failed: &mut Option<String>,
    ) -> Result<(), String> {
        let mut last = false;
        loop {
            let mut guide = Follower {
                tasks,
                track: &mut self.track,
                yields,
                failed,
                timed,
            };
            guide.resume(flows);
            if self.stream.run(last, &mut guide, flows)? == State::Paused {
                return Ok(());
            }
            if last {
                if let Some(reasons) = self.missing() {
                    flows.gap(reasons);
                } else if self.chunks.is_empty() {
                    self.done = true;
                    return Ok(());
                }
            }
            last = !self.more()?;
        }
    }

    /// Takes more bytes; `false` where some are missing, or there are no more.
    fn more(&mut self) -> Result<bool, String> {
        let Some(chunk) = self.chunks.front_mut() else {
            return Ok(false);
        };
        let at = *self.at.get_or_insert(chunk.offset);
        let drop = self.drops.front().copied();
        if at < chunk.offset || drop == Some(at) {
            return Ok(false);
        }
        // What another chunk had already.
        let again = (at - chunk.offset).min(chunk.raw.len);
        let mut take = (chunk.raw.len - again).min(self.stream.appetite() as u64);
        if let Some(drop) = drop.filter(|drop| *drop > at) {
            take = take.min(drop - at);
        }
        let mut bytes = Vec::new();
        self.scan.read(chunk.raw.at + again, take, &mut bytes)?;
        self.stream.push(&bytes);
        self.at = Some(at.saturating_add(take));
        let used = again + take;
        chunk.raw.at += used;
        chunk.raw.len -= used;
        chunk.offset = chunk.offset.saturating_add(used);
        if chunk.raw.len == 0 {
            self.chunks.pop_front();
        }
        Ok(true)
    }

    /// Why bytes are missing where the stream stands; it goes on behind them.
    fn missing(&mut self) -> Option<Reasons> {
        let at = self.at?;
        if self.drops.front() == Some(&at) {
            self.drops.pop_front();
            return Some(Reasons::BUFFER_FULL);
        }
        let between = if self.sampled {
            Reasons::GAP
        } else {
            Reasons::BUFFER_FULL
        };
        let chunk = self.chunks.front()?;
        (at < chunk.offset).then(|| {
            self.at = Some(chunk.offset);
            while self.drops.front().is_some_and(|drop| *drop < chunk.offset) {
                self.drops.pop_front();
            }
            between
        })
    }
}
