//! What single calls of a function took, as far as its histogram tells.

use serde::Serialize;

use crate::event::FuncId;
use crate::tree::Histogram;

/// Durations of the calls of one function that no other call of it was around. In ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PerCall {
    /// Calls in the histogram.
    pub calls: u64,
    /// Average; `None` = the sum is also of calls that are not in the histogram.
    pub avg_ns: Option<u64>,
    /// Half of the calls took this long at most; at most 1/8 too high.
    pub p50_ns: u64,
    /// 90 of 100 did.
    pub p90_ns: u64,
    /// 99 of 100 did.
    pub p99_ns: u64,
}

/// What is known of the same calls without their histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sums {
    /// Time of calls with no other call of the function around them, in ns.
    pub(super) total_ns: u64,
    /// Timed calls, recursive ones too.
    pub(super) timed: u64,
    /// Of those, the ones left by an exception or a jump.
    pub(super) unwound: u64,
    /// They were added up in the kernel, where calls that unwound are in no histogram.
    pub(super) counted: bool,
    /// Some calls found no histogram.
    pub(super) incomplete: bool,
}

impl PerCall {
    pub(super) fn of(histogram: &Histogram, sums: Sums) -> Option<Self> {
        let calls = calls(histogram);
        (calls > 0).then(|| Self {
            calls,
            avg_ns: average(histogram, calls, sums),
            p50_ns: at_most(histogram, calls, 50),
            p90_ns: at_most(histogram, calls, 90),
            p99_ns: at_most(histogram, calls, 99),
        })
    }
}

/// The histogram of a function, of those sorted by function.
pub(super) fn histogram(of: &[(FuncId, Histogram)], func: FuncId) -> Option<&Histogram> {
    let at = of.binary_search_by_key(&func, |(func, _)| *func).ok()?;
    of.get(at).map(|(_, histogram)| histogram)
}

fn calls(histogram: &Histogram) -> u64 {
    let counts = histogram.buckets.iter().map(|&(_, count)| count);
    counts.fold(0, u64::saturating_add)
}

/// The end of the bucket in which the call stands that `percent` of 100 calls are not longer than.
fn at_most(histogram: &Histogram, calls: u64, percent: u64) -> u64 {
    let rank = (u128::from(calls) * u128::from(percent)).div_ceil(100);
    let mut seen = 0;
    let bucket = histogram.buckets.iter().find(|&&(_, count)| {
        seen += u128::from(count);
        seen >= rank
    });
    bucket.map_or(0, |&(bucket, _)| end(bucket))
}

/// The longest duration of a bucket.
const fn end(bucket: u16) -> u64 {
    Histogram::bucket_start(bucket.saturating_add(1)) - 1
}

fn average(histogram: &Histogram, calls: u64, sums: Sums) -> Option<u64> {
    let of = if !sums.counted {
        calls
    } else if calls.saturating_add(sums.unwound) == sums.timed {
        sums.timed
    } else if sums.unwound == 0 {
        calls
    } else {
        return None;
    };
    let average = sums.total_ns / of;
    // The histogram bounds it: a sum of other calls shows.
    let mean = |bound: fn(u16) -> u64| {
        let sum = histogram
            .buckets
            .iter()
            .fold(0u128, |sum, &(bucket, count)| {
                sum.saturating_add(u128::from(bound(bucket)) * u128::from(count))
            });
        sum / u128::from(calls)
    };
    let (low, high) = (mean(Histogram::bucket_start), mean(end));
    let is_of_these = of != calls || (low..=high).contains(&u128::from(average));
    (is_of_these && !sums.incomplete).then_some(average)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn histogram_of(durations: &[u64]) -> Histogram {
        let mut counts = std::collections::BTreeMap::new();
        for &ns in durations {
            *counts.entry(Histogram::bucket_of(ns)).or_insert(0) += 1;
        }
        Histogram {
            buckets: counts.into_iter().collect(),
        }
    }

    fn sums(total_ns: u64, timed: u64) -> Sums {
        Sums {
            total_ns,
            timed,
            unwound: 0,
            counted: true,
            incomplete: false,
        }
    }

    proptest! {
        #[test]
        fn a_percentile_is_never_too_low_and_at_most_an_eighth_too_high(
            mut durations in proptest::collection::vec(0u64..1_000_000_000_000, 1..200),
        ) {
            let histogram = histogram_of(&durations);
            let total = durations.iter().sum::<u64>();
            let calls = durations.len() as u64;
            let per_call = PerCall::of(&histogram, sums(total, calls)).unwrap();
            prop_assert_eq!((per_call.calls, per_call.avg_ns), (calls, Some(total / calls)));
            durations.sort_unstable();
            for (percent, told) in [(50, per_call.p50_ns), (90, per_call.p90_ns), (99, per_call.p99_ns)] {
                let truth = durations[(durations.len() * percent).div_ceil(100) - 1];
                prop_assert!(truth <= told && told <= truth + truth / 8, "{percent}: {truth} {told}");
            }
        }
    }

    #[test]
    fn an_average_is_of_the_calls_in_the_histogram_or_of_none() {
        let histogram = histogram_of(&[100, 100, 100, 100]);
        let average = |sums| PerCall::of(&histogram, sums).unwrap().avg_ns;
        assert_eq!(average(sums(400, 4)), Some(100));
        // Recursion: 3 of 7 calls are within others, and their time is in the sum already.
        assert_eq!(average(sums(400, 7)), Some(100));
        let unwound = Sums {
            unwound: 1,
            ..sums(900, 5)
        };
        assert_eq!(average(unwound), Some(180));
        let both = Sums {
            unwound: 1,
            ..sums(900, 9)
        };
        assert_eq!(average(both), None);
        assert_eq!(
            average(Sums {
                counted: false,
                ..both
            }),
            None,
            "of other calls"
        );
        let incomplete = Sums {
            incomplete: true,
            ..sums(400, 4)
        };
        assert_eq!(average(incomplete), None);
        assert_eq!(PerCall::of(&Histogram::default(), sums(0, 0)), None);
        let absurd = Histogram {
            buckets: vec![(495, u64::MAX), (u16::MAX, u64::MAX)],
        };
        assert!(PerCall::of(&absurd, sums(u64::MAX, 1)).is_some());
        let longest = histogram_of(&[u64::MAX]);
        assert_eq!(
            PerCall::of(&longest, sums(u64::MAX, 1)).unwrap().p50_ns,
            u64::MAX - 1
        );
    }
}
