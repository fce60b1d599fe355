//! What the session's one loop is fed with, live and in replay: the chunk log stores exactly these.
//!
//! A live recording and a replayed file differ only in who sends the inputs.

use std::sync::Arc;

use scalpel_common::kernel::LossClass;

use crate::event::{Control, Event, FuncId, MonoTime, Pid, Sample, Tid};
use crate::function::{FunctionInfo, UnknownReason};

/// Facts about a recording that are known when it starts. `None` = not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunInfo {
    /// Identity of the run (UUID v4, hyphenated).
    pub uuid: String,
    /// The main target.
    pub pid: Pid,
    /// Its command name, or the command line given after `--`.
    pub command: String,
    /// Host name.
    pub host: String,
    /// Kernel release.
    pub kernel: String,
    /// Wall-clock start, ns since the epoch.
    pub started_unix_ns: u64,
    /// `CLOCK_MONOTONIC` at the start.
    pub started: MonoTime,
    /// What was recorded: `trace`, `sample`, `trace+sample`.
    pub mode: String,
    /// Version of scalpel that recorded it.
    pub version: String,
    /// Calibrated cost of one probed call on this host (lowest and highest) in ns; `None` = not measured.
    pub probe_cost_ns: Option<(u64, u64)>,
    /// Sampling frequency in Hz, 0 = no sampling.
    pub sample_hz: u32,
}

/// One counter of lost events, as it stands (not a difference).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// What was lost.
    pub class: LossClass,
    /// Processor, if counted per processor.
    pub cpu: Option<u32>,
    /// Function, if counted per function.
    pub func: Option<FuncId>,
    /// Total so far.
    pub count: u64,
}

/// A function that is not watched (any more), or not from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Function.
    pub func: FuncId,
    /// From when on its numbers are lower bounds; `None` = it never was attached.
    pub since: Option<MonoTime>,
    /// Why: `over budget`, `refused by the kernel`, `left out by --max-probes` ...
    pub reason: String,
}

/// What was counted since the last time, where nothing is streamed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The last time: what is told happened between it and `until`.
    pub from: MonoTime,
    /// When the counters were read.
    pub until: MonoTime,
    /// Call edges whose counters moved.
    pub edges: Vec<CountedEdge>,
    /// Histograms that grew.
    pub times: Vec<CountedTimes>,
}

/// Calls of one function that return to one place. Times in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedEdge {
    /// Process whose memory the place is in: forked children count in their parent's until they execute a program.
    pub pid: Pid,
    /// Called function.
    pub func: FuncId,
    /// Where the calls come from.
    pub site: CountedSite,
    /// Entries.
    pub calls: u64,
    /// Calls that ended: those that the times cover.
    pub timed: u64,
    /// Of those, calls left by an exception or a long jump.
    pub unwound: u64,
    /// Calls whose end was not to be watched.
    pub refused: u64,
    /// Wall time less that of timed calls within.
    pub self_wall_ns: u64,
    /// CPU time less that of timed calls within.
    pub self_cpu_ns: u64,
    /// Wall time of calls with no other call of the function around them.
    pub total_wall_ns: u64,
    /// CPU time of those.
    pub total_cpu_ns: u64,
    /// Probe events within those, their own included.
    pub probe_events: u64,
}

impl CountedEdge {
    /// Counters of an edge.
    pub const NUMBERS: usize = 9;

    /// An edge of which nothing was counted yet.
    pub const fn new(pid: Pid, func: FuncId, site: CountedSite) -> Self {
        Self {
            pid,
            func,
            site,
            calls: 0,
            timed: 0,
            unwound: 0,
            refused: 0,
            self_wall_ns: 0,
            self_cpu_ns: 0,
            total_wall_ns: 0,
            total_cpu_ns: 0,
            probe_events: 0,
        }
    }

    /// Its counters, in the order that the kernel's cells and the log have them in.
    pub const fn numbers_mut(&mut self) -> [&mut u64; Self::NUMBERS] {
        [
            &mut self.calls,
            &mut self.timed,
            &mut self.unwound,
            &mut self.refused,
            &mut self.self_wall_ns,
            &mut self.self_cpu_ns,
            &mut self.total_wall_ns,
            &mut self.total_cpu_ns,
            &mut self.probe_events,
        ]
    }

    /// The same, to read.
    pub fn numbers(mut self) -> [u64; Self::NUMBERS] {
        self.numbers_mut().map(|number| *number)
    }
}

/// Where counted calls come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CountedSite {
    /// Not known.
    Unknown,
    /// They return to this address.
    Address(u64),
    /// The function was entered by a jump out of this one.
    Jump(FuncId),
}

/// Durations of calls of one function that ended, with no other call of it around them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedTimes {
    /// Function.
    pub func: FuncId,
    /// CPU time instead of wall time.
    pub is_cpu: bool,
    /// Buckets and how many calls fell into each, by [`Histogram::bucket_of`](crate::tree::Histogram::bucket_of).
    pub buckets: Vec<(u16, u64)>,
}

/// A trigger (`FUNC>10ms`), and what became so far of the calls that it judges: those with no other call of its functions
/// around them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trigger {
    /// As it was typed.
    pub text: String,
    /// Calls that lasted longer, in ns of wall time, are kept.
    pub threshold_ns: u64,
    /// Calls that were judged.
    pub calls: u64,
    /// Of those, calls that lasted longer.
    pub over: u64,
    /// Of those, calls that are kept.
    pub kept: u64,
    /// Calls whose end was not watched: nobody knows how long they lasted.
    pub endless: u64,
    /// Calls that were suspended: tasks that waited for others are not judged.
    pub suspended: u64,
    /// Ends of calls that nobody saw begin.
    pub headless: u64,
    /// Longest call that was judged, in ns.
    pub slowest_ns: u64,
}

impl Trigger {
    /// Whether it asks for the same.
    pub fn is_as(&self, other: &Self) -> bool {
        self.text == other.text && self.threshold_ns == other.threshold_ns
    }

    /// Adds the counts of the same trigger in another recording.
    pub fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.calls, other.calls),
            (&mut self.over, other.over),
            (&mut self.kept, other.kept),
            (&mut self.endless, other.endless),
            (&mut self.suspended, other.suspended),
            (&mut self.headless, other.headless),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        self.slowest_ns = self.slowest_ns.max(other.slowest_ns);
    }
}

/// How a call that is kept came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// It returned.
    Returned,
    /// An exception or a jump passed it: it was over at the latest when something else was seen.
    Unwound,
    /// Its end may be among lost events: it was over at the latest when something else was seen.
    Lost,
    /// The thread ended first.
    ThreadEnded,
    /// The recording ended first.
    Open,
}

impl CallEnd {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Returned,
        Self::Unwound,
        Self::Lost,
        Self::ThreadEnded,
        Self::Open,
    ];

    /// Stable word in files and for people.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Returned => "returned",
            Self::Unwound => "unwound",
            Self::Lost => "lost",
            Self::ThreadEnded => "thread ended",
            Self::Open => "still open",
        }
    }
}

/// A call that a trigger kept: first of what the stream has of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptCall {
    /// Place of its trigger among those of the recording.
    pub trigger: u32,
    /// Function.
    pub func: FuncId,
    /// Process.
    pub pid: Pid,
    /// Thread.
    pub tid: Tid,
    /// Beginning.
    pub began: MonoTime,
    /// End, by [`CallEnd`].
    pub ended: MonoTime,
    /// How it ended.
    pub end: CallEnd,
    /// CPU time in ns, if it was measured.
    pub cpu_ns: Option<u64>,
    /// Waits inside whose stack was told.
    pub waits: u64,
    /// Their time in ns.
    pub waited_ns: u64,
    /// Events lost inside.
    pub lost: u64,
    /// Events left out inside, for want of memory: whole calls, the shortest.
    pub left_out: u64,
    /// How many events and samples follow that are its own, with what it was called by; 0 = it is part of the one before.
    pub items: u64,
}

impl KeptCall {
    /// How long it lasted in ns.
    pub const fn wall_ns(&self) -> u64 {
        self.ended.0.saturating_sub(self.began.0)
    }
}

/// What a probe says about itself: its runtime, what it cannot see, what it did not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeWord {
    /// Process it runs in.
    pub pid: Pid,
    /// A [`Source`](crate::event::Source) number.
    pub source: u8,
    /// A [`note_kind`](scalpel_common::segment::note_kind) number.
    pub kind: u8,
    /// When.
    pub time: MonoTime,
    /// Depends on the kind.
    pub value: u64,
    /// For people.
    pub text: String,
}

/// Who sends an input: each drains all of its own rings or lanes, and says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// The BPF programs' rings.
    Kernel,
    /// The probes' lanes.
    Probes,
}

/// One input of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// First of every recording.
    Run(RunInfo),
    /// What an id stands for; comes before the first event that names it.
    Function(FuncId, Arc<FunctionInfo>),
    /// Events of one ring or lane, in the order they were written there.
    Events(Vec<Event>),
    /// Calls that were counted where they happened.
    Counts(Counts),
    /// A sampled stack.
    Sample(Sample),
    /// A change of processes or mappings.
    Control(Control),
    /// Every ring and lane was drained completely *after* this clock read: nothing older can still come.
    Drained(MonoTime),
    /// Loss counters as they stand.
    Losses(Vec<Loss>),
    /// A function is not, or no longer, watched.
    Bound(Bound),
    /// Names of sampled addresses of a process: written at the end, so that a replay needs no files.
    Symbols(Vec<Symbol>),
    /// Functions that debug information has inlined at sampled addresses: written at the end, too.
    Inlined(Vec<Inlined>),
    /// Name of a thread.
    ThreadName(Pid, Tid, String),
    /// Something the user should know: shown as a doubt in every report.
    Note(String),
    /// Last of a recording that ended by itself; a recording without it was cut.
    End(MonoTime),
    /// A probe's word about itself.
    Probe(ProbeWord),
    /// The triggers of the recording, and their counts as they stand.
    Triggers(Vec<Trigger>),
    /// A call that a trigger kept; what belongs to it follows.
    Kept(KeptCall),
    /// What calls of these functions return was asked for: their EXITs tell. Those of all others have no value.
    Returns(Vec<FuncId>),
}

/// What is inlined at one sampled address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inlined {
    /// Process the address belongs to.
    pub pid: Pid,
    /// The address as sampled.
    pub address: u64,
    /// Functions, the outermost first; each is a part of the one before it, and the first of the address's function. All
    /// are defined by earlier [`Input::Function`]s.
    pub functions: Vec<FuncId>,
}

/// The name of one sampled address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Process the address belongs to; 0 = the kernel.
    pub pid: Pid,
    /// The address as sampled.
    pub address: u64,
    /// Its function, defined by an earlier [`Input::Function`], or why it has none.
    pub func: Result<FuncId, UnknownReason>,
}
