//! `record` and `stat`: make a recording. Takes hold of the target, attaches, drives the session until the end, writes the genome.
//!
//! Must not know stages: everything that happens goes through `Session::feed`, as in a replay.

mod births;
mod cost;
mod counted;
mod ends;
mod entering;
mod everybody;
mod family;
mod finish;
mod governor;
mod guests;
mod household;
mod installed;
mod live;
mod members;
mod names;
mod outputs;
mod pace;
mod probes;
mod runtimes;
mod stop;
mod subject;
mod tracer;
mod triggered;
mod unwatched;
mod values;
mod waits;
mod watermark;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

use crate::caps::{Abilities, Attach as AttachBy};
use crate::event::MonoTime;
use crate::exit::Outcome;
use crate::function::FunctionTable;
use crate::genome::Genome;
use crate::host;
use crate::image::KernelRelease;
use crate::input::{Input, RunInfo};
use crate::kernel::calibrate::{self, ProbeCosts};
use crate::kernel::{Family, Kernel, LoadOptions, Mechanism};
use crate::lay::{self, Sources};
use crate::output::Output;
use crate::plan::words::Overhead;
use crate::plan::{Attach, Mode, RecordPlan, Target};
use crate::privilege;
use crate::report::Report;
use crate::report::summary::Summary;
use crate::survey::Survey;
use crate::target::ChildExit;

pub use finish::say_summary;
pub(crate) use installed::installed;
use live::{Live, Start};
pub(crate) use names::Names;
use outputs::Outputs;
use probes::{Limits, Probes};
pub(crate) use stop::Stopper;
use subject::Subject;

/// Probes when no functions were named and a budget is to be kept. The smallest functions are called most; until the
/// breaker has found and dropped them they slow the target: with all 77,110 functions of Node its event loop ran at
/// 1 to 5 % of its speed for 4 s, with the 10,000 largest at 40 % or more for 1 s, with 3,000 at 60 % for half a second.
const UNNAMED_PROBES: usize = 5_000;

/// Probes of the perf mechanism when no functions were named: each costs a descriptor and closes slowly.
const PERF_PROBES: usize = 500;

/// Memory of the call rings, all together, where calls are not streamed.
const QUIET_RINGS: u64 = 4 << 20;

/// How long a command may take to end after its recording was interrupted.
const CHILD_GRACE: Duration = Duration::from_secs(5);

/// A recording that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    /// All of it.
    pub genome: &'a Genome,
    /// Its report.
    pub report: &'a Report,
    /// Its numbers and what it cost.
    pub summary: &'a Summary,
}

/// What is done with a recording as soon as it has ended, before a command that it started is waited for.
pub type Show<'a> = dyn Fn(Recorded<'_>) -> Result<()> + 'a;

/// Somebody who looks at a recording while it is made.
pub trait Watcher {
    /// Time between two looks.
    fn interval(&self) -> Duration;

    /// Looks at the recording so far.
    fn look(&mut self, genome: &Genome) -> Result<()>;

    /// Whether it goes on: asked many times a second.
    fn goes_on(&mut self) -> Result<bool>;
}

/// Records as planned.
pub fn run(
    plan: &RecordPlan,
    able: &Abilities,
    show: &Show<'_>,
    watcher: Option<&mut (dyn Watcher + '_)>,
    output: &Output,
) -> Result<Outcome> {
    let sources = Sources::of(&plan.sources, &plan.executables)?;
    let facts = host::facts();
    let kernel_release = KernelRelease::parse(&facts.release_text);
    let uuid = uuid::Uuid::new_v4();
    let place = runtimes::place(plan, &uuid)?;
    let environment = runtimes::environment(plan, place.as_ref(), output);
    let mut subject = Subject::open(&plan.target, plan.subprocesses, &environment)?;
    output.detail(&format!("looking for functions of {}", subject.command));
    let mechanism = if plan.runtimes.alone {
        Mechanism::Multi
    } else {
        mechanism(plan, able)?
    };
    privilege::limit(mechanism == Mechanism::Perf).context("giving up capabilities")?;
    // What a probe costs here is measured on code of our own, while the target's files are read.
    let asks_kernel = !plan.dry_run && !plan.runtimes.alone;
    let family = match plan.measurement.mode {
        Mode::Count => Family::Count,
        Mode::Trace | Mode::Sample => Family::Events,
    };
    let (say_ends, ends) = std::sync::mpsc::channel();
    let ends = move || ends.recv().unwrap_or(false);
    let measures = asks_kernel && !subject.is_host;
    let costs =
        measures.then(|| std::thread::spawn(move || calibrate::measure(mechanism, family, ends)));
    let most = most(plan, mechanism);
    let surveys = if plan.runtimes.alone || plan.measurement.mode == Mode::Sample {
        Vec::new()
    } else {
        subject.surveys(plan, kernel_release, most)?
    };
    let mut functions = FunctionTable::new();
    let limits = Limits {
        most,
        pid_filter: subject
            .only_pid()
            .filter(|_| !plan.subprocesses && able.pid_filter.choice),
    };
    let notes: Vec<String> = surveys.iter().flat_map(Survey::notes).collect();
    let probes = probes::requests(surveys, &mut functions, limits);
    // Nobody listens where nothing is measured.
    let _unheard = say_ends.send(probes::with_exits(&probes.requests) > 0);
    let mut unjudged = triggered::check(plan, &subject, &probes, &functions)?;
    unjudged.extend(values::check(plan, &probes, &functions)?);
    if !plan.runtimes.alone && !subject.is_host {
        announce(plan, &probes, output);
    }
    if plan.dry_run {
        return Ok(Outcome::Done);
    }
    // From here on there is something to tidy up: a signal ends the recording as soon as it has begun.
    let mut stopper = Stopper::start()?;
    let outputs = Outputs::create(&plan.outputs)?;
    let costs = costs.and_then(|costs| costs.join().ok()).transpose();
    let costs = costs.unwrap_or_else(|error| {
        output.detail(&format!("the cost of a probe was not measured: {error}"));
        None
    });
    let info = run_info(plan, &subject, (uuid, &facts.release_text), able, costs);
    let start = Start {
        mechanism,
        functions: functions.len(),
        costs: costs.unwrap_or_default(),
        diagnostics: output.level() >= 2,
    };
    let mut live = Live::start(plan, info, start, &subject, outputs)?;
    live.listen(start, output)?;
    if let Some(place) = place {
        live.listen_to_runtimes(runtimes::options(plan, &subject, uuid, place, &functions))?;
    }
    if subject.spawned.is_none() {
        live.enter(&subject, output);
    }
    live.notes(notes);
    for note in unjudged {
        output.warn(&note);
        live.take(Input::Note(note));
    }
    live.attach(probes, output)?;
    if let Some(spawned) = &mut subject.spawned {
        spawned.release()?;
    }
    stopper.begin(plan.duration);
    output.say(&format!(
        "recording {} ({}); Ctrl-C ends it",
        subject.command,
        subject.who()
    ));
    live.until_the_end(&subject, &stopper, watcher)?;
    let known = stopper.signals();
    let stop = || stopper.signals() > known;
    let laid = (&sources, &stop as &lay::Stop<'_>);
    let main = subject.main_pid();
    let finished = live.finish(output, main, plan.outputs.max_loss, laid, show)?;
    let child = wait_for_child(&mut subject, &stopper, output)?;
    finished.write_summary(&plan.outputs, child)?;
    Ok(outcome(child, &finished))
}

fn outcome(child: Option<ChildExit>, finished: &finish::Finished) -> Outcome {
    match child {
        Some(exit) => Outcome::Child(exit.code()),
        None if finished.partial => Outcome::Partial,
        None => Outcome::Done,
    }
}

/// With `-- CMD` our exit code is the command's, so we stay until it ends; after a signal it has a few seconds.
fn wait_for_child(
    subject: &mut Subject,
    stopper: &Stopper,
    output: &Output,
) -> Result<Option<ChildExit>> {
    let Some(spawned) = &mut subject.spawned else {
        return Ok(None);
    };
    if let Some(exit) = spawned.try_wait()? {
        return Ok(Some(exit));
    }
    let pid = spawned.process().pid();
    let interrupted = stopper.signal();
    if let Some(signal) = interrupted {
        // From a terminal the command got it too; a second one does not hurt, and `kill` reached only us.
        spawned.forward(signal).context("passing the signal on")?;
    } else {
        output.say(&format!(
            "the recording has ended, its probes are gone; waiting for pid {pid} to end"
        ));
    }
    let mut waited = Duration::ZERO;
    loop {
        if let Some(exit) = spawned.try_wait()? {
            return Ok(Some(exit));
        }
        let again = stopper.signals() > usize::from(interrupted.is_some());
        if again || (interrupted.is_some() && waited >= CHILD_GRACE) {
            output.warn(&format!("pid {pid} is left running, without probes"));
            return Ok(Some(ChildExit::Signal(2)));
        }
        std::thread::sleep(Duration::from_millis(20));
        waited += Duration::from_millis(20);
    }
}

fn mechanism(plan: &RecordPlan, able: &Abilities) -> Result<Mechanism> {
    let multi = if able.session.choice {
        Mechanism::Session
    } else {
        Mechanism::Multi
    };
    match (plan.measurement.attach, able.attach.choice) {
        (Attach::Perf, _) | (Attach::Auto, AttachBy::Perf) => Ok(Mechanism::Perf),
        (_, AttachBy::Multi) => Ok(multi),
        (Attach::Multi, AttachBy::Perf) => {
            anyhow::bail!(
                "--attach multi cannot be done here: {}; leave it out to attach by perf",
                able.attach.reason
            )
        }
    }
}

fn most(plan: &RecordPlan, mechanism: Mechanism) -> Option<(usize, &'static str)> {
    if let Some(most) = plan.choice.max_probes {
        return Some((most, "--max-probes"));
    }
    if plan.choice.names_functions() {
        return None;
    }
    match (mechanism, plan.measurement.max_overhead) {
        (Mechanism::Perf, _) => Some((
            PERF_PROBES,
            "the limit of perf uprobes; name functions with -f",
        )),
        (_, Overhead::Percent(_)) => Some((
            UNNAMED_PROBES,
            "the limit of a recording without -f; --max-probes raises it",
        )),
        (_, Overhead::Off) => None,
    }
}

fn announce(plan: &RecordPlan, probes: &Probes, output: &Output) {
    let count = probes.requests.len();
    let exits = probes::with_exits(&probes.requests);
    let left_out = probes.bounds.len();
    let mut text = format!("{count} functions to probe, {exits} of them with their exits");
    if left_out > 0 {
        text.push_str(&format!("; {left_out} left out"));
    }
    if plan.dry_run {
        text.push_str(
            "; nothing was attached (--dry-run); `scalpel-ebpf list sites` shows each decision",
        );
    }
    output.say(&text);
}

fn run_info(
    plan: &RecordPlan,
    subject: &Subject,
    (uuid, release): (uuid::Uuid, &str),
    able: &Abilities,
    costs: Option<ProbeCosts>,
) -> RunInfo {
    let uname = rustix::system::uname();
    let hz = if plan.runtimes.alone {
        0
    } else if able.returns_while_sampling.choice {
        plan.measurement.sample_hz
    } else {
        0
    };
    RunInfo {
        uuid: uuid.to_string(),
        pid: subject.main_pid(),
        command: subject.command.clone(),
        host: uname.nodename().to_string_lossy().into_owned(),
        kernel: release.to_owned(),
        started_unix_ns: unix_ns(),
        started: now_mono(),
        mode: mode_word(plan, hz),
        version: env!("CARGO_PKG_VERSION").into(),
        probe_cost_ns: costs.map(|costs| costs.interval_ns()),
        sample_hz: hz,
    }
}

/// What is recorded: words, joined by `+`.
fn mode_word(plan: &RecordPlan, hz: u32) -> String {
    if plan.runtimes.alone {
        return if plan.triggers.is_empty() {
            "probe".into()
        } else {
            "probe+trigger".into()
        };
    }
    let calls = match plan.measurement.mode {
        Mode::Trace => Some("trace"),
        Mode::Count => Some("count"),
        Mode::Sample => None,
    };
    let words: Vec<&str> = calls
        .into_iter()
        .chain((hz > 0).then_some("sample"))
        .chain(plan.measurement.off_cpu.map(|_least| "off-cpu"))
        .chain((!plan.triggers.is_empty()).then_some("trigger"))
        .chain((!plan.returns.is_empty()).then_some("returns"))
        .collect();
    words.join("+")
}

fn unix_ns() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn now_mono() -> MonoTime {
    let now = clock_gettime(ClockId::Monotonic);
    MonoTime(
        u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000
            + u64::try_from(now.tv_nsec).unwrap_or(0),
    )
}

/// Room for some 4,500 waits with 7 KiB of stack each: so many may end while the code of a process is read for the first time.
const WAIT_RING: u32 = 32 << 20;

fn load_options(plan: &RecordPlan, start: Start) -> LoadOptions<'static> {
    use scalpel_common::kernel::settings_flags;
    let mechanism = start.mechanism;
    let mut options = LoadOptions::new(mechanism);
    options.diagnostics = start.diagnostics;
    if let Some(bytes) = plan.measurement.ring_bytes {
        options.call_ring_bytes = bytes;
    }
    // Libraries mapped later may add functions: room for them, within the limit of the object.
    options.functions = u32::try_from(start.functions * 2 + 4096)
        .unwrap_or(u32::MAX)
        .min(options.functions);
    if plan.subprocesses {
        options.flags |= settings_flags::FOLLOW_FORKS;
    }
    if matches!(plan.target, Target::Host(_)) {
        options.flags |= settings_flags::ALL_PROCESSES;
    }
    if plan.measurement.off_cpu.is_some() {
        options.sample_ring_bytes = options.sample_ring_bytes.max(WAIT_RING);
    }
    if plan.measurement.complete && mechanism == Mechanism::Session {
        options.family = Family::Complete;
    }
    if plan.measurement.mode != Mode::Trace {
        // Nothing comes through the rings but the switches that language probes need.
        options.call_ring_bytes = options.call_ring_bytes.min(QUIET_RINGS);
    }
    if plan.measurement.mode == Mode::Count {
        options.family = Family::Count;
    }
    options
}

fn load(plan: &RecordPlan, start: Start, subject: &Subject) -> Result<Kernel> {
    let mut kernel = Kernel::load(&load_options(plan, start))?;
    for process in &subject.processes {
        kernel.watch(process.pid(), process.start_time())?;
    }
    // Of a host whose stacks are sampled, births and programs come by the side band, and no switch matters.
    if !subject.is_host {
        kernel.observe()?;
    }
    Ok(kernel)
}

/// What a note says about a target whose start could not be watched.
fn start_note(target: &Target) -> Option<Input> {
    match target {
        Target::Comm(name) => Some(Input::Note(format!(
            "processes named {name} that started after the recording began are not in it"
        ))),
        Target::Cgroup(_) => Some(Input::Note(
            "processes that come into the cgroup from outside are watched within a tenth of a second; of those that leave it, \
             what they do there is part of the recording"
                .into(),
        )),
        Target::Host(_) => Some(Input::Note(
            "all processes of the host were sampled, threads of the kernel among them; of these, and of nothing else unless \
             --kernel-stacks is given, the kernel's functions are shown"
                .into(),
        )),
        Target::Pids(_) | Target::Command(_) => None,
    }
}
