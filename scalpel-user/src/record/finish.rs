//! The end of a recording: probes off, addresses named, genome written, summary said.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use scalpel_common::kernel::LossClass;

use super::cost::{self, own_cpu_ns};
use super::live::Live;
use super::tracer::Tracer;
use super::{Recorded, Show, now_mono};
use crate::event::{FuncId, Pid};
use crate::function::{
    ExitStrategy, FunctionInfo, FunctionTable, Language, SourcePlace, UnknownReason,
};
use crate::genome::Genome;
use crate::input::{Inlined, Input, Loss, Symbol};
use crate::kernel::attach::DetachReport;
use crate::kernel::ring::PollerReport;
use crate::lay::{self, Sources};
use crate::output::{Output, write_private};
use crate::plan;
use crate::report::Report;
use crate::report::summary::{Cost, Overhead, Summary};
use crate::sink;
use crate::target::ChildExit;

/// Addresses are named in batches, so that progress can be shown.
const NAMES_AT_ONCE: usize = 512;

/// A recording that is written.
pub(super) struct Finished {
    report: Report,
    summary: Summary,
    /// Part of it is missing.
    pub(super) partial: bool,
}

impl Live {
    /// Ends the recording and writes everything. The session's loop is over.
    pub(super) fn finish(
        mut self,
        output: &Output,
        main: Pid,
        max_loss: f64,
        (sources, stop): (&Sources, &lay::Stop<'_>),
        show: &Show<'_>,
    ) -> Result<Finished> {
        self.names.keep_perf_maps();
        self.end_waits();
        let ended = now_mono();
        let (detached, polled) = self.detach(output);
        self.count_last(main);
        self.account(&detached, polled);
        self.end_host();
        self.note_unwatched();
        self.end_triggers(ended);
        self.name_addresses(output);
        self.find_lines();
        self.take(Input::End(ended));
        let failed = self.outputs.close_log().err();
        self.note_log_failure(failed);
        let cost = self.cost();
        let log = self.outputs.log_path().to_owned();
        let failure = self.log_failure.take();
        if let Some(failure) = &failure {
            self.session.feed(Input::Note(format!(
                "the recording ended early, when its stream could not be written any more: {failure}"
            )));
        }
        let mut genome = self.session.finish()?;
        if !sources.is_empty() {
            output.detail("reading the sources");
            lay::lay(&mut genome, sources, &self.outputs.kept(), stop, output);
        }
        let outputs = &self.outputs;
        // The report is made while the file is written: of very many contexts both take their time.
        let (published, report) = std::thread::scope(|threads| {
            let published = threads.spawn(|| outputs.publish(&genome));
            let report = Report::of(&genome, max_loss);
            let published = published.join();
            let lost = |_panic| Err(anyhow::anyhow!("the thread that wrote it ended"));
            (published.unwrap_or_else(lost), report)
        });
        let published = published.with_context(|| {
            let kept = match &failure {
                None => "but nothing is lost: the whole stream",
                Some(_) => "and the stream could not be written to its end either: its first part",
            };
            format!(
                "the genome could not be written, {kept} is in {}; `scalpel-ebpf report` reads it",
                log.display()
            )
        });
        let summary = Summary {
            clock_error_ns: self.clock_error_ns,
            ..Summary::of(&genome, &report, cost)
        };
        // What was measured is said, whatever became of the files.
        show(Recorded {
            genome: &genome,
            report: &report,
            summary: &summary,
        })?;
        if let Some(bytes) = published? {
            output.data(bytes)?;
        }
        if let Some(failure) = &failure {
            bail!(
                "the stream could not be written to its end: {failure}; what was recorded until then is in the genome"
            );
        }
        Ok(Finished {
            partial: genome.is_partial(max_loss),
            report,
            summary,
        })
    }

    /// The recording as if it ended now.
    pub(super) fn so_far(&mut self) -> Result<Genome> {
        self.count(|counted| Some(counted.now()));
        let addresses = self.session.addresses();
        self.name(&addresses);
        Ok(self.session.so_far(now_mono())?)
    }

    /// What waits is told as if it went on now.
    fn end_waits(&mut self) {
        let told = self.tracer.as_mut().map_or(Ok(()), Tracer::end_waits);
        if let Err(error) = told {
            self.take(Input::Note(format!(
                "waits that had not ended when the recording did are not in it: {error:#}"
            )));
        }
    }

    /// Takes the probes off and drains what is left.
    fn detach(&mut self, output: &Output) -> (DetachReport, PollerReport) {
        self.cpu.look_at_all();
        // It may have been held up until the very moment in which it was told to end.
        for note in self.tracer.as_ref().map(Tracer::lapses).unwrap_or_default() {
            self.take(Input::Note(note));
        }
        let (detached, poller) = match &mut self.tracer {
            Some(tracer) => tracer.detach(output),
            None => (DetachReport::default(), None),
        };
        // Both may be waiting for room in the channel: it is emptied while they end. The kernel's side ends first, as the
        // probes' Drained is the last to come.
        let polled = poller.map(|poller| self.while_it_ends(move || poller.finish()));
        if let Some(runtimes) = self.runtimes.take() {
            let report = self.while_it_ends(move || runtimes.finish());
            self.tell_of_runtimes(&report, output);
        }
        self.send = None;
        let polled = polled.unwrap_or_default();
        self.side_band_lost = polled.side_band_lost;
        (detached, polled)
    }

    fn while_it_ends<T: Default + Send + 'static>(
        &mut self,
        end: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let ending = std::thread::spawn(end);
        while !ending.is_finished() {
            if let Ok((feed, input)) = self.inputs.recv_timeout(Duration::from_millis(5)) {
                self.receive(feed, input);
            }
        }
        let rest: Vec<_> = self.inputs.try_iter().collect();
        for (feed, input) in rest {
            self.receive(feed, input);
        }
        ending.join().unwrap_or_default()
    }

    /// Losses that only show at the end.
    fn account(&mut self, detached: &DetachReport, polled: PollerReport) {
        if detached.recursion_misses > 0 {
            let loss = Loss {
                class: LossClass::RecursionMiss,
                cpu: None,
                func: None,
                count: detached.recursion_misses,
            };
            self.take(Input::Losses(vec![loss]));
        }
        if polled.bad_records > 0 {
            self.take(Input::Note(format!(
                "{} records of the rings made no sense and were dropped",
                polled.bad_records
            )));
        }
    }

    /// Names sampled addresses and unprobed callers, once, and logs the names: a replay needs no files.
    fn name_addresses(&mut self, output: &Output) {
        let addresses = self.session.settle();
        let bar = output.progress("naming", addresses.len() as u64);
        self.name_with(&addresses, &mut |named| bar.inc(named));
        bar.finish_and_clear();
    }

    /// Names addresses, without a word about it.
    pub(super) fn name(&mut self, addresses: &[(Pid, u64)]) {
        self.name_with(addresses, &mut |_named| {});
    }

    fn name_with(&mut self, addresses: &[(Pid, u64)], named: &mut dyn FnMut(u64)) {
        if addresses.is_empty() {
            return;
        }
        self.names.announce(addresses);
        let mut table = self.session.functions().clone();
        for of_one in addresses.chunk_by(|a, b| a.0 == b.0) {
            let Some(&(pid, _)) = of_one.first() else {
                continue;
            };
            for batch in of_one.chunks(NAMES_AT_ONCE) {
                let addresses: Vec<u64> = batch.iter().map(|&(_, address)| address).collect();
                self.name_batch(pid, &addresses, &mut table);
                named(batch.len() as u64);
            }
        }
    }

    fn name_batch(&mut self, pid: Pid, addresses: &[u64], table: &mut FunctionTable) {
        let named = self.names.resolve(pid, addresses);
        let mut symbols = Vec::with_capacity(addresses.len());
        let mut inlined = Vec::new();
        for (&address, named) in addresses.iter().zip(named) {
            let info = match named {
                Ok(info) => (*info).clone(),
                Err(reason) => nameless(reason),
            };
            let func = self.define(info, table);
            symbols.push(Symbol {
                pid,
                address,
                func: Ok(func),
            });
            let functions: Vec<FuncId> = self
                .names
                .inlined(pid, address)
                .into_iter()
                .map(|info| self.define((*info).clone(), table))
                .collect();
            if !functions.is_empty() {
                inlined.push(Inlined {
                    pid,
                    address,
                    functions,
                });
            }
        }
        self.take(Input::Symbols(symbols));
        if !inlined.is_empty() {
            self.take(Input::Inlined(inlined));
        }
    }

    fn define(&mut self, info: FunctionInfo, table: &mut FunctionTable) -> FuncId {
        let known = table.len();
        let func = table.insert(info);
        if table.len() > known
            && let Some(info) = table.get(func)
        {
            self.take(Input::Function(func, Arc::clone(info)));
        }
        func
    }

    /// Source lines of the functions that were probed or left out: of those that never ran too, for coverage tells where
    /// they stand.
    fn find_lines(&mut self) {
        if self.tracer.is_none() {
            return;
        }
        let without = |(_, info): &(FuncId, &Arc<FunctionInfo>)| {
            info.file.is_none() && info.exit != ExitStrategy::Probe && info.path.starts_with('/')
        };
        let functions = self.session.functions().iter().filter(without);
        let mut functions: Vec<(FuncId, Arc<FunctionInfo>)> =
            functions.map(|(id, info)| (id, Arc::clone(info))).collect();
        functions.sort_by(|(_, a), (_, b)| a.path.cmp(&b.path));
        for of_one in functions.chunk_by(|(_, a), (_, b)| a.path == b.path) {
            let offsets: Vec<u64> = of_one.iter().map(|(_, info)| info.file_offset).collect();
            let Some((_, first)) = of_one.first() else {
                continue;
            };
            let lines = self.names.lines_of(&first.path, &offsets);
            for ((id, info), line) in of_one.iter().zip(lines) {
                let Some((file, line)) = line else { continue };
                let info = FunctionInfo {
                    file: Some(file),
                    line,
                    ..FunctionInfo::clone(info)
                };
                self.take(Input::Function(*id, info.into()));
            }
        }
    }

    /// What the recording cost: hits times the calibrated cost of each, and what the other programs ran, against the CPU time
    /// of the target.
    fn cost(&self) -> Cost {
        let used = self.cpu.used_ns();
        let (low, high) = self.tracer.as_ref().map_or((0, 0), |tracer| {
            cost::probes_ns(&tracer.requests, &self.costs, |func| tracer.hits_of(func))
        });
        let programs_ns = self
            .tracer
            .as_ref()
            .and_then(|tracer| tracer.programs_ns(tracer.elapsed()));
        // An estimate cannot be more than everything.
        let whole = |ns: u64| ns.saturating_add(programs_ns.unwrap_or(0)) as f64;
        let share = |ns: u64| (whole(ns) / used as f64).min(1.0);
        let is_known = used > 0 && high > 0;
        Cost {
            programs_ns,
            target_share: is_known.then(|| (share(low), share(high))),
            collector_cpu_ns: Some(own_cpu_ns()),
        }
    }
}

/// All addresses without a name for one reason are one line of every table.
fn nameless(reason: UnknownReason) -> FunctionInfo {
    FunctionInfo {
        name: format!("<{}>", reason.word()),
        raw_name: String::new(),
        module: "?".into(),
        path: String::new(),
        file: None,
        line: None,
        language: Language::Native,
        build_id: String::new(),
        file_offset: 0,
        size: 0,
        site_delta: 0,
        exit: ExitStrategy::None,
        exit_reason: String::new(),
        unknown: Some(reason),
        ordinal: 0,
        place: SourcePlace::default(),
    }
}

/// Says what a recording ends with.
pub fn say_summary(recorded: Recorded<'_>, output: &Output) -> Result<()> {
    let stream = output.stderr();
    let page = sink::Page::new(stream.width, stream.color);
    let mut text = Vec::new();
    sink::summary::write(recorded.summary, &recorded.report.doubts, page, &mut text)?;
    output.say(String::from_utf8_lossy(&text).trim_end());
    Ok(())
}

impl Finished {
    /// Writes the summary as JSON, if it was asked for: with `-- CMD` the exit code is the command's, this tells the rest.
    pub(super) fn write_summary(
        &self,
        outputs: &plan::Outputs,
        child: Option<ChildExit>,
    ) -> Result<()> {
        let Some(path) = &outputs.summary else {
            return Ok(());
        };
        let summary = &self.summary;
        let (ran, never_ran, not_watched) = summary.functions;
        let (code, signal) = match child {
            Some(ChildExit::Code(code)) => (Some(code), None),
            Some(ChildExit::Signal(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        let json = serde_json::json!({
            "schema": "scalpel.summary/1",
            "pid": summary.pid,
            "command": summary.command,
            "child": {"code": code, "signal": signal},
            "partial": self.partial,
            "duration_ns": summary.duration_ns,
            "events": summary.events,
            "samples": summary.samples,
            "lost": summary.lost.0,
            "lost_share": summary.lost.1,
            "functions": {"ran": ran, "never_ran": never_ran, "not_watched": not_watched, "switched_off": summary.bounded},
            "edges": summary.edges,
            "threads": summary.threads,
            "unknown_share": self.report.unknown_share,
            "match_rate": self.report.match_rate,
            "static": summary.known,
            "triggers": summary.triggers,
            "overhead": Overhead::from(summary.cost),
            "clock_error_ns": summary.clock_error_ns,
            "doubts": self.report.doubts,
        });
        let mut bytes = serde_json::to_vec_pretty(&json)?;
        bytes.push(b'\n');
        write_private(path, &bytes)?;
        Ok(())
    }
}
