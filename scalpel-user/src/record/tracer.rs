//! The kernel's side of a recording: programs, probes, sampler, lease, and the thread that drains the rings.
//!
//! Hands inputs on and is told to attach and detach; what they mean is `Live`'s.

use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::cost::own_cpu_ns;
use super::counted::Counted;
use super::family::Family;
use super::live::Start;
use super::load;
use super::subject::Subject;
use crate::decode;
use crate::event::{FuncId, MonoTime, Pid, Sample};
use crate::function::ExitStrategy;
use crate::input::{Bound, Counts, Feed, Input};
use crate::kernel::attach::{AttachOptions, Attachments, DetachReport, SiteRequest};
use crate::kernel::diagnostics::Diagnostics;
use crate::kernel::lease::{Lapse, Lease};
use crate::kernel::process::Mappings;
use crate::kernel::ring::{Decoders, Poller};
use crate::kernel::run_time::{self, Begin, RunTime};
use crate::kernel::sample::{SampleClock, Sampler};
use crate::kernel::{Kernel, raise_open_files};
use crate::output::Output;
use crate::plan::words::Overhead;
use crate::plan::{Mode, RecordPlan};
use crate::sandbox::Meter;
use crate::target::Process;

/// Inputs that came while something else was done, with who sent them.
pub(super) type Heard = Vec<(Feed, Input)>;

/// Everything that needs privilege.
pub(super) struct Tracer {
    kernel: Kernel,
    attachments: Attachments,
    sampler: Option<Sampler>,
    sample_period_ns: u64,
    kernel_stacks: bool,
    is_host: bool,
    tells_waits: bool,
    lease: Lease,
    poller: Option<Poller>,
    /// What was asked for.
    pub(super) requests: Vec<SiteRequest>,
    /// Functions whose return probe must go when something that throws is mapped.
    pub(super) conditional: Vec<FuncId>,
    diagnostics: Option<Diagnostics>,
    run_time: RunTime,
    began: Instant,
    counted: Option<Counted>,
}

/// What became of the exits that were given up.
pub(super) struct GivenUp {
    /// How many functions.
    pub(super) functions: usize,
    /// What is not watched any longer, or not again.
    pub(super) bounds: Vec<Bound>,
    /// Why the entries could not be attached again, if so.
    pub(super) problem: Option<String>,
}

/// Root has given up what it takes to ask the kernel itself.
fn meter() -> Begin {
    match Meter::start_if_wanted() {
        None => Box::new(run_time::account),
        // What cannot be started has nothing to tell: then the cost is not known.
        Some(Err(_)) => Box::new(|| None),
        Some(Ok(mut meter)) => Box::new(move || meter.account().ok().flatten()),
    }
}

impl Tracer {
    /// Loads the programs, watches the targets and begins to drain. No function is probed yet.
    pub(super) fn start(
        plan: &RecordPlan,
        start: Start,
        subject: &Subject,
        hz: u32,
        send: SyncSender<(Feed, Input)>,
        family: Option<&mut Family>,
    ) -> Result<Self> {
        let mut kernel = load(plan, start, subject)?;
        let options = AttachOptions {
            max_overhead_percent: match plan.measurement.max_overhead {
                Overhead::Percent(percent) => Some(percent),
                Overhead::Off => None,
            },
            costs: start.costs,
            ..AttachOptions::default()
        };
        let mut attachments = Attachments::new(&kernel, options);
        attachments.set_targets(&subject.pids());
        let mut mappings = Mappings::open(&kernel)?;
        if subject.is_host {
            mappings.tell_all();
            // The programs and libraries of all processes that run are held open.
            raise_open_files();
        }
        if let Some(family) = family {
            family.follow(&mut mappings, &subject.processes);
        }
        let lease = kernel.lease()?;
        let decoders = Decoders {
            sample: |bytes| decode::sample(bytes).ok(),
            control: |bytes| decode::control(bytes).ok(),
        };
        let counted = match plan.measurement.mode {
            Mode::Count => Some(Counted::begin(&kernel, &subject.pids())?),
            Mode::Trace | Mode::Sample => None,
        };
        let poller = Poller::start(&mut kernel, Some(mappings), decoders, send)?;
        Ok(Self {
            attachments,
            sampler: None,
            sample_period_ns: 1_000_000_000 / u64::from(hz.max(1)),
            kernel_stacks: plan.measurement.kernel_stacks,
            is_host: subject.is_host,
            tells_waits: false,
            lease,
            poller: Some(poller),
            requests: Vec::new(),
            conditional: Vec::new(),
            diagnostics: None,
            run_time: RunTime::by(meter()),
            began: Instant::now(),
            counted,
            kernel,
        })
    }

    /// Begins to sample.
    pub(super) fn sample(&mut self, hz: u32) -> Result<()> {
        self.sampler = Some(Sampler::start(&mut self.kernel, hz)?);
        Ok(())
    }

    /// Begins to tell where threads wait.
    pub(super) fn tell_waits(&mut self, least: Duration) -> Result<()> {
        let least_ns = u64::try_from(least.as_nanos()).unwrap_or(u64::MAX);
        self.kernel.tell_waits(least_ns)?;
        self.tells_waits = true;
        Ok(())
    }

    /// Tells the waits that have not ended, if waits are told, and none after them.
    pub(super) fn end_waits(&mut self) -> Result<()> {
        if self.tells_waits {
            self.kernel.end_waits()?;
        }
        Ok(())
    }

    /// From now on hands on what the programs say.
    pub(super) fn listen(&mut self, output: &Output) -> Result<()> {
        let output = output.clone();
        let lines = self.kernel.diagnostics(move |line| output.detail(line))?;
        self.diagnostics = Some(lines);
        Ok(())
    }

    /// Attaches probes. Returns what could not be watched, and what was heard meanwhile.
    pub(super) fn attach(
        &mut self,
        requests: &[SiteRequest],
        inputs: &Receiver<(Feed, Input)>,
        output: &Output,
    ) -> Result<(Vec<Bound>, Heard)> {
        let bar = output.progress("attaching", requests.len() as u64);
        let mut heard = Vec::new();
        let report = self.attachments.attach(requests, &mut |progress| {
            bar.set_position(progress.done as u64);
            heard.extend(inputs.try_iter());
        })?;
        bar.finish_and_clear();
        let mut bounds = refused(report.refused, None);
        bounds.extend(report.bounds);
        output.detail(&format!(
            "{} functions attached with {} links",
            self.attachments.len(),
            self.attachments.link_count()
        ));
        Ok((bounds, heard))
    }

    /// Keeps probes within their budget. Returns those that went, and notes.
    pub(super) fn tick(&mut self, now: MonoTime) -> (Vec<Bound>, Vec<String>) {
        self.run_time.look(&self.kernel);
        let programs_ns = self.programs_ns(self.began.elapsed()).unwrap_or(0);
        self.attachments
            .set_beside(own_cpu_ns().saturating_add(programs_ns));
        let bounds = self.attachments.govern(now);
        if let Some(lines) = &mut self.diagnostics {
            lines.flush();
        }
        (bounds, self.lapses())
    }

    /// Times of silence since the last call, for people.
    pub(super) fn lapses(&self) -> Vec<String> {
        let lapses = self.lease.take_lapses().into_iter();
        let text = "the collector was held up for more than its lease: nothing was recorded for";
        let ms = |lapse: Lapse| (lapse.until.0 - lapse.from.0) / 1_000_000;
        lapses
            .map(|lapse| format!("{text} {} ms", ms(lapse)))
            .collect()
    }

    /// Time in the programs that sample and watch threads, in ns; `None` = it was not measured.
    pub(super) fn programs_ns(&self, elapsed: Duration) -> Option<u64> {
        self.run_time.during(elapsed)
    }

    /// Since when the programs run.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// A sample as it is to be taken.
    pub(super) fn as_taken(&self, mut sample: Sample) -> Sample {
        // In frequency mode a sample stands for one period of CPU time, whatever the hardware counted.
        let by_cycles = |sampler: &Sampler| sampler.clock() == SampleClock::Cycles;
        if self.sampler.as_ref().is_some_and(by_cycles) {
            sample.event.value = self.sample_period_ns;
        }
        // A thread of the kernel has no other stack.
        let is_all = self.is_host && sample.user.is_empty();
        if !self.kernel_stacks && !is_all {
            sample.kernel.clear();
        }
        sample
    }

    /// Return probes that rested on nothing throwing go; entries stay.
    pub(super) fn give_up_exits(&mut self, now: MonoTime) -> GivenUp {
        let given_up: Vec<FuncId> = std::mem::take(&mut self.conditional);
        let funcs = given_up.iter().copied().collect();
        let mut bounds = self.attachments.drop_functions(&funcs, now);
        let entry_only: Vec<SiteRequest> = self
            .requests
            .iter()
            .filter(|request| funcs.contains(&request.func))
            .map(|request| SiteRequest {
                exit: ExitStrategy::EntryOnly,
                ..request.clone()
            })
            .collect();
        let problem = match self.attachments.attach(&entry_only, &mut |_progress| {}) {
            Ok(report) => {
                bounds.extend(refused(report.refused, Some(now)));
                None
            }
            Err(error) => Some(error.to_string()),
        };
        GivenUp {
            functions: given_up.len(),
            bounds,
            problem,
        }
    }

    /// Takes the probes off. The poller goes on: it is to be ended, while somebody takes what it sends.
    pub(super) fn detach(&mut self, output: &Output) -> (DetachReport, Option<Poller>) {
        let bar = output.progress("detaching", 1);
        let detached = self.attachments.detach_all();
        bar.finish_and_clear();
        self.sampler = None;
        if let Some(lines) = &mut self.diagnostics {
            lines.flush();
        }
        output.detail(&format!(
            "{} functions and {} links taken off in {} ms",
            detached.functions,
            detached.links,
            detached.took.as_millis()
        ));
        (detached, self.poller.take())
    }

    /// Watches a process too; false = it is watched already.
    pub(super) fn watch_also(&mut self, process: &Process) -> Result<bool> {
        let (pid, start_time) = (process.pid(), process.start_time());
        Ok(self.kernel.watch_also(pid, start_time)?)
    }

    /// A process that pays for probes, too.
    pub(super) fn add_target(&mut self, pid: Pid) {
        self.attachments.add_target(pid);
    }

    /// A process has a probe of its own, which needs CPU times.
    pub(super) fn tell_switches(&mut self, pid: Pid) -> Result<()> {
        Ok(self.kernel.tell_switches(pid)?)
    }

    /// What was counted until the end: nothing is attached any more.
    pub(super) fn last_counts(&mut self, main: Pid) -> Option<Counts> {
        let (counted, kernel) = (self.counted.as_mut()?, &self.kernel);
        let probed = self.requests.iter().map(|request| request.func);
        Some(counted.last(main, probed, |func| kernel.hits_of(func)))
    }

    /// The counting, if calls are counted.
    pub(super) const fn counted(&mut self) -> Option<&mut Counted> {
        self.counted.as_mut()
    }

    /// Hits of a function's probe.
    pub(super) fn hits_of(&self, func: FuncId) -> u64 {
        self.kernel.hits_of(func)
    }
}

fn refused(refused: Vec<(FuncId, String)>, since: Option<MonoTime>) -> Vec<Bound> {
    let bound = |(func, reason)| Bound {
        func,
        since,
        reason,
    };
    refused.into_iter().map(bound).collect()
}
