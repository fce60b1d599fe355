//! Single calls of a stream, which is read twice: first to count what would go out, then to write it.

use std::collections::BTreeMap;
use std::io;

use anyhow::{Context, bail};
use serde_json::json;

use super::super::moments::{Passage, Seen, pass};
use super::file::Destination;
use crate::cli::FormatArg;
use crate::event::{Event, Kind};
use crate::exit::Outcome;
use crate::function::FunctionTable;
use crate::genome::loss::Losses;
use crate::input::{Input, Loss, RunInfo};
use crate::log::Ending;
use crate::output::Output;
use crate::plan::ExportPlan;
use crate::sink::export::calls::chrome::Chrome;
use crate::sink::export::calls::evented::Evented;
use crate::sink::export::calls::perfetto::Perfetto;
use crate::sink::export::calls::{Moment, ThreadKey, What};
use crate::sink::head::where_it_ran;

pub(super) fn run(plan: &ExportPlan, output: &Output) -> anyhow::Result<Outcome> {
    let survey = Survey::of(plan, output)?;
    survey.refuse(plan)?;
    let mut destination = Destination::open(plan.output.as_deref())?;
    write(plan, &survey, output, destination.writer())?;
    super::finish(plan, destination, &[], output)?;
    Ok(survey.judged(plan, output))
}

/// What the first reading found.
struct Survey {
    run: RunInfo,
    counted: Counted,
    lost: u64,
    strays: u64,
    ending: Ending,
}

#[derive(Default)]
struct Counted {
    /// Calls of the part.
    calls: u64,
    threads: BTreeMap<ThreadKey, String>,
    names: BTreeMap<ThreadKey, String>,
    /// Calls arrive as one record at their end.
    completes: bool,
    /// Events of the whole recording.
    events: u64,
    gaps: u64,
    losses: Vec<Loss>,
}

impl Counted {
    fn take(&mut self, seen: &Seen<'_>) {
        match seen {
            Seen::Moment(moment) => {
                self.threads.entry(moment.thread).or_default();
                let begins = matches!(moment.what, What::Begin { .. } | What::Entry { .. });
                self.calls += u64::from(begins);
            }
            Seen::Gap(lost) => self.gaps = self.gaps.saturating_add(*lost),
            Seen::Input(input) => self.input(input),
        }
    }

    fn input(&mut self, input: &Input) {
        match input {
            Input::Events(events) => {
                self.events += events.len() as u64;
                self.completes |= events.iter().any(is_complete);
            }
            // Counters stand: the last reading is the largest.
            Input::Losses(counters) => self.losses.clone_from(counters),
            Input::ThreadName(pid, tid, name) => {
                self.names.insert((pid.0, tid.0), name.clone());
            }
            _ => {}
        }
    }
}

impl Survey {
    fn of(plan: &ExportPlan, output: &Output) -> anyhow::Result<Self> {
        let mut counted = Counted::default();
        let passage = pass(&plan.file, plan.calls, "reading", output, &mut |seen, _| {
            counted.take(&seen);
            Ok(())
        })?;
        for (thread, name) in &mut counted.threads {
            *name = counted.names.remove(thread).unwrap_or_default();
        }
        let run = passage.run.with_context(|| {
            let path = plan.file.display();
            format!("{path} says nothing about its recording: it was cut before its first record")
        })?;
        Ok(Self {
            run,
            lost: counted.gaps.max(Losses::of(&counted.losses).events()),
            counted,
            strays: passage.strays,
            ending: passage.ending,
        })
    }

    /// Nothing is written that cannot be read afterwards.
    fn refuse(&self, plan: &ExportPlan) -> anyhow::Result<()> {
        if self.counted.completes {
            bail!(
                "{} has whole calls at their ends (record --complete), which are not exported one by one: export it in an added-up format (pprof, svg), or record with beginnings and ends",
                plan.file.display()
            );
        }
        let (most, reader) = limit(plan.format);
        let most = plan.max_calls.unwrap_or(most);
        if most > 0 && self.counted.calls > most {
            bail!(
                "{} calls, and {reader} opens about {most}: choose a part with --from, --to or --thread, an added-up format (pprof, svg), or raise --max-calls",
                self.counted.calls
            );
        }
        if self.counted.calls == 0 {
            bail!(
                "no call in this part of the recording: widen --from and --to, or choose another --thread; `scalpel-ebpf replay` shows what there is"
            );
        }
        Ok(())
    }

    fn judged(&self, plan: &ExportPlan, output: &Output) -> Outcome {
        if self.strays > 0 {
            output.warn(&format!(
                "{} ends without a beginning are left out: their calls began before the recording, or in a loss",
                self.strays
            ));
        }
        let of = self.counted.events.saturating_add(self.lost);
        let lost_share = self.lost as f64 / of.max(1) as f64;
        match &self.ending {
            Ending::Cut(cut) => output.warn(&format!(
                "the export is partial: the stream is cut at byte {}: {}",
                cut.at, cut.reason
            )),
            _ if lost_share > plan.max_loss => output.warn(&format!(
                "the export is partial: {:.2} % of the recording's events were lost",
                lost_share * 100.0
            )),
            _ => return Outcome::Done,
        }
        Outcome::Partial
    }

    fn title(&self) -> String {
        let lost = match self.lost {
            0 => String::new(),
            lost => format!(
                ": {lost} of {} events were lost",
                self.counted.events.saturating_add(lost)
            ),
        };
        format!(
            "{} ({}){lost}",
            self.run.command,
            where_it_ran(self.run.pid.0, &self.run.host)
        )
    }

    fn thread_name(&self, thread: ThreadKey) -> String {
        match self.counted.threads.get(&thread) {
            Some(name) if !name.is_empty() => format!("{name} ({})", thread.1),
            _ => thread.1.to_string(),
        }
    }
}

/// Most calls that the readers of a format open, as far as that is known: docs/exports.md.
const fn limit(format: FormatArg) -> (u64, &'static str) {
    match format {
        FormatArg::Speedscope => (2_000_000, "speedscope"),
        FormatArg::Chrome => (3_000_000, "a browser"),
        _ => (10_000_000, "Perfetto's page"),
    }
}

const fn is_complete(event: &Event) -> bool {
    event.kind == Kind::Complete as u8
}

fn write(
    plan: &ExportPlan,
    survey: &Survey,
    output: &Output,
    out: &mut dyn io::Write,
) -> anyhow::Result<()> {
    let run = &survey.run;
    match plan.format {
        FormatArg::Chrome => {
            let about = json!({
                "recording": survey.title(), "uuid": run.uuid, "version": run.version,
                "started_unix_ns": run.started_unix_ns.to_string(), "started_ns": run.started.0.to_string(),
                "lost_events": survey.lost, "clock": "CLOCK_MONOTONIC, from the start of the recording",
            });
            let mut chrome = Chrome::begin(out, run.started, &about)?;
            for thread in survey.counted.threads.keys() {
                chrome.thread(*thread, &survey.thread_name(*thread))?;
            }
            moments(plan, output, &mut |moment, functions| {
                chrome.moment(moment, functions)
            })?;
            chrome.finish()?;
        }
        FormatArg::Perfetto => {
            let mut trace = Perfetto::begin(out, run.started, run.pid.0, &survey.title())?;
            for thread in survey.counted.threads.keys() {
                trace.thread(*thread, &survey.thread_name(*thread))?;
            }
            moments(plan, output, &mut |moment, functions| {
                trace.moment(moment, functions)
            })?;
        }
        _ => evented(plan, survey, output, out)?,
    }
    Ok(())
}

/// Reads the stream once more, for its moments.
fn moments(
    plan: &ExportPlan,
    output: &Output,
    take: &mut dyn FnMut(&Moment, &FunctionTable) -> io::Result<()>,
) -> anyhow::Result<Passage> {
    pass(
        &plan.file,
        plan.calls,
        "writing",
        output,
        &mut |seen, functions| match seen {
            Seen::Moment(moment) => take(moment, functions),
            _ => Ok(()),
        },
    )
}

fn evented(
    plan: &ExportPlan,
    survey: &Survey,
    output: &Output,
    out: &mut dyn io::Write,
) -> anyhow::Result<()> {
    let mut evented = Evented::new();
    let passage = moments(plan, output, &mut |moment, _| {
        evented.moment(moment);
        Ok(())
    })?;
    let name = |thread| survey.thread_name(thread);
    evented.write(
        &survey.title(),
        survey.run.started,
        &passage.functions,
        &name,
        out,
    )?;
    Ok(())
}
