//! The running recording: inputs come from the rings and the lanes, go to the log and the session, and some of them are
//! acted on.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Instant;

use anyhow::Result;

use super::cost::TargetCpu;
use super::counted::Counted;
use super::entering::Entering;
use super::everybody::Host;
use super::family::Family;
use super::governor::Governor;
use super::installed;
use super::names::Names;
use super::outputs::Outputs;
use super::pace::Pace;
use super::probes::Probes;
use super::stop::Stopper;
use super::subject::Subject;
use super::tracer::Tracer;
use super::triggered::Triggered;
use super::unwatched::Unwatched;
use super::values::Values;
use super::waits::Waits;
use super::watermark::Watermark;
use super::{Watcher, now_mono, start_note};
use crate::event::{Control, MonoTime, Pid, Sample};
use crate::image::Image;
use crate::input::{Counts, Feed, Input, RunInfo};
use crate::kernel::Mechanism;
use crate::kernel::attach::SiteRequest;
use crate::kernel::calibrate::ProbeCosts;
use crate::output::Output;
use crate::plan::{Mode, ProbeMode, RecordPlan};
use crate::probe;
use crate::session::Session;
use crate::survey;
use crate::target::Process;

/// Batches that may wait for the session: some 30 MB of events. When it is full the rings fill, and loss is counted.
const CHANNEL: usize = 128;

/// What was decided before the programs are loaded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    /// How probes are attached.
    pub(super) mechanism: Mechanism,
    /// How many functions there are.
    pub(super) functions: usize,
    /// What a probe costs.
    pub(super) costs: ProbeCosts,
    /// The programs tell what they refuse (`-vv`).
    pub(super) diagnostics: bool,
}

/// A recording that runs.
pub(super) struct Live {
    /// What needs privilege; `None` = nothing but probes in the runtimes.
    pub(super) tracer: Option<Tracer>,
    pub(super) runtimes: Option<probe::Probes>,
    pub(super) governor: Option<Governor>,
    pub(super) session: Session,
    pub(super) outputs: Outputs,
    pub(super) names: Names,
    waits: Waits,
    /// Only what triggers keep is logged and summed up.
    pub(super) triggered: Option<Triggered>,
    pub(super) values: Values,
    /// All processes of the host, where they are recorded.
    pub(super) host: Option<Host>,
    pub(super) costs: ProbeCosts,
    pub(super) cpu: TargetCpu,
    /// The log cannot be written any more: why.
    pub(super) log_failure: Option<String>,
    watermark: Watermark,
    pub(super) send: Option<SyncSender<(Feed, Input)>>,
    pub(super) inputs: Receiver<(Feed, Input)>,
    pace: Pace,
    pub(super) unwatched: Unwatched,
    pub(super) entering: Entering,
    pub(super) family: Family,
    pub(super) side_band_lost: u64,
    /// How far times of probes may lie from the kernel's clock.
    pub(super) clock_error_ns: Option<u64>,
}

impl Live {
    /// Begins to listen: to the kernel, if it is asked at all, and to the target's births. No function is probed yet.
    pub(super) fn start(
        plan: &RecordPlan,
        run: RunInfo,
        start: Start,
        subject: &Subject,
        outputs: Outputs,
    ) -> Result<Self> {
        let (send, inputs) = sync_channel(CHANNEL);
        let hz = run.sample_hz;
        let mut family = Family::default();
        let has_probes = plan.runtimes.mode != ProbeMode::Off;
        let tracer = match plan.runtimes.alone {
            true => {
                if has_probes {
                    family.watch(&subject.processes);
                }
                None
            }
            false => {
                let family = has_probes.then_some(&mut family);
                Some(Tracer::start(
                    plan,
                    start,
                    subject,
                    hz,
                    send.clone(),
                    family,
                )?)
            }
        };
        let launched = subject.spawned.as_ref();
        let mut live = Self {
            watermark: Watermark::of(tracer.is_some()),
            tracer,
            runtimes: None,
            governor: Governor::of(plan.runtimes.max_overhead),
            session: Session::new(),
            outputs,
            names: Names::of(subject),
            waits: Waits::default(),
            triggered: Triggered::of(&plan.triggers, &run)?,
            values: Values::of(plan)?,
            host: subject.is_host.then(|| Host::new(Pid(std::process::id()))),
            costs: start.costs,
            cpu: TargetCpu::of(&subject.processes, launched.is_some(), plan.subprocesses),
            log_failure: None,
            send: Some(send),
            inputs,
            pace: Pace::new(),
            unwatched: Unwatched::new(
                plan.subprocesses,
                launched.map(|spawned| spawned.process().pid()),
            )
            .probing(plan.measurement.mode != Mode::Sample),
            entering: Entering::default(),
            family,
            side_band_lost: 0,
            clock_error_ns: None,
        };
        live.take(Input::Run(run));
        if let Some(note) = start_note(&plan.target) {
            live.take(note);
        }
        let is_probed = live.tracer.is_some() && plan.measurement.mode != Mode::Sample;
        for note in subject.notes(is_probed) {
            live.take(Input::Note(note));
        }
        if hz < plan.measurement.sample_hz && live.tracer.is_some() {
            live.take(Input::Note(
                "nothing was sampled: this kernel can crash when user stacks are sampled while return probes are \
                 attached (fixed in Linux 6.13); --exits none makes sampling safe"
                    .into(),
            ));
        }
        // A held command is still a copy of us: its exec tells what it will be.
        if subject.spawned.is_none() {
            for process in &subject.processes {
                live.describe(process, now_mono());
            }
        }
        if let Some(tracer) = live.tracer.as_mut().filter(|_| hz > 0) {
            tracer.sample(hz)?;
        }
        if let (Some(tracer), Some(least)) = (&mut live.tracer, plan.measurement.off_cpu) {
            tracer.tell_waits(least)?;
        }
        Ok(live)
    }

    /// From now on hands on what the programs say, if they were loaded to speak.
    pub(super) fn listen(&mut self, start: Start, output: &Output) -> Result<()> {
        match &mut self.tracer {
            Some(tracer) if start.diagnostics => tracer.listen(output),
            _ => Ok(()),
        }
    }

    /// Listens to probes in the targets' runtimes, too.
    pub(super) fn listen_to_runtimes(&mut self, options: probe::Options) -> Result<()> {
        if let Some(send) = &self.send {
            self.runtimes = Some(probe::Probes::start(options, send.clone())?);
            self.watermark.expect(Feed::Probes);
        }
        Ok(())
    }

    /// Attaches the probes, and keeps listening meanwhile.
    pub(super) fn attach(&mut self, probes: Probes, output: &Output) -> Result<()> {
        for (func, info) in probes.defined {
            self.take(Input::Function(func, info));
        }
        for bound in probes.bounds {
            self.take(Input::Bound(bound));
        }
        self.notes(probes.unopened.iter().map(survey::unread_note));
        if let Some(tracer) = &mut self.tracer {
            tracer.conditional = probes.conditional;
        }
        self.attach_requests(&probes.requests, output)?;
        if let Some(tracer) = &mut self.tracer {
            tracer.requests = probes.requests;
        }
        Ok(())
    }

    fn attach_requests(&mut self, requests: &[SiteRequest], output: &Output) -> Result<()> {
        let Some(tracer) = &mut self.tracer else {
            return Ok(());
        };
        let (bounds, heard) = tracer.attach(requests, &self.inputs, output)?;
        for (feed, input) in heard {
            self.receive(feed, input);
        }
        for bound in bounds {
            self.take(Input::Bound(bound));
        }
        Ok(())
    }

    /// Takes notes for whoever reads the result.
    pub(super) fn notes(&mut self, notes: impl IntoIterator<Item = String>) {
        let notes = notes.into_iter().map(Input::Note);
        notes.for_each(|note| self.take(note));
    }

    /// Listens until a signal, the duration, the target's end or a full disk ends the recording.
    pub(super) fn until_the_end(
        &mut self,
        subject: &Subject,
        stopper: &Stopper,
        mut watcher: Option<&mut (dyn Watcher + '_)>,
    ) -> Result<()> {
        let mut looked = Instant::now();
        self.admit_late_children(subject);
        while !stopper.should_stop() && self.log_failure.is_none() {
            match self.inputs.recv_timeout(self.pace.wait()) {
                Ok((feed, input)) => self.receive(feed, input),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.pace.is_due() {
                self.tick();
                self.admit_members(subject);
                if subject.has_ended() {
                    break;
                }
            }
            if let Some(watcher) = &mut watcher {
                if !watcher.goes_on()? {
                    break;
                }
                if looked.elapsed() >= watcher.interval() {
                    looked = Instant::now();
                    watcher.look(&self.so_far()?)?;
                }
            }
        }
        Ok(())
    }

    fn tick(&mut self) {
        self.pace.ticks();
        if let Some(tracer) = &mut self.tracer {
            let (bounds, notes) = tracer.tick(now_mono());
            self.pace.hurry_if(!bounds.is_empty());
            for bound in bounds {
                self.take(Input::Bound(bound));
            }
            for note in notes {
                self.take(Input::Note(note));
            }
        }
        self.count(Counted::due);
        self.govern();
        self.family.tick();
        self.cpu.look();
        let failed = self.outputs.writer().and_then(|writer| writer.tick().err());
        self.note_log_failure(failed);
    }

    /// An input of the rings or lanes.
    pub(super) fn receive(&mut self, feed: Feed, input: Input) {
        if let Some(host) = &mut self.host {
            match input {
                Input::Sample(sample) => return host.sample(sample),
                Input::Control(control) => return host.control(control),
                Input::Drained(until) => self.release_host(until),
                _ => {}
            }
        }
        match input {
            Input::Sample(sample) => self.sample(sample),
            Input::Control(control) => self.control(control),
            Input::Drained(until) => {
                if let Some(until) = self.watermark.drained(feed, until) {
                    self.take(Input::Drained(until));
                }
            }
            Input::Probe(word) => self.word(word),
            Input::Events(mut events) => {
                self.values.forget(&mut events);
                if let Some(governor) = self.governor.as_mut().filter(|_| feed == Feed::Probes) {
                    governor.count(&events);
                }
                self.take(Input::Events(events));
            }
            other => self.take(other),
        }
    }

    pub(super) fn sample(&mut self, sample: Sample) {
        if sample.copy.is_some() {
            for wait in self.waits.unwound(sample, &self.names) {
                self.take(Input::Sample(wait));
            }
            return;
        }
        let sample = match &self.tracer {
            Some(tracer) => tracer.as_taken(sample),
            None => sample,
        };
        self.take(Input::Sample(sample));
    }

    fn control(&mut self, control: Control) {
        self.names.control(&control);
        self.waits.control(&control);
        self.unwatched.control(&control);
        self.judge_with(&control);
        let after = match &control {
            Control::Exec { time, pid, .. } => Some((*pid, *time)),
            _ => None,
        };
        let mapped = match &control {
            Control::Map { pid, path, .. } => Some((*pid, path.clone())),
            _ => None,
        };
        self.count(|counted| counted.before(&control));
        if let Some(counted) = self.tracer.as_mut().and_then(Tracer::counted) {
            counted.after(&control);
        }
        self.take(Input::Control(control));
        if let Some((pid, time)) = after {
            self.executed(pid, time);
        }
        if let Some((pid, path)) = mapped {
            self.mapped(pid, &path);
        }
    }

    /// Takes what was counted, if `read` gives it.
    pub(super) fn count(&mut self, read: impl FnOnce(&mut Counted) -> Option<Counts>) {
        let counted = self.tracer.as_mut().and_then(Tracer::counted);
        if let Some(counts) = counted.and_then(read) {
            self.take_counts(counts);
        }
    }

    fn take_counts(&mut self, counts: Counts) {
        if !counts.edges.is_empty() || !counts.times.is_empty() {
            self.take(Input::Counts(counts));
        }
    }

    /// Takes what was counted until the probes went.
    pub(super) fn count_last(&mut self, main: Pid) {
        let counts = self
            .tracer
            .as_mut()
            .and_then(|tracer| tracer.last_counts(main));
        if let Some(counts) = counts {
            self.take_counts(counts);
        }
    }

    /// The mappings of an exec came before its record: they are told again, or they would be taken for the old ones.
    fn executed(&mut self, pid: Pid, time: MonoTime) {
        for map in self.names.maps_before_exec(pid, time) {
            self.names.control(&map);
            self.take(Input::Control(map));
        }
        // It may have ended already, or end while it is read: then the records are all there is.
        if let Ok(process) = Process::open(pid) {
            self.describe(&process, time);
        }
    }

    /// Tells the session what a process has mapped and how its threads are called.
    pub(super) fn describe(&mut self, process: &Process, time: MonoTime) {
        for control in self.names.describe(process, time) {
            self.take(Input::Control(control));
        }
        for thread in process.threads().unwrap_or_default() {
            self.take(Input::ThreadName(process.pid(), thread.tid, thread.name));
        }
    }

    /// A file that throws was mapped after the exits were decided: return probes that rested on nothing throwing go.
    fn mapped(&mut self, pid: Pid, path: &str) {
        let rests = |tracer: &Tracer| !tracer.conditional.is_empty();
        if !self.tracer.as_ref().is_some_and(rests)
            || !self.names.is_new_file(pid, path)
            || installed::is_probe(path)
        {
            return;
        }
        let throws = self.names.content(pid, path).is_none_or(|bytes| {
            Image::parse(&bytes, path, &crate::image::NoDebugFiles)
                .is_ok_and(|image| image.can_throw() || image.is_go())
        });
        if throws {
            self.give_up_exits(path);
        }
    }

    fn give_up_exits(&mut self, path: &str) {
        let Some(tracer) = &mut self.tracer else {
            return;
        };
        let given_up = tracer.give_up_exits(now_mono());
        for bound in given_up.bounds {
            self.take(Input::Bound(bound));
        }
        let problem = given_up.problem.map(|error| format!(" ({error})"));
        self.take(Input::Note(format!(
            "{path} was mapped during the recording and throws exceptions: from then on {} functions are counted \
             without their exits{}",
            given_up.functions,
            problem.unwrap_or_default()
        )));
    }

    pub(super) fn note_log_failure(&mut self, failed: Option<crate::log::LogError>) {
        if let Some(error) = failed {
            self.log_failure
                .get_or_insert_with(|| format!("{:#}", anyhow::Error::new(error)));
        }
    }
}
