//! What changed between two recordings: calls, own and total time of each function, and whether that is more than noise.
//!
//! Numbers are per run, so that a genome of many runs compares with one of few. How far times may differ by chance is
//! taken from how far they differ between the windows of each side; where that is not known, nothing is called a
//! regression.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::Genome;
use super::identity::{Change, Member, unify};
use super::totals;
use crate::event::FuncId;
use crate::tree::Metrics;

/// How large a difference has to be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Growth of a number of the base, as a share.
    pub threshold: f64,
    /// Growth as a share of all own time of the base: below it nobody would notice.
    pub least_share: f64,
}

/// What a difference is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Larger than the threshold and than the noise.
    Regression,
    /// Smaller by as much.
    Improvement,
    /// Larger than the threshold, and how far it may differ by chance is not known, or the probes' own cost, of which only
    /// the bounds are known, may be all of it.
    Unsure,
    /// Only the new side has it.
    New,
    /// Only the base has it.
    Gone,
    /// None of these.
    Unchanged,
}

/// One number on both sides, per run; `null` = not measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// In the base.
    pub base: Option<f64>,
    /// In the new recording.
    pub new: Option<f64>,
    /// By how much the two may differ though the program did not change: by chance (about 95 % of the time), and by what
    /// the probes themselves cost; `null` = not known.
    pub noise: Option<f64>,
    /// What the difference is.
    pub verdict: Verdict,
}

/// One function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiffRow {
    /// Its key.
    pub key: String,
    /// Name.
    pub name: String,
    /// Module.
    pub module: String,
    /// `same`, `edited`, `unsure` (whether its code changed is not known) or `not-comparable` (others have its name).
    pub code: &'static str,
    /// Calls.
    pub calls: Pair,
    /// Own time in ns: of the processor where that was measured on both sides, else wall time, else samples.
    pub self_ns: Pair,
    /// Time with callees in ns, as `self_ns`.
    pub total_ns: Pair,
    /// The gravest of the three.
    pub verdict: Verdict,
}

/// Two recordings compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// `scalpel.diff/1`.
    pub schema: &'static str,
    /// UUID of the base.
    pub base: String,
    /// UUID of the new recording.
    pub new: String,
    /// Functions whose numbers differ or that only one side has; the gravest first.
    pub functions: Vec<DiffRow>,
    /// What makes the comparison less sure.
    pub doubts: Vec<String>,
}

impl Diff {
    /// Whether anything got worse.
    pub fn has_regressions(&self) -> bool {
        let mut rows = self.functions.iter();
        rows.any(|row| row.verdict == Verdict::Regression)
    }
}

/// Runs that a genome is the sum of.
#[derive(Clone, Copy, Debug)]
pub struct Runs(pub usize);

/// Compares. The numbers of runs say what each genome is the sum of.
pub fn diff(base: (&Genome, Runs), new: (&Genome, Runs), limits: Limits) -> Diff {
    let (base_side, new_side) = (Side::of(base.0, base.1), Side::of(new.0, new.1));
    let members: Vec<Member> = base_side.members(0).chain(new_side.members(1)).collect();
    let first_new = base_side.genome.functions.len();
    let all_ns = base_side.all_self_ns();
    let mut rows: Vec<DiffRow> = unify(&members)
        .into_iter()
        .filter_map(|unit| {
            let (old, newer): (Vec<usize>, Vec<usize>) =
                unit.members.iter().partition(|at| **at < first_new);
            let old = base_side.sum(old.into_iter());
            let newer = new_side.sum(newer.into_iter().map(|at| at - first_new));
            let info = &members.get(*unit.members.last()?)?.info;
            row(info, unit.change, (&old, &newer), limits, all_ns)
        })
        .collect();
    rows.sort_by(|a, b| {
        let size = |row: &DiffRow| row.self_ns.change().abs();
        a.verdict
            .cmp(&b.verdict)
            .then(size(b).total_cmp(&size(a)))
            .then(a.key.cmp(&b.key))
    });
    Diff {
        schema: "scalpel.diff/1",
        base: base.0.run.uuid.clone(),
        new: new.0.run.uuid.clone(),
        functions: rows,
        doubts: doubts(base.0, new.0),
    }
}

impl Pair {
    fn change(&self) -> f64 {
        self.new.unwrap_or(0.0) - self.base.unwrap_or(0.0)
    }
}

/// One side, prepared.
struct Side<'a> {
    genome: &'a Genome,
    runs: f64,
    totals: Vec<totals::Total>,
    /// Calls and own time by window and function.
    windows: BTreeMap<FuncId, Vec<(f64, f64)>>,
}

/// What one side has of a function.
#[derive(Clone, Debug, Default)]
struct Sum {
    there: bool,
    runs: f64,
    metrics: Metrics,
    total_sampled_ns: u64,
    windows: Vec<(f64, f64)>,
    /// Least and most that one hit of a probe costs, in ns.
    probe_ns: Option<(f64, f64)>,
}

impl<'a> Side<'a> {
    fn of(genome: &'a Genome, Runs(runs): Runs) -> Self {
        let own = totals::per_context(&genome.tree, |_| true);
        Self {
            genome,
            runs: runs.max(1) as f64,
            totals: totals::functions(&genome.tree, &own, &genome.functions),
            windows: windows(genome),
        }
    }

    fn members(&self, run: u32) -> impl Iterator<Item = Member> {
        self.genome.functions.iter().map(move |(_, info)| Member {
            info: Arc::clone(info),
            runs: vec![run],
        })
    }

    fn all_self_ns(&self) -> f64 {
        let own = |total: &totals::Total| time(&total.metrics, Which::Own).unwrap_or(0);
        self.totals.iter().map(own).sum::<u64>() as f64 / self.runs
    }

    fn sum(&self, functions: impl Iterator<Item = usize>) -> Sum {
        let mut sum = Sum {
            runs: self.runs,
            probe_ns: self
                .genome
                .run
                .probe_cost_ns
                .map(|(least, most)| (least as f64, most as f64)),
            ..Sum::default()
        };
        for at in functions {
            let Some(total) = self.totals.get(at).filter(|total| total.contexts > 0) else {
                continue;
            };
            sum.there = true;
            sum.metrics.add(&total.metrics);
            sum.total_sampled_ns += total.total_sampled_ns;
            let id = FuncId::new(at as u32 + 1);
            let windows = id.and_then(|id| self.windows.get(&id));
            sum.windows.extend(windows.into_iter().flatten());
        }
        sum
    }
}

fn windows(genome: &Genome) -> BTreeMap<FuncId, Vec<(f64, f64)>> {
    let mut sums: BTreeMap<(FuncId, u32, crate::event::Pid), Metrics> = BTreeMap::new();
    for cell in &genome.tree.cells {
        let context = genome.tree.contexts.get(cell.context.0 as usize);
        let pid = genome.tree.threads.get(cell.thread as usize);
        if let (Some(func), Some(thread)) = (context.and_then(|context| context.func), pid) {
            let place = (func, cell.window, thread.pid);
            sums.entry(place).or_default().add(&cell.metrics);
        }
    }
    let mut windows: BTreeMap<FuncId, Vec<(f64, f64)>> = BTreeMap::new();
    for ((func, ..), metrics) in sums {
        if let Some(own) = time(&metrics, Which::Own) {
            let calls = weight(&metrics);
            windows.entry(func).or_default().push((calls, own as f64));
        }
    }
    windows
}

#[derive(Clone, Copy)]
enum Which {
    Own,
    Total,
}

/// The best time that was measured.
fn time(m: &Metrics, which: Which) -> Option<u64> {
    let (cpu, wall) = match which {
        Which::Own => (m.self_cpu_ns, m.self_wall_ns),
        Which::Total => (m.total_cpu_ns, m.total_wall_ns),
    };
    if m.cpu_timed > 0 {
        return Some(cpu);
    }
    if m.timed > 0 {
        return Some(wall);
    }
    matches!(which, Which::Own)
        .then_some(m.sampled_ns)
        .filter(|ns| *ns > 0)
}

fn weight(m: &Metrics) -> f64 {
    match (m.timed, m.samples) {
        (0, samples) => samples as f64,
        (timed, _) => timed as f64,
    }
}

impl Sum {
    fn calls(&self) -> Option<f64> {
        (self.metrics.calls > 0).then(|| self.metrics.calls as f64 / self.runs)
    }

    fn time(&self, which: Which) -> Option<f64> {
        let sampled = (self.total_sampled_ns > 0).then_some(self.total_sampled_ns);
        let ns = time(&self.metrics, which).or(sampled)?;
        Some(ns as f64 / self.runs)
    }

    /// Least and most of the own time per run that is the probes' own.
    fn probes(&self) -> (f64, f64) {
        let (least, most) = self.probe_ns.unwrap_or_default();
        let hits = self.metrics.timed as f64 / self.runs;
        (least * hits, most * hits)
    }

    /// Two standard errors of the own time per run: how far the time of a call differs between windows.
    fn noise(&self) -> Option<f64> {
        let calls: f64 = self.windows.iter().map(|(calls, _)| calls).sum();
        let ns: f64 = self.windows.iter().map(|(_, ns)| ns).sum();
        if self.windows.len() < 3 || calls <= 0.0 {
            return None;
        }
        let mean = ns / calls;
        let squares = self
            .windows
            .iter()
            .map(|(calls, ns)| (ns - mean * calls).powi(2));
        let few = self.windows.len() as f64;
        Some(2.0 * (squares.sum::<f64>() * few / (few - 1.0)).sqrt() / self.runs)
    }
}

fn row(
    info: &crate::function::FunctionInfo,
    change: Change,
    (old, new): (&Sum, &Sum),
    limits: Limits,
    all_ns: f64,
) -> Option<DiffRow> {
    if !old.there && !new.there {
        return None;
    }
    let noise = old.noise().zip(new.noise());
    let noise = noise.map(|(a, b)| a.hypot(b));
    let least = limits.least_share * all_ns;
    let exact = Noise {
        chance: Some(0.0),
        ..Noise::default()
    };
    let calls = pair(old.calls(), new.calls(), exact, limits.threshold, 0.0);
    let noise = Noise {
        chance: noise,
        ..Noise::of_probes(old.probes(), new.probes())
    };
    let own = pair(
        old.time(Which::Own),
        new.time(Which::Own),
        noise,
        limits.threshold,
        least,
    );
    let ratio = |sum: &Sum| Some(sum.time(Which::Total)? / sum.time(Which::Own)?.max(1.0));
    let ratio = ratio(old).into_iter().chain(ratio(new)).fold(1.0, f64::max);
    let total_noise = noise.times(ratio);
    let total = pair(
        old.time(Which::Total),
        new.time(Which::Total),
        total_noise,
        limits.threshold,
        least,
    );
    let verdict = match (old.there, new.there) {
        (false, _) => Verdict::New,
        (_, false) => Verdict::Gone,
        _ => [calls, own, total].iter().map(|pair| pair.verdict).min()?,
    };
    Some(DiffRow {
        key: info.key(),
        name: info.name.clone(),
        module: info.module.clone(),
        code: change.word(),
        calls,
        self_ns: own,
        total_ns: total,
        verdict,
    })
}

/// How far a time may differ though the program did not change.
#[derive(Clone, Copy, Debug, Default)]
struct Noise {
    /// By chance; `None` = not known.
    chance: Option<f64>,
    /// By the probes: most that they can have added, and most that they can have taken away.
    more: f64,
    less: f64,
}

impl Noise {
    /// What the probes cost is in both times, and known as an interval only.
    fn of_probes(old: (f64, f64), new: (f64, f64)) -> Self {
        Self {
            chance: None,
            more: (new.1 - old.0).max(0.0),
            less: (old.1 - new.0).max(0.0),
        }
    }

    fn times(self, factor: f64) -> Self {
        Self {
            chance: self.chance.map(|chance| chance * factor),
            more: self.more * factor,
            less: self.less * factor,
        }
    }
}

fn pair(base: Option<f64>, new: Option<f64>, noise: Noise, threshold: f64, least: f64) -> Pair {
    let change = base.zip(new).map(|(base, new)| new - base);
    let probes = match change {
        Some(change) if change < 0.0 => noise.less,
        _ => noise.more,
    };
    let verdict = match base.zip(change) {
        None => Verdict::Unchanged,
        Some((base, change)) => {
            let is_large = change.abs() > threshold * base && change.abs() > least;
            match noise.chance {
                _ if !is_large => Verdict::Unchanged,
                None => Verdict::Unsure,
                Some(chance) if change.abs() <= chance => Verdict::Unchanged,
                Some(chance) if change.abs() <= chance + probes => Verdict::Unsure,
                Some(_) if change > 0.0 => Verdict::Regression,
                Some(_) => Verdict::Improvement,
            }
        }
    };
    Pair {
        base,
        new,
        noise: noise.chance.map(|chance| chance + probes),
        verdict,
    }
}

fn doubts(base: &Genome, new: &Genome) -> Vec<String> {
    let mut doubts = Vec::new();
    for (side, genome) in [("base", base), ("new recording", new)] {
        if genome.lost() > 0 {
            doubts.push(format!(
                "the {side} lost {} events: its counts are lower bounds",
                genome.lost()
            ));
        }
        if genome.cut {
            doubts.push(format!("the {side} was cut"));
        }
    }
    if base.run.mode != new.run.mode || base.run.sample_hz != new.run.sample_hz {
        doubts.push(format!(
            "they were recorded in different ways ({} at {} Hz, {} at {} Hz): compare like with like",
            base.run.mode, base.run.sample_hz, new.run.mode, new.run.sample_hz
        ));
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::genome::tests::example;
    use crate::tree::{Cell, ContextId};

    const LIMITS: Limits = Limits {
        threshold: 0.1,
        least_share: 0.0,
    };

    /// `walk`, called 100 times in each of ten windows, at about `ns` a call.
    fn walking(ns: u64, spread: u64) -> Genome {
        let mut genome = example();
        let cell = |window: u32| {
            let own = 100 * ns + if window.is_multiple_of(2) { spread } else { 0 };
            Cell {
                window,
                thread: 0,
                context: ContextId(2),
                metrics: Metrics {
                    calls: 100,
                    timed: 100,
                    cpu_timed: 100,
                    self_cpu_ns: own,
                    self_wall_ns: own,
                    total_cpu_ns: own,
                    total_wall_ns: own,
                    ..Metrics::default()
                },
            }
        };
        genome.tree.cells = (0..10).map(cell).collect();
        genome
    }

    fn verdict(base: &Genome, new: &Genome) -> Verdict {
        let diff = diff((base, Runs(1)), (new, Runs(1)), LIMITS);
        let row = diff.functions.iter().find(|row| row.name == "walk");
        row.unwrap().verdict
    }

    #[test]
    fn a_recording_does_not_differ_from_itself() {
        let diff = diff((&example(), Runs(1)), (&example(), Runs(1)), LIMITS);
        assert!(!diff.has_regressions());
        let verdicts = diff.functions.iter().map(|row| row.verdict);
        assert!(
            verdicts
                .into_iter()
                .all(|verdict| verdict == Verdict::Unchanged)
        );
    }

    #[test]
    fn more_time_than_the_threshold_and_the_noise_is_a_regression() {
        assert_eq!(
            verdict(&walking(10_000, 100), &walking(15_000, 100)),
            Verdict::Regression
        );
        assert_eq!(
            verdict(&walking(15_000, 100), &walking(10_000, 100)),
            Verdict::Improvement
        );
        assert_eq!(
            verdict(&walking(10_000, 100), &walking(10_500, 100)),
            Verdict::Unchanged
        );
    }

    #[test]
    fn what_the_probes_may_have_cost_is_no_regression() {
        // A hit costs 90 to 900 ns: 500 ns a call more may be all of it.
        let (base, mut new) = (walking(1000, 100), walking(1500, 100));
        assert_eq!(verdict(&base, &new), Verdict::Unsure);
        assert_eq!(verdict(&new, &base), Verdict::Unsure);
        let diff = diff((&base, Runs(1)), (&new, Runs(1)), LIMITS);
        let row = diff
            .functions
            .iter()
            .find(|row| row.name == "walk")
            .unwrap();
        assert!(row.self_ns.noise > Some(810_000.0), "{:?}", row.self_ns);
        assert!(!diff.has_regressions());
        // Of samples, and where the cost was not measured, it is no part.
        let mut base = base;
        for genome in [&mut base, &mut new] {
            genome.run.probe_cost_ns = None;
        }
        assert_eq!(verdict(&base, &new), Verdict::Regression);
    }

    #[test]
    fn dearer_probes_of_one_side_are_no_regression() {
        let (base, mut new) = (walking(10_000, 0), walking(15_000, 0));
        new.run.probe_cost_ns = Some((4000, 6000));
        assert_eq!(verdict(&base, &new), Verdict::Unsure);
        assert_eq!(verdict(&new, &base), Verdict::Unsure);
    }

    #[test]
    fn what_the_windows_differ_by_anyway_is_no_regression() {
        assert_eq!(
            verdict(&walking(10_000, 2_000_000), &walking(12_000, 2_000_000)),
            Verdict::Unchanged
        );
    }

    #[test]
    fn without_windows_to_compare_nothing_is_called_a_regression() {
        let few = |ns| {
            let mut genome = walking(ns, 0);
            genome.tree.cells.truncate(2);
            genome
        };
        assert_eq!(verdict(&few(1000), &few(2000)), Verdict::Unsure);
    }

    #[test]
    fn exact_counts_have_no_noise() {
        let mut more = walking(1000, 100);
        more.tree
            .cells
            .iter_mut()
            .for_each(|cell| cell.metrics.calls = 150);
        assert_eq!(verdict(&walking(1000, 100), &more), Verdict::Regression);
    }

    #[test]
    fn numbers_are_per_run() {
        let diff = diff(
            (&walking(1000, 0), Runs(1)),
            (&walking(1000, 0), Runs(2)),
            LIMITS,
        );
        let row = diff
            .functions
            .iter()
            .find(|row| row.name == "walk")
            .unwrap();
        assert_eq!((row.calls.base, row.calls.new), (Some(1000.0), Some(500.0)));
    }
}
