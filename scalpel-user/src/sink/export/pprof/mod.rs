//! pprof: gzipped protobuf, a sample a thread and context, with every value that was measured.
//!
//! Values are self values: pprof adds up what is below. Samples carry the labels `thread`, `pid` and `tid`, and `lost`
//! where events went missing; a location's address is the function's offset in its file. Losses and doubts are comments
//! (`go tool pprof -comments`).

mod proto;
mod strings;

use std::collections::BTreeMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use rustc_hash::FxHashMap;

use super::labels::{FOLDED, NO_STACK};
use super::{Notes, Subject, Weight, wire};
use crate::event::FuncId;
use crate::function::FunctionInfo;
use crate::tree::{Context, ContextId, EdgeSource, Metrics, Thread};
use proto::{Function, Label, Line, Location, Mapping, Sample, ValueType, field};
use strings::Strings;

/// Above this many samples pprof itself takes minutes: threads are added up then.
const MOST_SAMPLES: usize = 200_000;

/// Writes `subject`; `shown` is what pprof shows unless it is asked for another value.
pub fn write(subject: &Subject<'_>, shown: Weight, out: &mut dyn Write) -> io::Result<Notes> {
    let mut gzip = GzEncoder::new(out, Compression::default());
    let cells = Cells::of(subject, MOST_SAMPLES);
    let mut profile = Profile {
        subject,
        weights: subject.weights(),
        strings: Strings::new(),
        labels: LabelKeys::default(),
        inlined: BTreeMap::new(),
        out: &mut gzip,
    };
    profile.head(shown)?;
    profile.samples(&cells)?;
    profile.functions()?;
    profile.tail(cells.notes())?;
    gzip.finish()?;
    Ok(cells.notes())
}

/// What was measured, a thread and context each; without threads where there would be too many.
struct Cells {
    /// Sorted by context.
    cells: Vec<(ContextId, Option<u32>, Metrics)>,
    threads_added_up: bool,
}

impl Cells {
    fn of(subject: &Subject<'_>, most: usize) -> Self {
        let tree = &subject.genome.tree;
        let mut sums: FxHashMap<(ContextId, Option<u32>), Metrics> = FxHashMap::default();
        for cell in &tree.cells {
            let place = (cell.context, Some(cell.thread));
            sums.entry(place).or_default().add(&cell.metrics);
        }
        let threads_added_up = sums.len() > most;
        let mut cells: Vec<_> = if threads_added_up {
            let ids = (0u32..).map(ContextId);
            let each = ids.zip(&subject.own);
            each.map(|(id, m)| (id, None, *m)).collect()
        } else {
            sums.into_iter()
                .map(|((id, thread), m)| (id, thread, m))
                .collect()
        };
        cells.sort_unstable_by_key(|&(id, thread, _)| (id, thread));
        Self {
            cells,
            threads_added_up,
        }
    }

    fn of_context(&self, id: ContextId) -> &[(ContextId, Option<u32>, Metrics)] {
        let from = self.cells.partition_point(|cell| cell.0 < id);
        let rest = self.cells.get(from..).unwrap_or_default();
        let count = rest.iter().take_while(|cell| cell.0 == id).count();
        rest.get(..count).unwrap_or_default()
    }

    fn notes(&self) -> Notes {
        let mut notes = Notes::new();
        if self.threads_added_up {
            notes.push(format!(
                "more than {MOST_SAMPLES} samples: threads are added up, for pprof takes minutes otherwise"
            ));
        }
        if self.cells.len() > MOST_SAMPLES {
            notes.push(format!(
                "{} contexts: `go tool pprof` may need minutes and gigabytes for them",
                self.cells.len()
            ));
        }
        notes
    }
}

struct Profile<'a, 'g> {
    subject: &'a Subject<'g>,
    weights: Vec<Weight>,
    strings: Strings,
    labels: LabelKeys,
    /// Locations by their functions: one, and what is inlined in it, in each other.
    inlined: BTreeMap<Vec<FuncId>, u64>,
    out: &'a mut dyn Write,
}

/// Keys of labels in the string table.
#[derive(Default)]
struct LabelKeys {
    thread: i64,
    pid: i64,
    tid: i64,
    lost: i64,
}

impl Profile<'_, '_> {
    fn head(&mut self, shown: Weight) -> io::Result<()> {
        for weight in self.weights.clone() {
            let kind = self.value_type(weight.word(), weight.unit());
            wire::message(field::SAMPLE_TYPE, &kind, self.out)?;
        }
        self.labels = LabelKeys {
            thread: self.strings.number("thread"),
            pid: self.strings.number("pid"),
            tid: self.strings.number("tid"),
            lost: self.strings.number("lost"),
        };
        let run = &self.subject.report.run;
        wire::number(field::TIME_NANOS, run.started, self.out)?;
        wire::number(field::DURATION_NANOS, run.duration_ns, self.out)?;
        let hz = u64::from(self.subject.genome.run.sample_hz);
        if let Some(period) = 1_000_000_000u64.checked_div(hz) {
            let kind = self.value_type("cpu", "nanoseconds");
            wire::message(field::PERIOD_TYPE, &kind, self.out)?;
            wire::number(field::PERIOD, period, self.out)?;
        }
        let shown = self.strings.number(shown.word());
        wire::number(field::DEFAULT_SAMPLE_TYPE, shown.unsigned_abs(), self.out)
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType {
            kind: self.strings.number(kind),
            unit: self.strings.number(unit),
        }
    }

    fn samples(&mut self, cells: &Cells) -> io::Result<()> {
        let subject = self.subject;
        subject.visit(|path, _| {
            let last = path.last().copied().unwrap_or(ContextId::ROOT);
            for (_, thread, m) in cells.of_context(last) {
                let thread = thread.and_then(|at| subject.genome.tree.threads.get(at as usize));
                self.sample(path, thread, m)?;
            }
            Ok(())
        })
    }

    fn sample(
        &mut self,
        path: &[ContextId],
        thread: Option<&Thread>,
        m: &Metrics,
    ) -> io::Result<()> {
        let values: Vec<i64> = self
            .weights
            .iter()
            .map(|weight| signed(weight.of(m)))
            .collect();
        if values.iter().all(|value| *value == 0) {
            return Ok(());
        }
        let mut locations = self.locations(path);
        if locations.is_empty() {
            locations.push(self.no_stack());
        }
        let labels = self.labels_of(thread, m);
        let sample = Sample {
            locations,
            values,
            labels,
        };
        wire::message(field::SAMPLE, &sample, self.out)
    }

    fn labels_of(&mut self, thread: Option<&Thread>, m: &Metrics) -> Vec<Label> {
        let number = |key: i64, number: u64| Label {
            key,
            text: 0,
            number: signed(number),
        };
        let mut labels = Vec::new();
        if let Some(thread) = thread {
            labels.push(number(self.labels.pid, thread.pid.0.into()));
            labels.push(number(self.labels.tid, thread.tid.0.into()));
            let text = self.strings.number(&thread.name);
            if text != 0 {
                let key = self.labels.thread;
                labels.push(Label {
                    key,
                    text,
                    number: 0,
                });
            }
        }
        if m.lost > 0 {
            labels.push(number(self.labels.lost, m.lost));
        }
        labels
    }

    /// The innermost first. What is inlined is a further line of the location of the function that it is a part of.
    fn locations(&mut self, path: &[ContextId]) -> Vec<u64> {
        let contexts = &self.subject.genome.tree.contexts;
        let path: Vec<&Context> = path
            .iter()
            .filter_map(|id| contexts.get(id.0 as usize))
            .collect();
        let frames = path.chunk_by(|_, inner| inner.source == EdgeSource::Inlined);
        let mut locations: Vec<u64> = frames.map(|frame| self.location(frame)).collect();
        locations.reverse();
        locations
    }

    /// Locations and functions have the numbers of the function table; behind them come the two that are no functions, and
    /// then locations with functions that are inlined in them.
    fn location(&mut self, frame: &[&Context]) -> u64 {
        let functions: Vec<FuncId> = frame.iter().filter_map(|context| context.func).collect();
        match *functions {
            [] => self.folded(),
            [func] => func.get().into(),
            _ => {
                let next = self.no_stack() + 1 + self.inlined.len() as u64;
                *self.inlined.entry(functions).or_insert(next)
            }
        }
    }

    fn folded(&self) -> u64 {
        self.subject.genome.functions.len() as u64 + 1
    }

    fn no_stack(&self) -> u64 {
        self.folded() + 1
    }

    fn functions(&mut self) -> io::Result<()> {
        let subject = self.subject;
        let (mut mappings, mut mapped) = (Mappings::default(), Vec::new());
        for (id, info) in subject.genome.functions.iter() {
            let mapping = mappings.number(info);
            let function = Function {
                id: id.get().into(),
                name: self.strings.number(subject.labels.get(Some(id))),
                system_name: self.strings.number(&info.raw_name),
                file: self.strings.number(info.file.as_deref().unwrap_or("")),
                start_line: info.line.unwrap_or(0).into(),
            };
            wire::message(field::LOCATION, &location(id, info, mapping), self.out)?;
            mapped.push(mapping);
            wire::message(field::FUNCTION, &function, self.out)?;
        }
        for (functions, &id) in &self.inlined {
            let location = self.with_inlined(id, functions, &mapped);
            wire::message(field::LOCATION, &location, self.out)?;
        }
        for (id, name) in [(self.folded(), FOLDED), (self.no_stack(), NO_STACK)] {
            self.pseudo(id, name)?;
        }
        mappings.write(&mut self.strings, self.out)
    }

    /// The location of the first, of which the others are parts.
    fn with_inlined(&self, id: u64, functions: &[FuncId], mapped: &[u64]) -> Location {
        let host = functions.first().copied();
        let info = |func: FuncId| self.subject.genome.functions.get(func);
        let line = |func: &FuncId| Line {
            function: func.get().into(),
            line: info(*func).and_then(|info| info.line).unwrap_or(0).into(),
        };
        Location {
            id,
            mapping: host
                .and_then(|host| mapped.get(host.get() as usize - 1).copied())
                .unwrap_or(0),
            address: host.and_then(info).map_or(0, |info| info.file_offset),
            lines: functions.iter().rev().map(line).collect(),
        }
    }

    fn pseudo(&mut self, id: u64, name: &str) -> io::Result<()> {
        let function = Function {
            id,
            name: self.strings.number(name),
            ..Function::default()
        };
        let location = Location {
            id,
            lines: vec![Line {
                function: id,
                line: 0,
            }],
            ..Location::default()
        };
        wire::message(field::LOCATION, &location, self.out)?;
        wire::message(field::FUNCTION, &function, self.out)
    }

    fn tail(&mut self, notes: Notes) -> io::Result<()> {
        let caveats = self.subject.caveats().into_iter().chain(notes);
        for text in std::iter::once(self.subject.title()).chain(caveats) {
            let number = self.strings.number(&text);
            wire::number(field::COMMENT, number.unsigned_abs(), self.out)?;
        }
        let strings = std::mem::replace(&mut self.strings, Strings::new());
        strings
            .iter()
            .try_for_each(|text| wire::string(field::STRING, text, self.out))
    }
}

fn location(id: FuncId, info: &FunctionInfo, mapping: u64) -> Location {
    Location {
        id: id.get().into(),
        mapping,
        address: info.file_offset,
        lines: vec![Line {
            function: id.get().into(),
            line: info.line.unwrap_or(0).into(),
        }],
    }
}

/// The files that functions are in, one mapping each.
#[derive(Default)]
struct Mappings<'a> {
    by_file: FxHashMap<(&'a str, &'a str), usize>,
    mappings: Vec<(&'a str, &'a str, bool)>,
}

impl<'a> Mappings<'a> {
    fn number(&mut self, info: &'a FunctionInfo) -> u64 {
        let path = if info.path.is_empty() {
            &info.module
        } else {
            &info.path
        };
        let next = self.mappings.len();
        let at = *self.by_file.entry((path, &info.build_id)).or_insert(next);
        if at == next {
            self.mappings.push((path, &info.build_id, false));
        }
        if let Some((_, _, lines)) = self.mappings.get_mut(at) {
            *lines |= info.line.is_some();
        }
        at as u64 + 1
    }

    fn write(&self, strings: &mut Strings, out: &mut dyn Write) -> io::Result<()> {
        for (id, (path, build_id, lines)) in (1..).zip(&self.mappings) {
            let mapping = Mapping {
                id,
                file: strings.number(path),
                build_id: strings.number(build_id),
                // Says that there is nothing to look up: names come from the recording.
                has_functions: true,
                has_files: *lines,
                has_lines: *lines,
            };
            wire::message(field::MAPPING, &mapping, out)?;
        }
        Ok(())
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
