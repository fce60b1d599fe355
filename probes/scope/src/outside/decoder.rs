//! What a processor recorded of a call becomes its trace, on a thread of its own: decoding takes longer than the call did,
//! and stopped threads do not wait for it.
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::message::Call;
use crate::lbr::live as survey;
use crate::pt::live::{self, Wanted};
use crate::pt::{CodeBytes, Image};
use crate::trace::{Code, Fact, Form, Link, Reasons, Step, Trace};

/// Code of the process: where it begins, and its bytes.
pub(super) type Piece = (u64, Arc<Vec<u8>>);

/// What was recorded.
#[derive(Debug)]
pub(super) enum Raw {
    /// Packets of Intel PT.
    Packets(Vec<u8>),
    /// Records of perf, with branches in their samples.
    Samples(Vec<u8>),
}

/// One recorded call, not decoded yet.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) tid: u32,
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
    /// Where the function begins.
    pub(super) entry: u64,
    /// The breakpoint behind the call was met, with the stack as it was to be.
    pub(super) returned: bool,
    /// Threads that were started meanwhile.
    pub(super) started: u64,
    pub(super) reasons: Reasons,
    pub(super) raw: Raw,
    pub(super) code: Vec<Piece>,
    /// Ranges whose instructions are shown; none: everything.
    pub(super) followed: Vec<(u64, u64)>,
    /// Steps that are kept.
    pub(super) most_steps: u64,
}

/// The thread that decodes.
#[derive(Debug)]
pub(super) struct Decoder {
    recordings: Option<Sender<Recording>>,
    calls: Receiver<Call>,
    thread: JoinHandle<()>,
}

impl Decoder {
    pub(super) fn start() -> io::Result<Self> {
        let (recordings, todo) = channel::<Recording>();
        let (done, calls) = channel();
        let work = move || {
            for recording in todo {
                if done.send(recording.call()).is_err() {
                    return;
                }
            }
        };
        Ok(Self {
            recordings: Some(recordings),
            calls,
            thread: std::thread::Builder::new()
                .name("decoder".into())
                .spawn(work)?,
        })
    }

    /// Takes the next one.
    pub(super) fn take(&self, recording: Recording) {
        if let Some(recordings) = &self.recordings {
            // A decoder that has died is told of at the end.
            drop(recordings.send(recording));
        }
    }

    /// The calls that are ready.
    pub(super) fn ready(&self) -> impl Iterator<Item = Call> {
        self.calls.try_iter()
    }

    /// The calls that are left, when all are ready.
    pub(super) fn rest(mut self) -> io::Result<Vec<Call>> {
        self.recordings = None;
        let calls = self.calls.iter().collect();
        let panicked = |_| io::Error::other("the decoding thread panicked");
        self.thread.join().map_err(panicked)?;
        Ok(calls)
    }
}

impl Recording {
    fn call(self) -> Call {
        let mut trace = match self.decoded() {
            Ok(trace) => trace,
            Err(why) => Trace {
                reasons: Reasons::DECODE,
                ..Trace::skipped(Form::Call, why)
            },
        };
        trace.started = self.started;
        if self.started > 0 {
            trace.assumed.push(Fact::ChildrenNotFollowed);
        }
        if self.returned && trace.skip_reason.is_none() {
            trace.verified.push(Fact::Returned);
        }
        Call {
            tid: self.tid,
            begin_ns: self.begin_ns,
            end_ns: self.end_ns,
            trace,
        }
    }

    fn decoded(&self) -> Result<Trace, String> {
        let image = image(&self.code)?;
        match &self.raw {
            Raw::Packets(packets) => {
                let wanted = Wanted::Call(self.entry);
                let most = usize::try_from(self.most_steps).unwrap_or(usize::MAX);
                let trace = live::decode_most(packets, self.reasons, image, wanted, most)?;
                Ok(of_call(trace, &self.followed))
            }
            Raw::Samples(records) => {
                let mut trace = survey::runs(records, image, Form::Call);
                trace.reasons = trace.reasons.with(self.reasons);
                Ok(of_survey(trace, &self.followed))
            }
        }
    }
}

/// An image of these pieces of code: where each begins, and its bytes.
fn image(code: &[Piece]) -> Result<Image, String> {
    let image = Image::new()?;
    for (start, bytes) in code {
        let code = CodeBytes::new(bytes.to_vec()).map_err(|error| error.to_string())?;
        image.map(*start, &code, 0, bytes.len() as u64)?;
    }
    Ok(image)
}

/// Of a call's trace, the steps within `ranges`; the rest of it is what was called from there. It is judged by the rules of
/// callees that ran at full speed.
fn of_call(mut trace: Trace, ranges: &[(u64, u64)]) -> Trace {
    if ranges.is_empty() {
        return trace;
    }
    let shown = |code: &Code| {
        let holds = |(start, end): &(u64, u64)| (*start..*end).contains(&code.addr);
        ranges.iter().any(holds)
    };
    let shown: Vec<bool> = trace.code.iter().map(shown).collect();
    let at = |step: &Step| usize::try_from(step.code).ok();
    let mut away = false;
    let mut steps = Vec::new();
    for step in &trace.steps {
        if !at(step).and_then(|at| shown.get(at)).is_some_and(|is| *is) {
            away = true;
            continue;
        }
        let mut step = *step;
        if std::mem::take(&mut away) && step.link == Link::Flow && !steps.is_empty() {
            let addr = trace.code_of(&step).map(|code| code.addr);
            let again = addr == trace.begin;
            step.link = if again { Link::Again } else { Link::Over };
            trace.call_outs.calls += u64::from(!again);
        }
        steps.push(step);
    }
    trace.counted = steps.len() as u64;
    trace.end = steps.last().map(|step| step.next);
    trace.steps = steps;
    live::judged(trace)
}

/// Of a survey, the instructions within `ranges`: where others ran between two of them, there is a gap.
fn of_survey(mut trace: Trace, ranges: &[(u64, u64)]) -> Trace {
    if ranges.is_empty() {
        return trace;
    }
    let mut steps = Vec::new();
    let mut gap = false;
    for step in &trace.steps {
        let addr = trace.code_of(step).map_or(0, |code| code.addr);
        if !ranges
            .iter()
            .any(|(start, end)| (*start..*end).contains(&addr))
        {
            gap = true;
            continue;
        }
        let mut step = *step;
        if std::mem::take(&mut gap) {
            step.link = Link::Gap;
        }
        steps.push(step);
    }
    trace.counted = steps.len() as u64;
    trace.steps = steps;
    survey::ended(trace)
}
