//! The lane clock in terms of `CLOCK_MONOTONIC`: a line through measured points, renewed all the time. Pure.
//!
//! One fit for a whole recording drifts (680 ns in two minutes were measured), so that each time is read off the line
//! between the two points around it. How wrong the line was is measured with each new point, and told.

use std::collections::VecDeque;

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    /// Time-stamp counter.
    pub(super) ticks: u64,
    /// `CLOCK_MONOTONIC` in ns.
    pub(super) ns: u64,
    /// Half of what passed between the two counter reads around the clock read, in ticks: the point may be off by as much.
    pub(super) error_ticks: u64,
}

/// Points that are kept: events may be so much older than the last one.
const KEPT: usize = 1024;

/// The slope behind the last point is taken over so many points.
const SLOPE_OVER: usize = 32;

/// Turns times of the lane clock into `CLOCK_MONOTONIC`.
#[derive(Clone, Debug)]
pub(super) enum LaneClock {
    /// They are that already.
    Monotonic,
    /// They are counter ticks.
    Ticks(Line),
}

/// A piecewise line.
#[derive(Clone, Debug)]
pub(super) struct Line {
    points: VecDeque<Point>,
    /// ns a tick behind the last point.
    slope: f64,
    error_ns: u64,
}

impl Line {
    /// A line through two points, some ms apart.
    pub(super) fn through(first: Point, second: Point) -> Self {
        let mut line = Self {
            points: VecDeque::from([first, second]),
            slope: 0.0,
            error_ns: 0,
        };
        line.slope = line.measured_slope();
        line.error_ns = line.span(first.error_ticks.max(second.error_ticks));
        line
    }

    /// Takes a later point.
    pub(super) fn add(&mut self, point: Point) {
        if self
            .points
            .back()
            .is_some_and(|last| point.ticks <= last.ticks || point.ns < last.ns)
        {
            return;
        }
        let foretold = self.ns(point.ticks);
        self.error_ns = self.error_ns.max(
            foretold
                .abs_diff(point.ns)
                .saturating_add(self.span(point.error_ticks)),
        );
        self.points.push_back(point);
        if self.points.len() > KEPT {
            self.points.pop_front();
        }
        self.slope = self.measured_slope();
    }

    /// Time since the last point.
    pub(super) fn age_ns(&self, now: u64) -> u64 {
        self.points
            .back()
            .map_or(u64::MAX, |last| now.saturating_sub(last.ns))
    }

    /// So many ticks in ns.
    fn span(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.slope) as u64
    }

    fn measured_slope(&self) -> f64 {
        let from = self.points.len().saturating_sub(SLOPE_OVER);
        match (self.points.get(from), self.points.back()) {
            (Some(first), Some(last)) if last.ticks > first.ticks => {
                (last.ns - first.ns) as f64 / (last.ticks - first.ticks) as f64
            }
            _ => 0.0,
        }
    }

    /// The time in ns. Before the first point and behind the last the line goes on.
    pub(super) fn ns(&self, ticks: u64) -> u64 {
        let after = match self.points.back() {
            Some(last) if ticks >= last.ticks => return along(last, ticks, self.slope),
            _ => self.points.partition_point(|point| point.ticks <= ticks),
        };
        let (Some(left), Some(right)) = (
            self.points.get(after.max(1) - 1),
            self.points.get(after.max(1)),
        ) else {
            return 0;
        };
        let slope = (right.ns - left.ns) as f64 / (right.ticks - left.ticks) as f64;
        along(left, ticks, slope)
    }

    /// Rate of the counter.
    pub(super) fn ticks_a_ns(&self) -> f64 {
        if self.slope > 0.0 {
            1.0 / self.slope
        } else {
            1.0
        }
    }
}

fn along(from: &Point, ticks: u64, slope: f64) -> u64 {
    if ticks >= from.ticks {
        from.ns
            .saturating_add(((ticks - from.ticks) as f64 * slope) as u64)
    } else {
        from.ns
            .saturating_sub(((from.ticks - ticks) as f64 * slope) as u64)
    }
}

impl LaneClock {
    /// A time of the lane clock in ns of `CLOCK_MONOTONIC`.
    #[inline]
    pub(super) fn ns(&self, time: u64) -> u64 {
        match self {
            Self::Monotonic => time,
            Self::Ticks(line) => line.ns(time),
        }
    }

    /// How far off a time may be, as measured so far, in ns.
    pub(super) const fn error_ns(&self) -> u64 {
        match self {
            Self::Monotonic => 0,
            Self::Ticks(line) => line.error_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(ticks: u64, ns: u64) -> Point {
        Point {
            ticks,
            ns,
            error_ticks: 20,
        }
    }

    #[test]
    fn times_between_points_lie_on_the_line_between_them() {
        let mut line = Line::through(point(1000, 500), point(3000, 1500));
        assert_eq!(
            (line.ns(1000), line.ns(2000), line.ns(3000)),
            (500, 1000, 1500)
        );
        assert_eq!((line.ns(800), line.ns(5000)), (400, 2500));
        line.add(point(5000, 2600));
        assert_eq!(
            (line.ns(2000), line.ns(4000), line.ns(5000)),
            (1000, 2050, 2600)
        );
        assert_eq!(line.error_ns, 110, "foretold 2500, measured 2600 +- 10");
    }

    #[test]
    fn a_clock_whose_rate_drifts_is_followed() {
        // 2 ticks a ns, and 1 ppm faster with each step of a second: a single fit would be off by 0.5 ms at the end.
        let mut ticks = 0f64;
        let mut points = (0..1000u64).map(|second| {
            let now = point(ticks as u64, second * 1_000_000_000);
            ticks += 2e9 * (1.0 + second as f64 * 1e-6);
            now
        });
        let mut line = Line::through(points.next().unwrap(), points.next().unwrap());
        for next in points {
            line.add(next);
            assert!(line.ns(next.ticks).abs_diff(next.ns) <= 1);
        }
        assert!(
            line.error_ns > 500 && line.error_ns < 100_000,
            "{}",
            line.error_ns
        );
    }

    #[test]
    fn a_clock_that_goes_back_is_not_believed() {
        let mut line = Line::through(point(1000, 500), point(3000, 1500));
        line.add(point(2000, 1600));
        line.add(point(4000, 1400));
        assert_eq!(line.ns(4000), 2000);
    }

    #[test]
    fn whatever_a_probe_writes_as_a_time_becomes_a_number() {
        let line = Line::through(point(1000, 500), point(3000, 1500));
        for ticks in [0, 1, u64::MAX / 2, u64::MAX] {
            line.ns(ticks);
        }
        assert_eq!(line.ns(0), 0);
    }
}
