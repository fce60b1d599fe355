//! Streams whose truth is known to the call, written as a recording would: recursion, a loss, a thread that suspends its
//! calls, names that are hard to write.

use std::path::Path;

use anyhow::Context as _;
use scalpel_common::kernel::LossClass;
use scalpel_user::event::{
    CPU_NOT_MEASURED, Event, FuncId, Kind, MonoTime, Pid, Sample, Source, Tid, flags,
};
use scalpel_user::function::{ExitStrategy, FunctionInfo, Language, SourcePlace};
use scalpel_user::input::{Inlined, Input, Loss, RunInfo, Symbol};
use scalpel_user::log::Writer;

pub(crate) const PID: u32 = 4242;
const START: u64 = 1_000_000_000;

/// Functions by their numbers.
pub(crate) const MAIN: u32 = 1;
pub(crate) const FIB: u32 = 2;
pub(crate) const EVEN: u32 = 3;
pub(crate) const ODD: u32 = 4;
pub(crate) const ENTRIES: u32 = 5;
pub(crate) const HARD: u32 = 6;
const NEVER: u32 = 7;
pub(crate) const TASK: u32 = 8;
pub(crate) const TWIN: u32 = 9;
pub(crate) const OTHER_TWIN: u32 = 10;

/// A stream that is being made: each thread has its own numbers and clock.
pub(crate) struct Made {
    writer: Writer,
    threads: Vec<Track>,
    lost: u64,
}

struct Track {
    tid: u32,
    time: u64,
    seq: u32,
    depth: u64,
    events: Vec<Event>,
}

impl Made {
    /// Begins a stream.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        Self::create_with(path, functions())
    }

    /// Begins a stream with these functions, numbered from 1.
    fn create_with(path: &Path, functions: Vec<FunctionInfo>) -> anyhow::Result<Self> {
        let mut made = Self {
            writer: Writer::create(path)?,
            threads: Vec::new(),
            lost: 0,
        };
        made.writer.write(&Input::Run(run()))?;
        for (number, info) in (1..).zip(functions) {
            let id = FuncId::new(number).context("functions are numbered from 1")?;
            made.writer.write(&Input::Function(id, info.into()))?;
        }
        Ok(made)
    }

    /// Adds a thread and gives its place.
    pub(crate) fn thread(&mut self, tid: u32) -> usize {
        self.threads.push(Track {
            tid,
            time: START + 1_000,
            seq: 0,
            depth: 0,
            events: Vec::new(),
        });
        self.threads.len() - 1
    }

    fn event(&mut self, thread: usize, kind: Kind, func: u32, fields: Event) {
        let Some(track) = self.threads.get_mut(thread) else {
            return;
        };
        track.time += 1_000;
        track.seq += 1;
        track.events.push(Event {
            time: track.time,
            cpu_ns: if fields.source == Source::Python as u8 {
                CPU_NOT_MEASURED
            } else {
                track.time - START
            },
            pid: PID,
            tid: track.tid,
            func,
            seq: track.seq,
            kind: kind as u8,
            ..fields
        });
    }

    fn frame(&self, thread: usize) -> u64 {
        let depth = self.threads.get(thread).map_or(0, |track| track.depth);
        0x7fff_0000_0000 - 64 * depth
    }

    /// Calls `func`, and `inside` within it.
    pub(crate) fn call(&mut self, thread: usize, func: u32, inside: impl FnOnce(&mut Self)) {
        self.enter(thread, func);
        inside(self);
        self.exit(thread, func);
    }

    /// A call begins.
    pub(crate) fn enter(&mut self, thread: usize, func: u32) {
        self.threads[thread].depth += 1;
        let frame = self.frame(thread);
        self.event(
            thread,
            Kind::Enter,
            func,
            Event {
                frame,
                source: Source::Uprobe as u8,
                ..Event::default()
            },
        );
    }

    /// It returns.
    pub(crate) fn exit(&mut self, thread: usize, func: u32) {
        let frame = self.frame(thread);
        self.event(
            thread,
            Kind::Exit,
            func,
            Event {
                frame,
                source: Source::Uprobe as u8,
                ..Event::default()
            },
        );
        self.threads[thread].depth -= 1;
    }

    /// A call whose end is not seen by design.
    pub(crate) fn entry(&mut self, thread: usize, func: u32) {
        let frame = self.frame(thread) - 64;
        self.event(
            thread,
            Kind::Enter,
            func,
            Event {
                frame,
                flags: flags::NO_EXIT,
                source: Source::Uprobe as u8,
                ..Event::default()
            },
        );
    }

    /// An event of a language's call.
    pub(crate) fn language(&mut self, thread: usize, kind: Kind, func: u32, frame: u64) {
        self.event(
            thread,
            kind,
            func,
            Event {
                frame,
                source: Source::Python as u8,
                ..Event::default()
            },
        );
    }

    /// Loses the last `count` events of a thread: their numbers are used, they never arrive.
    pub(crate) fn lose(&mut self, thread: usize, count: usize) {
        let events = &mut self.threads[thread].events;
        events.truncate(events.len() - count);
        self.lost += count as u64;
    }

    /// A sampled stack, innermost first.
    fn sample(&mut self, thread: usize, user: &[u64]) -> anyhow::Result<()> {
        self.pass(thread, 1_000);
        let track = &self.threads[thread];
        let event = Event {
            time: track.time,
            pid: PID,
            tid: track.tid,
            kind: Kind::Sample as u8,
            source: Source::Sampler as u8,
            value: 1,
            ..Event::default()
        };
        self.writer.write(&Input::Sample(Sample {
            event,
            user: user.to_vec(),
            kernel: Vec::new(),
            copy: None,
        }))?;
        Ok(())
    }

    /// Time passes on a thread.
    pub(crate) fn pass(&mut self, thread: usize, ns: u64) {
        self.threads[thread].time += ns;
    }

    /// Ends the recording.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        let mut end = START;
        for track in std::mem::take(&mut self.threads) {
            end = end.max(track.time);
            self.writer.write(&Input::Events(track.events))?;
            let name = Input::ThreadName(
                Pid(PID),
                Tid(track.tid),
                format!("worker \"{}\"", track.tid),
            );
            self.writer.write(&name)?;
        }
        if self.lost > 0 {
            self.writer.write(&Input::Losses(vec![Loss {
                class: LossClass::Exit,
                cpu: Some(0),
                func: None,
                count: self.lost,
            }]))?;
        }
        self.writer.write(&Input::Drained(MonoTime(end + 1)))?;
        self.writer.write(&Input::End(MonoTime(end + 1)))?;
        self.writer.finish()?;
        Ok(())
    }
}

fn run() -> RunInfo {
    RunInfo {
        uuid: "6f0e3e0c-6f4e-4a57-9d55-1f3c0d1d2a11".into(),
        pid: Pid(PID),
        command: "shop --port 8080".into(),
        host: "db7".into(),
        kernel: "6.18.5".into(),
        started_unix_ns: 1_764_446_400_000_000_000,
        started: MonoTime(START),
        mode: "trace".into(),
        version: "0.1.0".into(),
        probe_cost_ns: None,
        sample_hz: 0,
    }
}

fn functions() -> Vec<FunctionInfo> {
    let function = |name: &str, module: &str, line: u32| FunctionInfo {
        name: name.into(),
        raw_name: String::new(),
        module: module.into(),
        path: format!("/srv/{module}"),
        file: (line > 0).then(|| format!("src/{module}.c")),
        line: (line > 0).then_some(line),
        language: Language::C,
        build_id: "00ff".into(),
        file_offset: 0x1000 + u64::from(line) * 16,
        size: 64,
        site_delta: 0,
        exit: ExitStrategy::Return,
        exit_reason: String::new(),
        unknown: None,
        ordinal: 0,
        place: SourcePlace::default(),
    };
    let mut functions = vec![
        function("main", "shop", 10),
        function("fib", "shop", 20),
        function("even", "shop", 30),
        function("odd", "shop", 40),
        function("entries", "shop", 50),
        // What ends fields, lines and strings in one format or another.
        function("Lput;(\"a\\b\", <T>&'c', {d}) [x]--y", "shop", 60),
        function("never", "shop", 70),
        function("task", "shop", 80),
        function("twin", "shop", 90),
        function("twin", "libtwin", 90),
    ];
    functions[ENTRIES as usize - 1].exit = ExitStrategy::EntryOnly;
    functions[TASK as usize - 1].exit = ExitStrategy::Probe;
    debug_assert_eq!(functions[NEVER as usize - 1].name, "never");
    functions
}

/// Recursion, mutual recursion, entries, equal names, hard names, suspension: nothing is lost.
pub(crate) fn whole(path: &Path) -> anyhow::Result<()> {
    let mut made = Made::create(path)?;
    let (first, second) = (made.thread(PID), made.thread(PID + 1));
    made.call(first, MAIN, |made| {
        made.pass(first, 5_000);
        fib(made, first, 7);
        mutual(made, first, 9);
        made.entry(first, ENTRIES);
        made.call(first, HARD, |made| {
            made.entry(first, ENTRIES);
            made.pass(first, 7_000);
        });
        made.call(first, TWIN, |made| made.call(first, OTHER_TWIN, |_| {}));
    });
    for kind in [
        Kind::Enter,
        Kind::Suspend,
        Kind::Resume,
        Kind::Suspend,
        Kind::Resume,
        Kind::Exit,
    ] {
        made.language(second, kind, TASK, 0x51);
        made.pass(second, 3_000);
    }
    made.finish()
}

/// Ten samples of `fib` within `main`, in which `even` is inlined in seven, and `odd` in that in three; and one of an `even`
/// that was called.
pub(crate) fn inlined(path: &Path) -> anyhow::Result<()> {
    let mut made = Made::create(path)?;
    let thread = made.thread(PID);
    let id = |number: u32| FuncId::new(number).context("functions are numbered from 1");
    let (main, fib, even, odd) = (id(MAIN)?, id(FIB)?, id(EVEN)?, id(ODD)?);
    for (address, times) in [(0x2000, 3), (0x2010, 4), (0x2020, 3)] {
        for _ in 0..times {
            made.sample(thread, &[address, 0x1001])?;
        }
    }
    made.sample(thread, &[0x3000, 0x2001, 0x1001])?;
    let named = [
        (0x1000, main),
        (0x2000, fib),
        (0x2010, fib),
        (0x2020, fib),
        (0x3000, even),
    ];
    let symbols = named.map(|(address, func)| Symbol {
        pid: Pid(PID),
        address,
        func: Ok(func),
    });
    made.writer.write(&Input::Symbols(symbols.to_vec()))?;
    let inlined = [(0x2010, vec![even]), (0x2020, vec![even, odd])];
    let inlined = inlined.map(|(address, functions)| Inlined {
        pid: Pid(PID),
        address,
        functions,
    });
    made.writer.write(&Input::Inlined(inlined.to_vec()))?;
    made.finish()
}

/// A function of `source`, of which `line` is the first, called so many times: all that a probe saw.
pub(crate) fn python(
    path: &Path,
    source: &Path,
    (name, line): (&str, u32),
    calls: u64,
) -> anyhow::Result<()> {
    let file = source.to_string_lossy().into_owned();
    let function = FunctionInfo {
        name: name.into(),
        raw_name: name.into(),
        module: "shop".into(),
        path: file.clone(),
        file: Some(file),
        line: Some(line),
        language: Language::Python,
        build_id: "01".into(),
        file_offset: 1,
        size: 0,
        site_delta: 0,
        exit: ExitStrategy::Probe,
        exit_reason: String::new(),
        unknown: None,
        ordinal: 0,
        place: SourcePlace::default(),
    };
    let mut made = Made::create_with(path, vec![function])?;
    let thread = made.thread(PID);
    for _ in 0..calls {
        made.language(thread, Kind::Enter, 1, 0x51);
        made.pass(thread, 1_000);
        made.language(thread, Kind::Exit, 1, 0x51);
    }
    made.finish()
}

/// As above on one thread, and some ends never arrive: of the innermost call, of calls in the middle, of the last one.
pub(crate) fn lossy(path: &Path) -> anyhow::Result<()> {
    let mut made = Made::create(path)?;
    let thread = made.thread(PID);
    for round in 0..20 {
        made.call(thread, MAIN, |made| {
            fib(made, thread, 4);
            made.enter(thread, EVEN);
            made.enter(thread, ODD);
            made.exit(thread, ODD);
            made.exit(thread, EVEN);
            // Of the two ends one or both.
            made.lose(thread, 1 + round % 2);
            made.call(thread, HARD, |_| {});
        });
    }
    made.enter(thread, MAIN);
    made.enter(thread, FIB);
    made.finish()
}

fn fib(made: &mut Made, thread: usize, n: u32) {
    made.call(thread, FIB, |made| {
        made.pass(thread, 2_000);
        if n > 1 {
            fib(made, thread, n - 1);
            fib(made, thread, n - 2);
        }
    });
}

fn mutual(made: &mut Made, thread: usize, n: u32) {
    let func = if n.is_multiple_of(2) { EVEN } else { ODD };
    made.call(thread, func, |made| {
        made.pass(thread, 1_000);
        if n > 0 {
            mutual(made, thread, n - 1);
        }
    });
}
