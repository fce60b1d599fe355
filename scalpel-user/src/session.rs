//! The only wiring of the stages: every input of a recording, live or replayed, goes through [`Session::feed`].
//!
//! Pure: whoever drives it has the clock, the files and the processes.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use scalpel_common::kernel::LossClass;
use scalpel_common::segment::{note_kind, unseen};

use crate::decode::Census;
use crate::event::{FuncId, MonoTime, Pid, Source};
use crate::function::{ExitStrategy, FunctionInfo, FunctionTable, UnknownReason};
use crate::genome::assemble::Assembly;
use crate::genome::unseen::Unseen;
use crate::genome::{Counter, Genome};
use crate::input::{Input, Loss, ProbeWord, RunInfo, Symbol};
use crate::order::{Order, Released, Stream};
use crate::stack::{Builder, Options};

/// The stream says nothing about the run it belongs to.
#[derive(Debug, thiserror::Error)]
#[error("the recording is empty: it was cut before its first record was written")]
pub struct NoRun;

/// A recording on its way to a genome.
#[derive(Clone, Debug)]
pub struct Session {
    run: Option<RunInfo>,
    functions: FunctionTable,
    order: Order,
    builder: Builder,
    assembly: Assembly,
    census: Census,
    symbols: FxHashMap<(Pid, u64), FuncId>,
    recursion_misses: u64,
    heard: MonoTime,
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}

impl Session {
    /// Nothing heard yet.
    pub fn new() -> Self {
        Self {
            run: None,
            functions: FunctionTable::new(),
            order: Order::new(),
            builder: Builder::new(Options::default()),
            assembly: Assembly::new(),
            census: Census::default(),
            symbols: FxHashMap::default(),
            recursion_misses: 0,
            heard: MonoTime(0),
        }
    }

    /// Takes one input.
    pub fn feed(&mut self, input: Input) {
        match input {
            Input::Run(run) => self.begin(run),
            Input::Function(func, info) => self.define(func, info),
            Input::Events(events) => {
                self.census.note(&events);
                self.heard = self
                    .heard
                    .max(MonoTime(events.last().map_or(0, |event| event.time)));
                self.order.events(&events);
            }
            Input::Counts(counts) => {
                self.heard = self.heard.max(counts.until);
                self.builder.counts(&counts);
            }
            Input::Sample(sample) => self.order.sample(sample),
            Input::Control(control) => {
                self.heard = self.heard.max(control.time());
                self.builder.control(&control);
                self.order.control(&control);
            }
            Input::Drained(until) => {
                self.heard = self.heard.max(until);
                let builder = &mut self.builder;
                self.order
                    .drained(until, &mut |released| apply(builder, released));
            }
            Input::Losses(losses) => self.losses(&losses),
            Input::Bound(bound) => {
                // Whoever is switched off within the process still tells the end of what is open.
                let told = |info: &FunctionInfo| info.exit == ExitStrategy::Probe;
                let tells_ends = self
                    .functions
                    .get(bound.func)
                    .is_some_and(|info| told(info));
                if let Some(since) = bound.since.filter(|_| !tells_ends) {
                    self.builder.probe_gone(bound.func, since);
                }
                self.assembly.bound(bound);
            }
            Input::Symbols(symbols) => self.name(symbols),
            Input::Inlined(inlined) => self.builder.inlined(inlined),
            Input::ThreadName(pid, tid, name) => self.builder.thread_name(pid, tid, &name),
            Input::Note(note) => self.assembly.note(note),
            Input::End(time) => self.assembly.ended(time),
            Input::Probe(word) => self.word(&word),
            Input::Triggers(triggers) => self.assembly.triggers(triggers),
            Input::Kept(call) => self.assembly.kept(call),
            Input::Returns(funcs) => {
                let builder = &mut self.builder;
                funcs.iter().for_each(|func| builder.ask_returns(*func));
            }
        }
    }

    /// The functions defined so far.
    pub const fn functions(&self) -> &FunctionTable {
        &self.functions
    }

    /// No event comes any more: releases all, and tells which addresses have to be named before [`Session::finish`].
    pub fn settle(&mut self) -> Vec<(Pid, u64)> {
        let builder = &mut self.builder;
        self.order.finish(&mut |released| apply(builder, released));
        self.addresses()
    }

    /// Which addresses have no name yet, of what is released.
    pub fn addresses(&self) -> Vec<(Pid, u64)> {
        let nameless = |address: &(Pid, u64)| !self.symbols.contains_key(address);
        let addresses = self.builder.addresses().into_iter();
        addresses.filter(nameless).collect()
    }

    /// The genome as if the recording ended at `time`. It goes on as if nobody had asked.
    pub fn so_far(&self, time: MonoTime) -> Result<Genome, NoRun> {
        let mut copy = self.clone();
        copy.feed(Input::End(time));
        copy.finish()
    }

    /// The genome of everything heard.
    pub fn finish(mut self) -> Result<Genome, NoRun> {
        self.settle();
        let run = self.run.take().ok_or(NoRun)?;
        self.assembly.heard(self.heard.max(run.started));
        let counters = [
            (Counter::ZeroIds, self.census.zero_func),
            (
                Counter::DecodeFaults,
                self.census.bad_records + self.census.unknown_kind + self.census.unknown_source,
            ),
            (Counter::LateEvents, self.order.late()),
            (Counter::RecursionMisses, self.recursion_misses),
        ];
        for (counter, count) in counters {
            self.assembly.count(counter, count);
        }
        let symbols = self.symbols;
        let end = self.heard.max(run.started);
        let tree = self.builder.finish(end, &mut |pid, address| {
            symbols.get(&(pid, address)).copied()
        });
        Ok(self.assembly.finish(run, self.functions, tree))
    }

    fn begin(&mut self, run: RunInfo) {
        self.heard = self.heard.max(run.started);
        self.builder = Builder::new(Options {
            start: run.started,
            ..Options::default()
        });
        for (probe, spots) in blind_spots(&run) {
            for spot in spots {
                self.assembly.blind_spot(probe, spot);
            }
        }
        self.run = Some(run);
    }

    fn define(&mut self, func: FuncId, info: Arc<FunctionInfo>) {
        if info.unknown == Some(UnknownReason::Unmapped) {
            self.builder.stands_for_no_code(func);
        } else {
            self.builder.function(func, &info);
        }
        if !self.functions.define(func, info) {
            self.census.bad_record();
        }
    }

    fn losses(&mut self, losses: &[Loss]) {
        let missed = losses
            .iter()
            .filter(|loss| loss.class == LossClass::RecursionMiss);
        self.recursion_misses = missed
            .fold(0u64, |sum, loss| sum.saturating_add(loss.count))
            .max(self.recursion_misses);
        self.assembly.losses(losses);
    }

    /// What a probe says about itself: blind spots are kept as such, runtimes as what the run was watched by, and the rest is
    /// told to the reader.
    fn word(&mut self, word: &ProbeWord) {
        self.heard = self.heard.max(word.time);
        let probe = Source::from_u8(word.source).map_or("probe", source_word);
        let text = &word.text;
        match word.kind {
            note_kind::BLIND_SPOT => self.assembly.blind_spot(probe, text),
            note_kind::RUNTIME => self.watched_by(probe),
            note_kind::EXCLUDED => self.assembly.blind_spot(
                probe,
                &format!("{} functions were left out: {text}", word.value),
            ),
            note_kind::UNSEEN => self
                .assembly
                .blind_spot(probe, &Unseen::told(text, word.value).text()),
            note_kind::GAP => {
                let meanwhile = Unseen::told("", unseen::UNWATCHED);
                self.assembly.blind_spot(probe, &meanwhile.text());
                let until = if word.value == 0 { "the end" } else { "later" };
                self.assembly.note(format!(
                    "process {} ({probe}): nothing was recorded for a while, until {until}: {text}",
                    word.pid
                ));
            }
            _ => self
                .assembly
                .note(format!("process {} ({probe}): {text}", word.pid)),
        }
    }

    fn watched_by(&mut self, probe: &str) {
        if let Some(run) = &mut self.run
            && !run.mode.split('+').any(|part| part == probe)
        {
            run.mode = format!("{}+{probe}", run.mode);
        }
    }

    fn name(&mut self, symbols: Vec<Symbol>) {
        for symbol in symbols {
            if let Ok(func) = symbol.func {
                self.symbols.insert((symbol.pid, symbol.address), func);
            }
        }
    }
}

fn apply(builder: &mut Builder, released: Released<'_>) {
    match released {
        Released::Events(events) => builder.events(events),
        Released::Gap {
            stream: Stream::Switches,
            pid,
            tid,
            ..
        } => builder.switches_lost(pid, tid),
        Released::Gap { pid, tid, lost, .. } => builder.gap(pid, tid, lost),
        Released::Sample(sample) => builder.sample(&sample),
        Released::ThreadEnded { time, pid, tid } => builder.thread_ended(time, pid, tid),
        Released::Executed { time, pid } => builder.executed(time, pid),
    }
}

/// Lower-case word of a source.
const fn source_word(source: Source) -> &'static str {
    match source {
        Source::Uprobe => "uprobe",
        Source::Sched => "sched",
        Source::Sampler => "sampler",
        Source::Python => "python",
        Source::Node => "node",
        Source::Ruby => "ruby",
        Source::Php => "php",
        Source::Java => "java",
        Source::Go => "go",
        Source::Rust => "rust",
        Source::Dotnet => "dotnet",
        Source::Lua => "lua",
        Source::C => "c",
    }
}

/// What the mechanisms in use cannot see, so that *did not run* and *could not be seen* stay apart.
fn blind_spots(run: &RunInfo) -> Vec<(&'static str, &'static [&'static str])> {
    let mut spots: Vec<(&'static str, &'static [&'static str])> = Vec::new();
    let does = |what: &str| run.mode.split('+').any(|part| part == what);
    if does("trace") || does("count") {
        spots.push((
            "uprobe",
            &[
                "inlined functions have no entry of their own",
                "code without a file behind it (JIT, generated) cannot be probed",
                "calls that began before the probes were attached are not counted",
            ],
        ));
    }
    if does("count") {
        spots.push((
            "count",
            &[
                "calls are added up by call edge: which call led to which, and on which thread, is not kept",
                "a function entered by a jump counts as called by its caller's caller, unless the end of the function that jumped is watched",
            ],
        ));
    }
    if does("returns") {
        spots.push((
            "returns",
            &[
                "what a call returned is the register RAX as it left: whether the function returns anything, and how much of \
                 the register that is, is not known; results in other registers or in memory are not seen",
                "calls that began before the probes were attached, were left by an exception or a jump, or whose ends were not \
                 seen have no value",
            ],
        ));
    }
    if does("trigger") {
        spots.push((
            "trigger",
            &[
                "what ran outside the kept calls is not in the recording: counts and times are those of the kept calls alone",
                "short waits inside the kept calls are not told one by one, nor as their sum",
            ],
        ));
    }
    if does("off-cpu") {
        spots.push((
            "off-cpu",
            &[
                "a wait that began before the recording has no stack and is not counted",
                "short waits are a sum by thread, without a stack",
                "frames above the innermost 7 KiB of a stack, and callers of generated code without frame pointers, are not seen",
            ],
        ));
    }
    if run.sample_hz > 0 {
        spots.push((
            "sampler",
            &[
                "a function that runs for less than a sampling period may never be hit",
                "code without frame pointers hides its callers",
            ],
        ));
    }
    spots
}
