//! One row a function: its numbers, its error bars and the reasons for them.

use rustc_hash::FxHashMap;
use scalpel_common::kernel::LossClass;
use serde::Serialize;

use super::known;
use super::measures::Measures;
use super::per_call::{self, PerCall, Sums};
use super::returned::{self, ReturnedRow};
use crate::catalog::Outcome;
use crate::event::FuncId;
use crate::function::{ExitStrategy, FunctionInfo, UnknownReason};
use crate::genome::Genome;
use crate::genome::loss::Losses;
use crate::genome::totals::Total;
use crate::input::Bound;
use crate::matching::Matching;
use crate::tree::{FunctionFaults, Metrics, Tree};

/// Whether a function ran, as far as this recording can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It ran.
    Ran,
    /// It was watched and did not run.
    NeverRan,
    /// It was not watched, at least not all the time, and was not seen to run.
    NotVisible,
}

/// One function of the report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FunctionRow {
    /// Key that survives rebuilds and hosts.
    pub key: String,
    /// Name for people.
    pub name: String,
    /// File name of the image or module.
    pub module: String,
    /// Source file.
    pub file: Option<String>,
    /// Source line, from 1.
    pub line: Option<u32>,
    /// Language word.
    pub language: &'static str,
    /// Its numbers.
    #[serde(flatten)]
    pub measures: Measures,
    /// Whether it ran.
    pub state: State,
    /// What it is in the sources, as `file:line name`; `null` if it was not found, or without a static side.
    pub definition: Option<String>,
    /// Why it was not found; `null` if it was, or without a static side.
    pub not_found: Option<&'static str>,
    /// How its end is seen: `return`, `ret`, `entry`, `none` (not probed), `probe` (within the process).
    pub exit: &'static str,
    /// Why it has no name.
    pub unknown: Option<&'static str>,
    /// What its calls returned; `null` where nobody asked.
    pub returned: Option<ReturnedRow>,
    /// What makes its numbers uncertain.
    pub doubts: Vec<String>,
}

/// All functions, in order of their ids. `sums` are those of the whole tree.
pub fn rows(genome: &Genome, sums: &[Total], matching: Option<&Matching>) -> Vec<FunctionRow> {
    let losses = Losses::of(&genome.losses);
    let per_function = genome.losses.iter().any(|loss| loss.func.is_some());
    let faults: FxHashMap<FuncId, &FunctionFaults> = genome
        .tree
        .faults
        .iter()
        .map(|(func, faults)| (*func, faults))
        .collect();
    let bounds: FxHashMap<FuncId, &Bound> = genome
        .bounds
        .iter()
        .map(|bound| (bound.func, bound))
        .collect();
    let times = Times::of(genome, &losses);
    let row = |((id, info), total): ((FuncId, &std::sync::Arc<FunctionInfo>), &Total)| {
        let known = Known {
            id,
            info,
            total,
            faults: faults.get(&id).copied().copied().unwrap_or_default(),
            bound: bounds.get(&id).copied(),
            parts: !genome.triggers.is_empty(),
            lost_entries: losses.function(id, LossClass::Enter),
            lost_exits: losses.function(id, LossClass::Exit),
            per_call_wall: times.wall(id, &total.metrics),
            per_call_cpu: times.cpu(id, &total.metrics),
            nearby: if per_function { 0 } else { total.metrics.lost },
        };
        let outcome = matching.and_then(|matching| matching.outcomes.get(id.get() as usize - 1));
        known.row(genome, outcome)
    };
    genome.functions.iter().zip(sums).map(row).collect()
}

/// Whether CPU times are estimates: probes alone cannot tell when a thread waited.
pub(super) fn estimates_cpu(genome: &Genome) -> bool {
    genome.run.mode.split('+').next() == Some("probe")
}

/// Whether anything was sampled.
pub(super) fn sampling(genome: &Genome) -> bool {
    genome.run.sample_hz > 0
}

/// Whether it was watched where threads waited.
pub(super) fn watches_waits(genome: &Genome) -> bool {
    genome.run.mode.split('+').any(|word| word == "off-cpu")
}

/// Times of single calls, and what is to be known to read them.
struct Times<'a> {
    tree: &'a Tree,
    counted: bool,
    incomplete: bool,
}

impl<'a> Times<'a> {
    fn of(genome: &'a Genome, losses: &Losses) -> Self {
        Self {
            tree: &genome.tree,
            counted: genome.run.mode.split('+').any(|word| word == "count"),
            incomplete: losses.class(LossClass::CountHistogram) > 0,
        }
    }

    fn wall(&self, func: FuncId, m: &Metrics) -> Option<PerCall> {
        let sums = self.sums(m.total_wall_ns, m.timed, m.unwound);
        PerCall::of(per_call::histogram(&self.tree.histograms, func)?, sums)
    }

    fn cpu(&self, func: FuncId, m: &Metrics) -> Option<PerCall> {
        let sums = self.sums(m.total_cpu_ns, m.cpu_timed, m.unwound);
        PerCall::of(per_call::histogram(&self.tree.cpu_histograms, func)?, sums)
    }

    const fn sums(&self, total_ns: u64, timed: u64, unwound: u64) -> Sums {
        Sums {
            total_ns,
            timed,
            unwound,
            counted: self.counted,
            incomplete: self.incomplete,
        }
    }
}

/// All that is known of one function.
struct Known<'a> {
    id: FuncId,
    info: &'a FunctionInfo,
    total: &'a Total,
    faults: FunctionFaults,
    bound: Option<&'a Bound>,
    /// Only what triggers kept of the run is known.
    parts: bool,
    lost_entries: u64,
    lost_exits: u64,
    per_call_wall: Option<PerCall>,
    per_call_cpu: Option<PerCall>,
    /// Events lost while it was innermost, of functions that nobody knows.
    nearby: u64,
}

impl Known<'_> {
    fn row(&self, genome: &Genome, outcome: Option<&Outcome>) -> FunctionRow {
        let info = self.info;
        let mut doubts = Vec::new();
        self.doubts(genome, &mut doubts);
        let (definition, not_found) = known::found(&genome.catalog, outcome);
        if let Some(Outcome::Unmatched(why)) = outcome
            && why.counts()
        {
            doubts.push(format!("not found in the source: {}", why.text()));
        }
        FunctionRow {
            key: info.key(),
            name: info.name.clone(),
            module: info.module.clone(),
            file: info.file.clone(),
            line: info.line,
            language: info.language.word(),
            measures: self.measures(genome),
            state: self.state(),
            definition,
            not_found,
            exit: info.exit.word(),
            unknown: info.unknown.as_ref().map(UnknownReason::word),
            returned: self.returned(genome),
            doubts,
        }
    }

    fn returned(&self, genome: &Genome) -> Option<ReturnedRow> {
        let ends = returned::Ends {
            info: self.info,
            metrics: &self.total.metrics,
            faults: self.faults,
        };
        returned::row(&genome.tree.returns, self.id, &ends)
    }

    fn probed(&self) -> bool {
        self.info.exit != ExitStrategy::None && self.bound.is_none_or(|bound| bound.since.is_some())
    }

    fn state(&self) -> State {
        if self.total.contexts > 0 || self.lost_entries > 0 {
            State::Ran
        } else if self.probed() && self.bound.is_none() && !self.parts {
            State::NeverRan
        } else {
            State::NotVisible
        }
    }

    fn measures(&self, genome: &Genome) -> Measures {
        let timed = matches!(
            self.info.exit,
            ExitStrategy::Return | ExitStrategy::RetOffsets | ExitStrategy::Probe
        );
        let mut measures = match self.state() {
            State::NeverRan => Measures::never_ran(sampling(genome), timed),
            _ => Measures::of(self.total, sampling(genome), genome.run.probe_cost_ns)
                .with_cpu_estimated(estimates_cpu(genome)),
        }
        .with_waits(self.total, watches_waits(genome));
        if (self.probed() && !self.parts) || self.total.metrics.calls > 0 {
            let calls = self.total.metrics.calls;
            let hidden = self
                .lost_entries
                .saturating_add(self.faults.missed_enter)
                .saturating_add(self.nearby);
            measures.calls = Some(calls);
            let is_bounded = self.bound.is_none() && !self.parts;
            measures.calls_at_most = is_bounded.then(|| calls.saturating_add(hidden));
        }
        measures.per_call_wall = self.per_call_wall;
        measures.per_call_cpu = self.per_call_cpu;
        measures.lost = self
            .lost_entries
            .saturating_add(self.lost_exits)
            .saturating_add(self.nearby);
        measures
    }

    fn doubts(&self, genome: &Genome, doubts: &mut Vec<String>) {
        if let Some(bound) = self.bound {
            doubts.push(match bound.since {
                None => format!("not watched: {}", bound.reason),
                Some(since) => {
                    let at = since.0.saturating_sub(genome.run.started.0) as f64 / 1e9;
                    format!("lower bound from {at:.3} s: {}", bound.reason)
                }
            });
        }
        let metrics = &self.total.metrics;
        let mut say = |count: u64, what: &str| {
            if count > 0 {
                doubts.push(format!("{count} {what}"));
            }
        };
        say(self.lost_entries, "entries lost");
        say(self.lost_exits, "exits lost");
        say(self.nearby, "events lost near it");
        say(self.faults.missed_enter, "returns without an entry");
        say(
            self.faults.cut_by_loss,
            "calls cut by a loss, or open when their probe went",
        );
        say(self.faults.open_at_end, "calls still open at the end");
        say(
            self.faults.depth_limited,
            "returns beyond the kernel's depth of 64",
        );
        say(
            self.faults.return_refused,
            "returns not watched, to protect the program",
        );
        say(metrics.inferred, "ends concluded, not seen");
        if metrics.timed > 0 && metrics.timed < metrics.calls {
            doubts.push(format!(
                "times cover {} of {} calls",
                metrics.timed, metrics.calls
            ));
        }
        if self.info.exit == ExitStrategy::EntryOnly && metrics.calls > 0 {
            let why = if self.info.exit_reason.is_empty() {
                ""
            } else {
                ": "
            };
            doubts.push(format!("entries only{why}{}", self.info.exit_reason));
        }
    }
}
