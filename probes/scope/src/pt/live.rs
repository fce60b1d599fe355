//! Intel PT of the calling thread: the event is opened by what the kernel says of it, its packets are taken at the close
//! with a copy of the code, and decoded. It is not trusted before it has shown a function whose path is known.
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::encode::Shape;
use super::{Clock, CodeBytes, Flows, Image, Single, Stream, Summary};
use crate::flow;
use crate::maps::Map;
use crate::perf::{self, Area, Channel, Door, Refusal, Step, Wish};
use crate::sink::{Kept, Limited};
use crate::symbol::{Resolver, Symbol};
use crate::trace::{Form, Link, Reasons, Tier, Trace};

/// What errors begin with.
const TIER: &str = "intel-pt";
/// Memory for packets: asked for, and the least that is of use.
const MOST: usize = 4 << 20;
const LEAST: usize = 64 << 10;
/// Code that is copied at a close.
const MOST_CODE: u64 = 256 << 20;
/// Steps that are kept of one recording: few packets can tell of very many.
const MOST_STEPS: usize = 4 << 20;
const AUX: u32 = 11;
const LOST: u32 = 2;
/// Flags of an AUX record: dropped for want of room; gaps in it; another event's data among it.
const AUX_TRUNCATED: u64 = 1;
const AUX_PARTIAL: u64 = 4;
const AUX_COLLISION: u64 = 8;
const EPERM: i32 = 1;
const ENOMEM: i32 = 12;

/// The event source as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pmu {
    kind: u32,
    config: u64,
}

impl Pmu {
    /// Reads its description: the number of its kind, and the bits by name.
    ///
    /// # Errors
    /// The gate that is closed.
    pub fn read(sources: &Path) -> Result<Self, String> {
        let folder = sources.join("intel_pt");
        let Ok(kind) = fs::read_to_string(folder.join("type")) else {
            return Err(format!("{TIER}: no PMU `intel_pt` on this machine"));
        };
        let kind = kind.trim().parse();
        let kind = kind.map_err(|_error| format!("{TIER}: its PMU has no number"))?;
        // Without `branch` there would be no branches, and nothing to decode.
        let config = bit(&folder, "pt")? | bit(&folder, "branch")?;
        Ok(Self { kind, config })
    }

    /// The event that is asked for.
    #[must_use]
    pub fn wish(&self, area: Area, filter: Option<String>) -> Wish {
        Wish {
            kind: self.kind,
            config: self.config,
            area: Some(area),
            filter,
            ..Wish::default()
        }
    }
}

/// A bit of the configuration by its name: `config:13`.
fn bit(folder: &Path, name: &str) -> Result<u64, String> {
    let text = fs::read_to_string(folder.join("format").join(name)).unwrap_or_default();
    let place = text
        .trim()
        .strip_prefix("config:")
        .and_then(|bit| bit.parse::<u32>().ok());
    let mask = place.and_then(|place| 1_u64.checked_shl(place));
    mask.ok_or_else(|| format!("{TIER}: its PMU does not tell the place of `{name}`"))
}

/// An event of one thread that can record.
#[derive(Debug)]
pub struct Recorder(Box<dyn Channel>);

impl Recorder {
    /// Opens the event of the calling thread. With little memory that may be locked, it takes less.
    ///
    /// # Errors
    /// The gate that is closed.
    pub fn open(
        door: &dyn Door,
        pmu: &Pmu,
        snapshot: bool,
        filter: Option<&str>,
    ) -> Result<Self, String> {
        let wish = |area| pmu.wish(area, filter.map(str::to_owned));
        Self::open_as(door, snapshot, &wish).map_err(|refusal| refusal.sentence(TIER))
    }

    /// Opens the event of another thread.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    pub(crate) fn open_on(door: &dyn Door, pmu: &Pmu, thread: u32) -> Result<Self, Refusal> {
        let wish = |area| Wish {
            thread,
            ..pmu.wish(area, None)
        };
        Self::open_as(door, false, &wish)
    }

    fn open_as(
        door: &dyn Door,
        snapshot: bool,
        wish: &dyn Fn(Area) -> Wish,
    ) -> Result<Self, Refusal> {
        let mut bytes = MOST;
        loop {
            let area = Area { bytes, snapshot };
            let full = |refusal: &Refusal| {
                refusal.step == Step::Map && matches!(refusal.errno, EPERM | ENOMEM)
            };
            match door.open(&wish(area)) {
                Ok(channel) => return Ok(Self(channel)),
                Err(refusal) if full(&refusal) && bytes > LEAST => bytes /= 2,
                Err(refusal) => return Err(refusal),
            }
        }
    }

    /// Begins.
    ///
    /// # Errors
    /// The gate that is closed.
    pub fn start(&mut self) -> Result<(), String> {
        self.enable().map_err(|refusal| refusal.sentence(TIER))
    }

    pub(crate) fn enable(&mut self) -> Result<(), Refusal> {
        self.0.enable()
    }

    /// Ends: the packets, and why some are missing.
    pub fn stop(&mut self) -> (Vec<u8>, Reasons) {
        self.0.disable();
        let taken = self.0.take();
        let mut reasons = Reasons::NONE;
        for (kind, body) in perf::records(&taken.records) {
            let flags = perf::word(body, 2).filter(|_| kind == AUX).unwrap_or(0);
            if flags & (AUX_TRUNCATED | AUX_PARTIAL | AUX_COLLISION) != 0 {
                reasons = reasons.with(Reasons::BUFFER_FULL);
            }
            if kind == LOST {
                reasons = reasons.with(Reasons::SIDEBAND);
            }
        }
        (taken.traced, reasons)
    }
}

/// What is looked for in a thread's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The form's instructions.
    Form(Form),
    /// One call of the function at this address, from its entry to its return.
    Call(u64),
}

/// Names nothing.
#[derive(Debug)]
pub(crate) struct NoNames;

impl Resolver for NoNames {
    fn resolve(&mut self, _addr: u64) -> Option<Symbol> {
        None
    }
}

/// The trace that packets and code tell of.
///
/// # Errors
/// libipt is not there, or has no memory.
pub fn decode(
    packets: &[u8],
    missing: Reasons,
    image: Image,
    wanted: Wanted,
) -> Result<Trace, String> {
    decode_most(packets, missing, image, wanted, MOST_STEPS)
}

/// The trace of at most so many steps.
pub(crate) fn decode_most(
    packets: &[u8],
    missing: Reasons,
    image: Image,
    wanted: Wanted,
    most: usize,
) -> Result<Trace, String> {
    let mut names = NoNames;
    let mut guide = Single::new(image, &mut names);
    let mut limited = Limited::new(most);
    let mut flows = Flows::new(&mut limited);
    flows.doubt(missing);
    Stream::new(None, Clock::default()).all(packets, &mut guide, &mut flows)?;
    let mut summary = flows.finish();
    let kept = match limited.finish() {
        (kept, false) => kept,
        (kept, true) => {
            summary.reasons = summary.reasons.with(Reasons::BUDGET);
            summary.seal = None;
            kept
        }
    };
    Ok(match wanted {
        Wanted::Form(form) => part_of(form, kept, summary),
        Wanted::Call(function) => call_of(function, kept, summary),
    })
}

fn whole(form: Form, kept: Kept, summary: Summary) -> Trace {
    let mut trace = Trace::skipped(form, "");
    trace.skip_reason = None;
    trace.tier = Tier::IntelPt;
    (trace.begin, trace.end) = summary.ends.unzip();
    trace.counted = summary.instructions;
    trace.seal = summary.seal;
    trace.reasons = summary.reasons;
    trace.verified = summary.verified;
    trace.assumed = summary.assumed;
    (trace.steps, trace.code) = (kept.steps, kept.code);
    if trace.steps.is_empty() && packets_expected(form) {
        trace.reasons = trace.reasons.with(Reasons::NO_SYNC);
    }
    trace
}

/// A region may not have run at all; a window is never empty.
fn packets_expected(form: Form) -> bool {
    !matches!(form, Form::Region { .. })
}

/// The steps that the form shows.
fn part_of(form: Form, kept: Kept, summary: Summary) -> Trace {
    let mut trace = whole(form, kept, summary);
    let shown: Vec<bool> = trace
        .code
        .iter()
        .map(|code| form.shows(code.addr))
        .collect();
    let mut away = false;
    let mut steps = Vec::new();
    for step in &trace.steps {
        let at = usize::try_from(step.code).unwrap_or(usize::MAX);
        if !shown.get(at).copied().unwrap_or(false) {
            away = true;
            continue;
        }
        let mut step = *step;
        if std::mem::take(&mut away) && !steps.is_empty() && step.link == Link::Flow {
            step.link = Link::Back;
        }
        steps.push(step);
    }
    trace.counted = steps.len() as u64;
    trace.begin = steps
        .first()
        .and_then(|step| trace.code_of(step))
        .map(|code| code.addr);
    trace.end = steps.last().map(|step| step.next);
    trace.steps = steps;
    judged(trace)
}

/// The steps of one call.
fn call_of(function: u64, kept: Kept, summary: Summary) -> Trace {
    let mut trace = whole(Form::Call, kept, summary);
    let addr = |trace: &Trace, at: usize| {
        let step = trace.steps.get(at)?;
        Some(trace.code_of(step)?.addr)
    };
    let from = (0..trace.steps.len()).find(|at| addr(&trace, *at) == Some(function));
    // The caller stands before it and is run once; without it, what was recorded is the call.
    let behind = from.and_then(|from| returns_to(&trace, from.checked_sub(1)?));
    let mut rest = trace
        .steps
        .iter()
        .enumerate()
        .skip(from.unwrap_or(usize::MAX));
    let last = match behind {
        Some(behind) => rest.find(|(_, step)| step.next == behind),
        None => rest.last(),
    };
    let last = last.map(|(at, _)| at);
    let steps = from
        .zip(last)
        .and_then(|(from, last)| trace.steps.get(from..=last));
    let steps = steps.map(<[_]>::to_vec);
    if steps.is_none() {
        trace.reasons = trace.reasons.with(Reasons::OPEN_END);
    }
    let steps = steps.unwrap_or_default();
    trace.counted = steps.len() as u64;
    trace.begin = Some(function).filter(|_| !steps.is_empty());
    trace.end = steps.last().map(|step| step.next);
    trace.steps = steps;
    judged(trace)
}

/// Where the call at a step comes back to; `None` if it is no call.
fn returns_to(trace: &Trace, at: usize) -> Option<u64> {
    let code = trace.code_of(trace.steps.get(at)?)?;
    let instruction = flow::decode(code.addr, &code.bytes)?;
    flow::is_call(&instruction).then(|| instruction.next_ip())
}

/// What was cut out is judged again, by itself.
pub(crate) fn judged(mut trace: Trace) -> Trace {
    trace.seal = Some(crate::oracle::sealed(&trace));
    trace.reasons = trace.reasons.with(crate::oracle::check(&trace));
    trace
}

/// A copy of all code of this process, as it is now.
///
/// # Errors
/// It cannot be read, or libipt has no memory.
pub fn own_code() -> Result<Image, String> {
    use std::os::unix::fs::FileExt;
    let image = Image::new()?;
    let memory = fs::File::open("/proc/self/mem").map_err(|error| format!("{TIER}: {error}"))?;
    let mut copied = 0;
    for map in Map::all().into_iter().filter(|map| map.executable) {
        let len = map.end - map.start;
        if copied + len > MOST_CODE {
            continue;
        }
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        // What cannot be read is missing from the image, and where it ran, from the trace.
        if memory.read_exact_at(&mut bytes, map.start).is_ok() {
            let code = CodeBytes::new(bytes).map_err(|error| format!("{TIER}: {error}"))?;
            image.map(map.start, &code, 0, len)?;
            copied += len;
        }
    }
    Ok(image)
}

/// Shows a function whose path is known, `truth`, to the recorder while `run` runs it: whether the packets tell the same
/// path.
///
/// # Errors
/// Why it cannot be trusted.
pub fn prove(recorder: &mut Recorder, truth: &Trace, run: &mut dyn FnMut()) -> Result<(), String> {
    if !truth.is_complete() {
        return Err(format!(
            "{TIER}: the path of its self-proof is not known: {}",
            truth.reasons
        ));
    }
    recorder.start()?;
    run();
    let (packets, missing) = recorder.stop();
    let function = truth.begin.unwrap_or(0);
    let trace = decode(&packets, missing, own_code()?, Wanted::Call(function))?;
    if !trace.is_complete() {
        return Err(format!(
            "{TIER}: its self-proof is not complete: {}",
            trace.reasons
        ));
    }
    // `rep` is one step here and one with a count there.
    let path = |trace: &Trace| -> Vec<u64> {
        let code = |step| trace.code_of(step).map(|code| code.addr);
        trace.steps.iter().filter_map(code).collect()
    };
    if path(&trace) == path(truth) {
        Ok(())
    } else {
        Err(format!(
            "{TIER}: its self-proof shows another path than was run"
        ))
    }
}

/// The packets of a true path, for what stands behind a door that only replays.
#[must_use]
pub fn replayed(truth: &Trace) -> Option<Vec<u8>> {
    super::encode::path(truth, Shape::default())
}

/// One scope's recording.
#[derive(Debug)]
pub(crate) struct Scope {
    recorder: Recorder,
    form: Form,
    thread: std::thread::ThreadId,
}

impl Scope {
    /// Opens the event of this thread and begins.
    pub(crate) fn open(door: &dyn Door, pmu: &Pmu, form: Form) -> Result<Self, String> {
        let mut recorder = Recorder::open(door, pmu, false, None)?;
        recorder.start()?;
        Ok(Self {
            recorder,
            form,
            thread: std::thread::current().id(),
        })
    }

    /// Whether the calling thread opened it.
    pub(crate) fn is_own(&self) -> bool {
        self.thread == std::thread::current().id()
    }

    /// Ends it.
    pub(crate) fn close(&mut self, call: Option<u64>) -> Trace {
        let (packets, mut missing) = self.recorder.stop();
        if !self.is_own() {
            missing = missing.with(Reasons::THREAD_HOP);
        }
        let wanted = call.map_or(Wanted::Form(self.form), Wanted::Call);
        let trace = own_code().and_then(|image| decode(&packets, missing, image, wanted));
        trace.unwrap_or_else(|why| Trace::skipped(self.form, why))
    }
}
