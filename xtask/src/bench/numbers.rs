//! Medians, ranges and ratios of repeated measurements. Pure.

/// Repeated measurements of one thing, in the order of their rounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Series(pub(super) Vec<f64>);

/// The middle, and the least and the most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    /// Median.
    pub(super) median: f64,
    /// Least.
    pub(super) least: f64,
    /// Most.
    pub(super) most: f64,
}

impl Series {
    /// `None` of nothing.
    pub(super) fn spread(&self) -> Option<Spread> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        Some(Spread {
            median: median(&sorted)?,
            least: *sorted.first()?,
            most: *sorted.last()?,
        })
    }

    /// Round by round: what disturbs a round disturbs both of its sides.
    pub(super) fn over(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a / b).collect())
    }
}

fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(*upper);
    }
    sorted
        .get(middle - 1)
        .map(|lower| f64::midpoint(*lower, *upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[f64], expect: Option<(f64, f64, f64)>) {
        let found = Series(values.to_vec()).spread();
        assert_eq!(
            found.map(|spread| (spread.median, spread.least, spread.most)),
            expect
        );
    }

    #[test]
    fn the_median_is_the_middle_or_between_the_middles() {
        check(&[3.0, 1.0, 2.0], Some((2.0, 1.0, 3.0)));
        check(&[4.0, 1.0, 2.0, 3.0], Some((2.5, 1.0, 4.0)));
        check(&[], None);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let ratio = Series(vec![2.0, 9.0]).over(&Series(vec![1.0, 3.0]));
        assert_eq!(ratio, Series(vec![2.0, 3.0]));
    }
}
