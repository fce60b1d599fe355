//! `--trigger`: events are put in order before they are logged, and those of slow calls go on.

use std::fs::File;

use anyhow::Result;
use rustc_hash::FxHashSet;

use super::ends::Ends;
use super::live::Live;
use super::probes::Probes;
use super::subject::Subject;
use crate::event::{FuncId, MonoTime};
use crate::function::{ExitStrategy, FunctionTable, UnknownReason};
use crate::image::Pattern;
use crate::input::{Input, RunInfo, Trigger};
use crate::order::{Order, Released};
use crate::plan::{self, ProbeMode, RecordPlan};
use crate::stack::trigger::{Room, Sieve};
use crate::survey::runtimes;

impl Live {
    /// Takes an input, or with triggers what they make of it.
    pub(super) fn take(&mut self, input: Input) {
        let asked = self.values.asks(&input);
        self.sift(input);
        if let Some(func) = asked {
            self.sift(Input::Returns(vec![func]));
        }
    }

    fn sift(&mut self, input: Input) {
        match &mut self.triggered {
            None => self.keep(input),
            Some(triggered) => {
                for input in triggered.take(input) {
                    self.keep(input);
                }
            }
        }
    }

    /// No event comes any more: what the triggers still hold is judged.
    pub(super) fn end_triggers(&mut self, time: MonoTime) {
        if let Some(triggered) = self.triggered.take() {
            for input in triggered.finish(time) {
                self.keep(input);
            }
        }
    }

    /// Logs an input and gives it to the session.
    fn keep(&mut self, input: Input) {
        let failed = self
            .outputs
            .writer()
            .and_then(|writer| writer.write(&input).err());
        self.note_log_failure(failed);
        self.session.feed(input);
    }
}

/// The stream on its way through the triggers.
pub(super) struct Triggered {
    order: Order,
    sieve: Sieve,
    patterns: Vec<Pattern>,
    /// Counts that were told.
    told: Vec<Trigger>,
    /// Functions of probes within the process: they tell the end of what is open when they are switched off.
    tell_ends: FxHashSet<FuncId>,
}

impl Triggered {
    /// The triggers of a plan; nothing without any.
    pub(super) fn of(triggers: &[plan::Trigger], run: &RunInfo) -> Result<Option<Self>> {
        if triggers.is_empty() {
            return Ok(None);
        }
        let told: Vec<Trigger> = triggers.iter().map(begun).collect();
        Ok(Some(Self {
            order: Order::new(),
            sieve: Sieve::new(run.started, told.clone(), Room::default()),
            patterns: triggers.iter().map(compiled).collect::<Result<_>>()?,
            told,
            tell_ends: FxHashSet::default(),
        }))
    }

    /// What an input becomes.
    pub(super) fn take(&mut self, input: Input) -> Vec<Input> {
        let mut out = Vec::new();
        match input {
            Input::Events(events) => self.order.events(&events),
            Input::Sample(sample) => self.order.sample(sample),
            Input::Drained(until) => {
                let sieve = &mut self.sieve;
                self.order
                    .drained(until, &mut |released| feed(sieve, released, &mut out));
                self.tell(&mut out);
                out.push(Input::Drained(until));
            }
            other => {
                self.look(&other);
                let begins = matches!(other, Input::Run(_));
                out.push(other);
                if begins {
                    // A recording that is killed has them too.
                    out.push(Input::Triggers(self.told.clone()));
                }
            }
        }
        out
    }

    /// What goes on unchanged says something of the calls as well.
    fn look(&mut self, input: &Input) {
        match input {
            Input::Function(func, info) if info.unknown != Some(UnknownReason::Unmapped) => {
                let patterns = &self.patterns;
                let is_of = |place: usize| {
                    let pattern = patterns.get(place);
                    pattern.is_some_and(|pattern| pattern.matches_recorded(info))
                };
                self.sieve.function(*func, info, is_of);
                if info.exit == ExitStrategy::Probe {
                    self.tell_ends.insert(*func);
                }
            }
            Input::Control(control) => {
                self.sieve.control(control);
                self.order.control(control);
            }
            Input::Bound(bound) => {
                let since = bound.since;
                if let Some(since) = since.filter(|_| !self.tell_ends.contains(&bound.func)) {
                    self.sieve.probe_gone(bound.func, since);
                }
            }
            _ => {}
        }
    }

    fn tell(&mut self, out: &mut Vec<Input>) {
        if self.sieve.triggers() != self.told {
            self.told = self.sieve.triggers().to_vec();
            out.push(Input::Triggers(self.told.clone()));
        }
    }

    /// What is left: the recording ended at `time`.
    pub(super) fn finish(mut self, time: MonoTime) -> Vec<Input> {
        let mut out = Vec::new();
        let sieve = &mut self.sieve;
        self.order
            .finish(&mut |released| feed(sieve, released, &mut out));
        self.sieve.finish(time, &mut out);
        self.tell(&mut out);
        out
    }
}

fn feed(sieve: &mut Sieve, released: Released<'_>, out: &mut Vec<Input>) {
    match released {
        Released::Events(events) => sieve.events(events, out),
        Released::Gap {
            pid,
            tid,
            lost,
            stream,
        } => sieve.gap(stream, pid, tid, lost, out),
        Released::Sample(sample) => sieve.sample(sample, out),
        Released::ThreadEnded { time, pid, tid } => sieve.thread_ended(time, pid, tid, out),
        Released::Executed { time, pid } => sieve.executed(time, pid, out),
    }
}

fn begun(trigger: &plan::Trigger) -> Trigger {
    Trigger {
        text: trigger.text.clone(),
        threshold_ns: u64::try_from(trigger.threshold.as_nanos()).unwrap_or(u64::MAX),
        ..Trigger::default()
    }
}

fn compiled(trigger: &plan::Trigger) -> Result<Pattern> {
    Ok(Pattern::parse(&trigger.func.to_string())?)
}

/// Refuses a trigger none of whose functions can be judged; says which functions of the others cannot.
pub(super) fn check(
    plan: &RecordPlan,
    subject: &Subject,
    probes: &Probes,
    functions: &FunctionTable,
) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    if plan.runtimes.alone {
        return Ok(notes);
    }
    for trigger in &plan.triggers {
        let ends = Ends {
            option: format!("--trigger {}", trigger.text),
            pattern: compiled(trigger)?,
            unseen: "how long a call lasts",
            leaves_out: "does not judge",
            exits: plan.measurement.exits,
            may_come: awaits_a_language(plan, subject),
        };
        notes.extend(ends.check(probes, functions)?);
    }
    Ok(notes)
}

/// Whether a function of that name may still be one of a language's that a probe of ours tells of.
fn awaits_a_language(plan: &RecordPlan, subject: &Subject) -> bool {
    if plan.runtimes.mode == ProbeMode::Off {
        return false;
    }
    match &subject.spawned {
        Some(spawned) => {
            let path = spawned.main_program();
            let file = File::open(path).ok();
            let runtimes = file.and_then(|file| runtimes::of_program(&file, path));
            runtimes.is_some_and(|runtimes| !runtimes.is_empty())
        }
        None => subject
            .processes
            .iter()
            .any(|process| runtimes::of(process).is_ok_and(|found| !found.is_empty())),
    }
}
