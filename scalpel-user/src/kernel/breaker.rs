//! The breaker: which functions cost the target more than was allowed. Pure: it is shown hit counters and CPU times,
//! and names the functions to drop.
//!
//! Overhead is probe time per own work of the target, not per wall time: that ratio does not change when the probes
//! slow the target down, so one observation tells which functions have to go.

use std::collections::VecDeque;
use std::time::Duration;

use crate::event::{FuncId, MonoTime};

/// Overhead above this multiple of the limit is acted on at once; below it, after [`PATIENCE_NS`] of evidence.
const URGENT: f64 = 4.0;
/// Length of the evidence for a function that is not urgent.
pub const PATIENCE: Duration = Duration::from_secs(1);
const PATIENCE_NS: u64 = PATIENCE.as_secs() * 1_000_000_000;
/// Shortest interval that says anything, in ns.
const SHORTEST_NS: u64 = 2_000_000;
/// Probe time between two observations that harms nobody, in ns. Below it nothing is given up: a program that is
/// over after some milliseconds keeps its exact counts, a longer one is judged by a longer interval.
const HARMLESS_NS: f64 = 3_000_000.0;
/// The least share of the budget that is the probes', however much the collector and its other programs take: no probe that
/// goes makes those cheaper.
const LEAST_FOR_PROBES: f64 = 0.5;
/// A target that works less than this share of one processor is judged as if it worked that much: what an idle
/// process does now and then is no reason to give up exact counts.
const IDLE_SHARE: f64 = 0.05;

/// A function that is attached, and what one call of it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Function.
    pub func: FuncId,
    /// Estimated cost of the probes of one call in ns.
    pub cost_ns: u64,
}

/// Counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// When they were read.
    pub at: MonoTime,
    /// CPU time that the targets have used so far in ns, probes included; `None` = cannot be read.
    pub cpu_ns: Option<u64>,
    /// Hits so far, by function id.
    pub hits: Vec<u64>,
    /// The same of processes that are not watched and run the same file: they pay for its probes as well.
    pub strangers: Vec<u64>,
    /// CPU time so far in ns of all that is not the probes: the collector's own, and that of the programs that sample and
    /// watch threads.
    pub beside_ns: u64,
}

/// A function to drop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// Function.
    pub func: FuncId,
    /// Its estimated overhead in percent of the target's own work.
    pub percent: f64,
    /// Its calls per second.
    pub calls_per_s: f64,
    /// Most of them are those of processes that are not watched.
    pub by_strangers: bool,
}

/// Keeps a short history of counters and decides on it.
#[derive(Debug)]
pub struct Breaker {
    limit_percent: f64,
    history: VecDeque<Observation>,
}

impl Breaker {
    /// A breaker that allows `limit_percent` of overhead in total.
    pub const fn new(limit_percent: f64) -> Self {
        Self {
            limit_percent,
            history: VecDeque::new(),
        }
    }

    /// Takes an observation and names the functions to drop, hottest first.
    pub fn observe(&mut self, now: Observation, watched: &[Watched]) -> Vec<Verdict> {
        let verdicts = self.judge(&now, watched);
        if !verdicts.is_empty() {
            // What was measured under the dropped probes says nothing about what remains.
            self.history.clear();
        }
        self.history.push_back(now);
        self.forget();
        verdicts
    }

    fn judge(&self, now: &Observation, watched: &[Watched]) -> Vec<Verdict> {
        let old_enough = |earlier: &&Observation| age(now, earlier) >= SHORTEST_NS;
        let latest = self.history.iter().rev().find(old_enough);
        let urgent =
            latest.map(|earlier| over_budget(earlier, now, watched, self.limit_percent, URGENT));
        if let Some(verdicts) = urgent.filter(|verdicts| !verdicts.is_empty()) {
            return verdicts;
        }
        let oldest = self
            .history
            .front()
            .filter(|earlier| age(now, earlier) >= PATIENCE_NS);
        oldest
            .map(|earlier| over_budget(earlier, now, watched, self.limit_percent, 1.0))
            .unwrap_or_default()
    }

    /// Keeps one observation that is older than the patience, and all younger ones.
    fn forget(&mut self) {
        let Some(newest) = self.history.back().map(|newest| newest.at.0) else {
            return;
        };
        while self
            .history
            .get(1)
            .is_some_and(|second| newest.saturating_sub(second.at.0) >= PATIENCE_NS)
        {
            self.history.pop_front();
        }
    }
}

const fn age(now: &Observation, earlier: &Observation) -> u64 {
    now.at.0.saturating_sub(earlier.at.0)
}

/// The functions whose going brings the overhead between two observations down to `limit_percent`, hottest first.
/// None, if it is not above `slack` times the limit.
pub fn over_budget(
    earlier: &Observation,
    now: &Observation,
    watched: &[Watched],
    limit_percent: f64,
    slack: f64,
) -> Vec<Verdict> {
    let elapsed_ns = age(now, earlier) as f64;
    let mut loads: Vec<Load> = watched
        .iter()
        .filter_map(|one| load(earlier, now, one))
        .collect();
    let mut total: f64 = loads.iter().map(Load::ns).sum();
    if total < HARMLESS_NS {
        return Vec::new();
    }
    let of_target = loads.iter().map(|load| load.target_ns).sum();
    let own = own_work(earlier, now, of_target, elapsed_ns);
    let beside = now.beside_ns.saturating_sub(earlier.beside_ns) as f64;
    let allowed = own * limit_percent / 100.0;
    let budget = (allowed - beside).max(allowed * LEAST_FOR_PROBES);
    if total <= budget * slack {
        return Vec::new();
    }
    loads.sort_by(|a, b| b.ns().total_cmp(&a.ns()));
    let mut verdicts = Vec::new();
    for load in loads {
        if total <= budget {
            break;
        }
        total -= load.ns();
        verdicts.push(Verdict {
            func: load.func,
            percent: load.ns() * 100.0 / own,
            calls_per_s: load.hits as f64 * 1e9 / elapsed_ns.max(1.0),
            by_strangers: load.strangers_ns > load.target_ns,
        });
    }
    verdicts
}

/// What the probes of a function took in an interval.
struct Load {
    func: FuncId,
    hits: u64,
    target_ns: f64,
    strangers_ns: f64,
}

impl Load {
    fn ns(&self) -> f64 {
        self.target_ns + self.strangers_ns
    }
}

/// `None` if the function was not called.
fn load(earlier: &Observation, now: &Observation, one: &Watched) -> Option<Load> {
    let index = one.func.get() as usize;
    let more = |now: &[u64], earlier: &[u64]| {
        let count = |at: &[u64]| at.get(index).copied().unwrap_or(0);
        count(now).saturating_sub(count(earlier))
    };
    let of_target = more(&now.hits, &earlier.hits);
    let of_strangers = more(&now.strangers, &earlier.strangers);
    let hits = of_target + of_strangers;
    (hits > 0).then(|| Load {
        func: one.func,
        hits,
        target_ns: (of_target * one.cost_ns) as f64,
        strangers_ns: (of_strangers * one.cost_ns) as f64,
    })
}

/// The target's own work in ns: its CPU time without the probes'. Without a reading, one processor's time.
fn own_work(earlier: &Observation, now: &Observation, probes_ns: f64, elapsed_ns: f64) -> f64 {
    let floor = (elapsed_ns * IDLE_SHARE).max(1.0);
    match (earlier.cpu_ns, now.cpu_ns) {
        (Some(before), Some(after)) => (after.saturating_sub(before) as f64 - probes_ns).max(floor),
        _ => elapsed_ns.max(floor),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn watched(costs: &[u64]) -> Vec<Watched> {
        (1..)
            .zip(costs)
            .map(|(id, &cost_ns)| Watched {
                func: FuncId::new(id).unwrap(),
                cost_ns,
            })
            .collect()
    }

    fn at(ms: u64, cpu_ms: u64, hits: &[u64]) -> Observation {
        let hits = std::iter::once(0).chain(hits.iter().copied()).collect();
        Observation {
            at: MonoTime(ms * MS),
            cpu_ns: Some(cpu_ms * MS),
            hits,
            strangers: Vec::new(),
            beside_ns: 0,
        }
    }

    /// Ids that a breaker at `limit` drops after each of `observations`.
    fn check(limit: f64, costs: &[u64], observations: &[Observation], expect: &[&[u32]]) {
        let mut breaker = Breaker::new(limit);
        for (observation, expect) in observations.iter().zip(expect) {
            let verdicts = breaker.observe(observation.clone(), &watched(costs));
            assert_eq!(
                verdicts
                    .iter()
                    .map(|verdict| verdict.func.get())
                    .collect::<Vec<_>>(),
                *expect
            );
        }
    }

    #[test]
    fn a_hot_function_goes_at_the_next_look_and_a_cold_one_stays() {
        // 50 ms of probes in 90 ms of CPU time: 125 % of the target's own 40 ms.
        check(
            5.0,
            &[1000, 1000],
            &[at(0, 0, &[0, 0]), at(100, 90, &[50_000, 100])],
            &[&[], &[1]],
        );
    }

    #[test]
    fn a_function_a_little_over_budget_goes_after_a_second_of_evidence() {
        let series: Vec<Observation> = (0..=11)
            .map(|tick| at(tick * 100, tick * 100, &[tick * 8_000]))
            .collect();
        let mut expect: Vec<&[u32]> = vec![&[]; 12];
        expect[10] = &[1];
        check(5.0, &[1000], &series, &expect);
    }

    #[test]
    fn a_burst_within_budget_of_a_second_is_forgiven() {
        let mut series: Vec<Observation> = (0..=20)
            .map(|tick| at(tick * 100, tick * 100, &[0]))
            .collect();
        for (tick, observation) in series.iter_mut().enumerate() {
            observation.hits = vec![0, if tick > 5 { 15_000 } else { 0 }];
        }
        check(5.0, &[1000], &series, &[&[] as &[u32]; 21]);
    }

    #[test]
    fn an_idle_target_keeps_its_probes() {
        // 0.2 ms of probes in 100 ms, with 1 ms of CPU time: 25 % of the work, but 0.2 % of a processor.
        check(
            5.0,
            &[1000],
            &[at(0, 0, &[0]), at(100, 1, &[200])],
            &[&[], &[]],
        );
    }

    #[test]
    fn a_program_of_a_few_milliseconds_keeps_its_probes() {
        // 0.6 ms of probes in 3 ms: a third of its own work, and over before anybody notices.
        check(
            5.0,
            &[5_000],
            &[at(0, 0, &[0]), at(3, 2, &[123])],
            &[&[], &[]],
        );
    }

    #[test]
    fn what_else_the_tracer_costs_is_taken_off_the_budget_up_to_half_of_it() {
        let dropped = |beside_ms: u64| {
            // 4 ms of probes in 104 ms: 4 % of the target's own 100 ms.
            let (before, mut after) = (at(0, 0, &[0]), at(100, 104, &[4_000]));
            after.beside_ns = beside_ms * MS;
            over_budget(&before, &after, &watched(&[1000]), 5.0, 1.0).len()
        };
        assert_eq!([0, 1, 2, 50].map(dropped), [0, 0, 1, 1]);
        let (before, mut after) = (at(0, 0, &[0]), at(200, 202, &[4_000]));
        after.beside_ns = 1_000 * MS;
        let verdicts = over_budget(&before, &after, &watched(&[1000]), 5.0, 1.0);
        assert_eq!(verdicts, [], "2 % is within the half that is the probes'");
    }

    #[test]
    fn what_strangers_pay_counts_against_the_limit_but_is_no_work_of_the_target() {
        let (before, mut after) = (at(0, 0, &[0, 0]), at(100, 100, &[1_000, 100]));
        after.strangers = vec![0, 0, 20_000];
        let verdicts = over_budget(&before, &after, &watched(&[1000, 1000]), 5.0, 1.0);
        let told: Vec<_> = verdicts
            .iter()
            .map(|verdict| (verdict.func.get(), verdict.by_strangers))
            .collect();
        // 20.1 ms of the second against the target's 98.9: the first stays with 1 ms.
        assert_eq!(told, [(2, true)]);
        assert!((verdicts[0].percent - 20.3).abs() < 0.1);
    }

    #[test]
    fn a_dear_site_weighs_more_than_a_frequent_one() {
        check(
            5.0,
            &[10_000, 500],
            &[at(0, 0, &[0, 0]), at(100, 100, &[1_500, 7_000])],
            &[&[], &[1]],
        );
    }

    #[test]
    fn without_cpu_time_the_overhead_is_of_one_processor() {
        let (mut before, mut after) = (at(0, 0, &[0]), at(100, 0, &[30_000]));
        (before.cpu_ns, after.cpu_ns) = (None, None);
        let verdicts = over_budget(&before, &after, &watched(&[1000]), 5.0, 1.0);
        assert!((verdicts[0].percent - 30.0).abs() < 0.01);
        assert!((verdicts[0].calls_per_s - 300_000.0).abs() < 1.0);
    }

    proptest! {
        #[test]
        fn what_is_left_is_within_budget_and_no_colder_function_goes_before_a_hotter_one(
            hits in proptest::collection::vec(0u64..100_000, 1..40), cpu_ms in 0u64..400, limit in 0.1f64..50.0,
        ) {
            let costs = vec![1000; hits.len()];
            let (before, after) = (at(0, 0, &vec![0; hits.len()]), at(100, cpu_ms, &hits));
            let verdicts = over_budget(&before, &after, &watched(&costs), limit, 1.0);
            let gone: Vec<usize> = verdicts.iter().map(|verdict| verdict.func.get() as usize - 1).collect();
            let total: u64 = hits.iter().sum::<u64>() * 1000;
            let left: u64 = total - gone.iter().map(|&index| hits[index] * 1000).sum::<u64>();
            let own = (cpu_ms as f64 * 1e6 - total as f64).max(5e6);
            prop_assert!(left as f64 <= own * limit / 100.0 + 1.0 || total as f64 <= HARMLESS_NS);
            let coldest_gone = gone.iter().map(|&index| hits[index]).min().unwrap_or(u64::MAX);
            for (index, &count) in hits.iter().enumerate() {
                prop_assert!(gone.contains(&index) || count <= coldest_gone);
            }
        }
    }
}
