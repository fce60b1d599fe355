//! The running recording: inputs come from the rings, go to the log and the session, and some of them are acted on.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::cost::TargetCpu;
use super::names::Names;
use super::outputs::Outputs;
use super::probes::Probes;
use super::stop::Stopper;
use super::subject::Subject;
use super::unwatched::Unwatched;
use super::{load, now_mono, start_note};
use crate::decode;
use crate::event::{Control, FuncId, MonoTime, Pid};
use crate::function::ExitStrategy;
use crate::image::Image;
use crate::input::{Bound, Input, RunInfo};
use crate::kernel::attach::{AttachOptions, Attachments, SiteRequest};
use crate::kernel::calibrate::ProbeCosts;
use crate::kernel::diagnostics::Diagnostics;
use crate::kernel::lease::Lease;
use crate::kernel::process::Mappings;
use crate::kernel::ring::{Decoders, Poller, PollerReport};
use crate::kernel::sample::{SampleClock, Sampler};
use crate::kernel::{Kernel, Mechanism};
use crate::output::Output;
use crate::plan::RecordPlan;
use crate::plan::words::Overhead;
use crate::session::Session;
use crate::target::Process;

/// Batches that may wait for the session: some 30 MB of events. When it is full the rings fill, and loss is counted.
const CHANNEL: usize = 128;

/// How often hit counters, targets and the log are looked at.
const TICK: Duration = Duration::from_millis(100);

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
    pub(super) kernel: Kernel,
    pub(super) attachments: Attachments,
    pub(super) session: Session,
    pub(super) outputs: Outputs,
    pub(super) names: Names,
    pub(super) costs: ProbeCosts,
    pub(super) cpu: TargetCpu,
    /// The log cannot be written any more: why.
    pub(super) log_failure: Option<String>,
    sampler: Option<Sampler>,
    sample_period_ns: u64,
    kernel_stacks: bool,
    lease: Lease,
    poller: Option<Poller>,
    inputs: Receiver<Input>,
    pub(super) requests: Vec<SiteRequest>,
    conditional: Vec<FuncId>,
    ticked: Instant,
    pub(super) unwatched: Unwatched,
    diagnostics: Option<Diagnostics>,
}

impl Live {
    /// Loads the programs, watches the target and begins to listen. No function is probed yet.
    pub(super) fn start(
        plan: &RecordPlan,
        run: RunInfo,
        start: Start,
        subject: &Subject,
        outputs: Outputs,
    ) -> Result<Self> {
        let costs = start.costs;
        let mut kernel = load(plan, start, subject)?;
        let max_overhead = match plan.measurement.max_overhead {
            Overhead::Percent(percent) => Some(percent),
            Overhead::Off => None,
        };
        let options = AttachOptions {
            max_overhead_percent: max_overhead,
            costs,
            ..AttachOptions::default()
        };
        let mut attachments = Attachments::new(&kernel, options);
        attachments.set_targets(&subject.pids());
        let (send, inputs) = sync_channel(CHANNEL);
        let mappings = Mappings::open(&kernel)?;
        let lease = kernel.lease()?;
        let hz = run.sample_hz;
        let decoders = Decoders {
            sample: |bytes| decode::sample(bytes).ok(),
            control: |bytes| decode::control(bytes).ok(),
        };
        let poller = Poller::start(&mut kernel, Some(mappings), decoders, send)?;
        let mut live = Self {
            attachments,
            session: Session::new(),
            outputs,
            names: Names::new(),
            costs,
            cpu: TargetCpu::of(&subject.processes, subject.spawned.is_some()),
            log_failure: None,
            sampler: None,
            kernel_stacks: plan.measurement.kernel_stacks,
            sample_period_ns: 1_000_000_000 / u64::from(hz.max(1)),
            lease,
            poller: Some(poller),
            inputs,
            requests: Vec::new(),
            conditional: Vec::new(),
            diagnostics: None,
            ticked: Instant::now(),
            unwatched: Unwatched::new(
                plan.subprocesses,
                subject
                    .spawned
                    .as_ref()
                    .map(|spawned| spawned.process().pid()),
            ),
            kernel,
        };
        live.take(Input::Run(run));
        if let Some(note) = start_note(&plan.target) {
            live.take(note);
        }
        if hz < plan.measurement.sample_hz {
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
        if hz > 0 {
            live.sampler = Some(Sampler::start(&mut live.kernel, hz)?);
        }
        Ok(live)
    }

    /// From now on hands on what the programs say, if they were loaded to speak.
    pub(super) fn listen(&mut self, start: Start, output: &Output) -> Result<()> {
        if start.diagnostics {
            let output = output.clone();
            let lines = self.kernel.diagnostics(move |line| output.detail(line))?;
            self.diagnostics = Some(lines);
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
        self.unread(&probes.unopened);
        self.conditional = probes.conditional;
        self.attach_requests(&probes.requests, output)?;
        self.requests = probes.requests;
        Ok(())
    }

    fn attach_requests(&mut self, requests: &[SiteRequest], output: &Output) -> Result<()> {
        let bar = output.progress("attaching", requests.len() as u64);
        let mut heard = Vec::new();
        let inputs = &self.inputs;
        let report = self.attachments.attach(requests, &mut |progress| {
            bar.set_position(progress.done as u64);
            heard.extend(inputs.try_iter());
        })?;
        bar.finish_and_clear();
        for input in heard {
            self.receive(input);
        }
        for (func, reason) in report.refused {
            self.take(Input::Bound(Bound {
                func,
                since: None,
                reason,
            }));
        }
        for bound in report.bounds {
            self.take(Input::Bound(bound));
        }
        output.detail(&format!(
            "{} functions attached with {} links",
            self.attachments.len(),
            self.attachments.link_count()
        ));
        Ok(())
    }

    /// Says which files could not be looked at: what is in them is not probed, and may throw.
    pub(super) fn unread(&mut self, files: &[(PathBuf, String)]) {
        for (path, reason) in files {
            self.take(Input::Note(format!(
                "{} could not be read and was not probed: {reason}",
                path.display()
            )));
        }
    }

    /// Listens until a signal, the duration, the target's end or a full disk ends the recording.
    pub(super) fn until_the_end(&mut self, subject: &Subject, stopper: &Stopper) {
        while !stopper.should_stop() && self.log_failure.is_none() {
            match self.inputs.recv_timeout(TICK / 2) {
                Ok(input) => self.receive(input),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.ticked.elapsed() >= TICK {
                self.tick();
                if subject.has_ended() {
                    break;
                }
            }
        }
    }

    fn tick(&mut self) {
        self.ticked = Instant::now();
        for bound in self.attachments.govern(now_mono()) {
            self.take(Input::Bound(bound));
        }
        for lapse in self.lease.take_lapses() {
            let ms = (lapse.until.0 - lapse.from.0) / 1_000_000;
            self.take(Input::Note(format!(
                "the collector was held up for more than its lease: nothing was recorded for {ms} ms"
            )));
        }
        self.cpu.look();
        if let Some(lines) = &mut self.diagnostics {
            lines.flush();
        }
        let failed = self.outputs.writer().and_then(|writer| writer.tick().err());
        self.note_log_failure(failed);
    }

    /// Says what the watched processes did outside of what is watched.
    pub(super) fn note_unwatched(&mut self) {
        for note in self.unwatched.notes() {
            self.take(Input::Note(note));
        }
    }

    /// Takes the probes off and drains what is left.
    pub(super) fn detach(
        &mut self,
        output: &Output,
    ) -> (crate::kernel::attach::DetachReport, PollerReport) {
        self.cpu.look();
        let bar = output.progress("detaching", 1);
        let detached = self.attachments.detach_all();
        bar.finish_and_clear();
        self.sampler = None;
        if let Some(lines) = &mut self.diagnostics {
            lines.flush();
        }
        let polled = match self.poller.take() {
            Some(poller) => self.end_poller(poller),
            None => PollerReport::default(),
        };
        (detached, polled)
    }

    /// The poller may be waiting for room in the channel: it is emptied while the poller ends.
    fn end_poller(&mut self, poller: Poller) -> PollerReport {
        let ending = std::thread::spawn(move || poller.finish());
        while !ending.is_finished() {
            if let Ok(input) = self.inputs.recv_timeout(Duration::from_millis(5)) {
                self.receive(input);
            }
        }
        let rest: Vec<Input> = self.inputs.try_iter().collect();
        for input in rest {
            self.receive(input);
        }
        ending.join().unwrap_or_default()
    }

    /// An input of the rings.
    fn receive(&mut self, input: Input) {
        match input {
            Input::Sample(mut sample) => {
                // In frequency mode a sample stands for one period of CPU time, whatever the hardware counted.
                if self
                    .sampler
                    .as_ref()
                    .is_some_and(|sampler| sampler.clock() == SampleClock::Cycles)
                {
                    sample.event.value = self.sample_period_ns;
                }
                if !self.kernel_stacks {
                    sample.kernel.clear();
                }
                self.take(Input::Sample(sample));
            }
            Input::Control(control) => self.control(control),
            other => self.take(other),
        }
    }

    fn control(&mut self, control: Control) {
        self.names.control(&control);
        self.unwatched.control(&control);
        let after = match &control {
            Control::Exec { time, pid, .. } => Some((*pid, *time)),
            _ => None,
        };
        let mapped = match &control {
            Control::Map { pid, path, .. } => Some((*pid, path.clone())),
            _ => None,
        };
        self.take(Input::Control(control));
        if let Some((pid, time)) = after {
            self.executed(pid, time);
        }
        if let Some((pid, path)) = mapped {
            self.mapped(pid, &path);
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
    fn describe(&mut self, process: &Process, time: MonoTime) {
        for control in self.names.describe(process, time) {
            self.take(Input::Control(control));
        }
        for thread in process.threads().unwrap_or_default() {
            self.take(Input::ThreadName(process.pid(), thread.tid, thread.name));
        }
    }

    /// A file that throws was mapped after the exits were decided: return probes that rested on nothing throwing go.
    fn mapped(&mut self, pid: Pid, path: &str) {
        if self.conditional.is_empty() || !self.names.is_new_file(pid, path) {
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
        let given_up: Vec<FuncId> = std::mem::take(&mut self.conditional);
        let funcs = given_up.iter().copied().collect();
        let now = now_mono();
        let dropped = self.attachments.drop_functions(&funcs, now);
        let entry_only: Vec<SiteRequest> = self
            .requests
            .iter()
            .filter(|request| funcs.contains(&request.func))
            .map(|request| SiteRequest {
                exit: ExitStrategy::EntryOnly,
                ..request.clone()
            })
            .collect();
        let attached = self.attachments.attach(&entry_only, &mut |_progress| {});
        let (refused, problem) = match attached {
            Ok(report) => (report.refused, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        for bound in dropped {
            self.take(Input::Bound(bound));
        }
        for (func, reason) in refused {
            self.take(Input::Bound(Bound {
                func,
                since: Some(now),
                reason,
            }));
        }
        self.take(Input::Note(format!(
            "{path} was mapped during the recording and throws exceptions: from then on {} functions are counted \
             without their exits{}",
            given_up.len(),
            problem.map(|error| format!(" ({error})")).unwrap_or_default()
        )));
    }

    /// Logs an input and gives it to the session.
    pub(super) fn take(&mut self, input: Input) {
        let failed = self
            .outputs
            .writer()
            .and_then(|writer| writer.write(&input).err());
        self.note_log_failure(failed);
        self.session.feed(input);
    }

    pub(super) fn note_log_failure(&mut self, failed: Option<crate::log::LogError>) {
        if let Some(error) = failed {
            self.log_failure
                .get_or_insert_with(|| format!("{:#}", anyhow::Error::new(error)));
        }
    }
}
