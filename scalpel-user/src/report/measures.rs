//! The numbers of one row, each with what is known about it. `None` is *not measured*, never 0.

use serde::Serialize;

use super::per_call::PerCall;
use crate::genome::totals::Total;
use crate::tree::Metrics;

/// From, to; both ends belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Interval {
    /// Lowest possible value.
    pub low: u64,
    /// Highest possible value.
    pub high: u64,
}

/// What was measured of a function, a module or a thread. Times in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Measures {
    /// Calls seen; there were not fewer.
    pub calls: Option<u64>,
    /// Most calls there can have been; `None` = there is no bound, or calls were not measured.
    pub calls_at_most: Option<u64>,
    /// Wall time in itself.
    pub self_wall_ns: Option<u64>,
    /// Wall time with callees; recursion counted once.
    pub total_wall_ns: Option<u64>,
    /// CPU time in itself.
    pub self_cpu_ns: Option<u64>,
    /// CPU time with callees; recursion counted once.
    pub total_cpu_ns: Option<u64>,
    /// CPU times are spread between readings of each thread's account: nobody told when threads waited.
    pub cpu_estimated: bool,
    /// Running time before the first suspension of calls that were suspended, with callees. Part of `total_wall_ns`.
    pub pre_await_ns: Option<u64>,
    /// Time that its calls were suspended and then went on; part of no other time.
    pub suspended_ns: Option<u64>,
    /// Wall times of single calls; `None` = there is no histogram of them.
    pub per_call_wall: Option<PerCall>,
    /// CPU times of single calls.
    pub per_call_cpu: Option<PerCall>,
    /// What the probes themselves added to the total times.
    pub overhead_ns: Option<Interval>,
    /// Samples with it as innermost frame; `None` = nothing was sampled.
    pub samples: Option<u64>,
    /// CPU time in itself as estimated from samples.
    pub sampled_self_ns: Option<u64>,
    /// CPU time with callees as estimated from samples.
    pub sampled_total_ns: Option<u64>,
    /// Waits with it as innermost frame; `None` = nobody watched where threads waited.
    pub waits: Option<u64>,
    /// Time off the processor with it as innermost frame.
    pub self_off_cpu_ns: Option<u64>,
    /// Time off the processor in it and its callees; recursion counted once.
    pub total_off_cpu_ns: Option<u64>,
    /// Part of `self_off_cpu_ns` in which there was no processor for it.
    pub preempted_ns: Option<u64>,
    /// Part of `self_off_cpu_ns` in which it waited for a device.
    pub io_wait_ns: Option<u64>,
    /// Calls that ended by an exception or a long jump.
    pub unwound: u64,
    /// Lost events.
    pub lost: u64,
}

impl Measures {
    /// The numbers of a sum, as far as they were measured. Calls without doubts: the caller adds those.
    pub fn of(total: &Total, sampling: bool, probe_cost_ns: Option<(u64, u64)>) -> Self {
        let m = &total.metrics;
        let wall = |ns| (m.timed > 0).then_some(ns);
        let cpu = |ns| (m.cpu_timed > 0).then_some(ns);
        // Without a sample there is no time; with samples whose period is not time, nobody knows it.
        let sampled = |samples: u64, ns: u64| (sampling && (ns > 0 || samples == 0)).then_some(ns);
        Self {
            calls: (m.calls > 0).then_some(m.calls),
            calls_at_most: (m.calls > 0).then_some(m.calls),
            self_wall_ns: wall(m.self_wall_ns),
            total_wall_ns: wall(m.total_wall_ns),
            self_cpu_ns: cpu(m.self_cpu_ns),
            total_cpu_ns: cpu(m.total_cpu_ns),
            cpu_estimated: false,
            pre_await_ns: wall(m.pre_await_ns),
            suspended_ns: wall(m.suspended_ns),
            per_call_wall: None,
            per_call_cpu: None,
            overhead_ns: overhead(m, probe_cost_ns),
            samples: sampling.then_some(m.samples),
            sampled_self_ns: sampled(m.samples, m.sampled_ns),
            sampled_total_ns: sampled(total.total_samples, total.total_sampled_ns),
            unwound: m.unwound,
            lost: m.lost,
            ..Self::default()
        }
    }

    /// The same with where threads waited, if somebody watched that.
    #[must_use]
    pub fn with_waits(mut self, total: &Total, watched: bool) -> Self {
        let m = &total.metrics;
        self.waits = watched.then_some(m.waits);
        self.self_off_cpu_ns = watched.then_some(m.off_cpu_ns);
        self.total_off_cpu_ns = watched.then_some(total.total_off_cpu_ns);
        self.preempted_ns = watched.then_some(m.preempted_ns);
        self.io_wait_ns = watched.then_some(m.io_wait_ns);
        self
    }

    /// CPU time in itself, unless its probe went and samples tell of more.
    pub fn measured_self_cpu_ns(&self) -> Option<u64> {
        self.unless_outdone(self.self_cpu_ns, self.sampled_self_ns)
    }

    /// CPU time with callees, unless its probe went and samples tell of more.
    pub fn measured_total_cpu_ns(&self) -> Option<u64> {
        self.unless_outdone(self.total_cpu_ns, self.sampled_total_ns)
    }

    fn unless_outdone(&self, measured: Option<u64>, sampled: Option<u64>) -> Option<u64> {
        let is_lower_bound = self.calls.is_some() && self.calls_at_most.is_none();
        measured.filter(|measured| !is_lower_bound || sampled.is_none_or(|ns| ns <= *measured))
    }

    /// The same, where CPU times are estimates.
    #[must_use]
    pub fn with_cpu_estimated(mut self, estimated: bool) -> Self {
        self.cpu_estimated = estimated && self.total_cpu_ns.is_some();
        self
    }

    /// The same for something that was watched all the time and never ran: that it did not is a measurement.
    pub fn never_ran(sampling: bool, timed: bool) -> Self {
        let zero = timed.then_some(0);
        Self {
            calls: Some(0),
            calls_at_most: Some(0),
            self_wall_ns: zero,
            total_wall_ns: zero,
            self_cpu_ns: zero,
            total_cpu_ns: zero,
            pre_await_ns: zero,
            suspended_ns: zero,
            samples: sampling.then_some(0),
            ..Self::default()
        }
    }
}

/// The cost is that of a call, which is two events.
fn overhead(m: &Metrics, probe_cost_ns: Option<(u64, u64)>) -> Option<Interval> {
    let (low, high) = probe_cost_ns.filter(|_| m.timed > 0)?;
    let of = |cost: u64| m.probe_events.saturating_mul(cost) / 2;
    Some(Interval {
        low: of(low),
        high: of(high),
    })
}
