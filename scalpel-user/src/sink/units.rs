//! Numbers as people read them: three digits that matter, a unit, and `-` for what was not measured.

/// What was not measured.
pub const NOTHING: &str = "-";

/// A duration: `812 ns`, `12.3 µs`, `4.56 ms`, `78.9 s`, `12345 s`.
pub fn duration(ns: u64) -> String {
    scaled(ns, 1000, &[" ns", " µs", " ms", " s"])
}

/// A count: exact up to 99999, then `123 k`, `1.20 M`, `3.45 G`.
pub fn count(count: u64) -> String {
    if count < 100_000 {
        count.to_string()
    } else {
        scaled(count, 1000, &["", " k", " M", " G", " T"])
    }
}

/// A share (0 to 1): `12.3 %`. What is not nothing is never shown as 0.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p > 0.0 && p < 0.05 => "<0.1 %".to_owned(),
        p => format!("{p:.1} %"),
    }
}

/// The same, or `-`.
pub fn or_nothing(value: Option<u64>, format: fn(u64) -> String) -> String {
    value.map_or_else(|| NOTHING.to_owned(), format)
}

/// Scales by `step` to the first unit in which the rounded number has at most three digits before the point.
fn scaled(value: u64, step: u64, units: &[&str]) -> String {
    let mut value = value as f64;
    let mut units = units.iter().peekable();
    let mut unit = units.next().copied().unwrap_or("");
    let mut whole = true;
    while value >= step as f64 - 0.5 && units.peek().is_some() {
        value /= step as f64;
        unit = units.next().copied().unwrap_or("");
        whole = false;
    }
    let digits = match value {
        _ if whole => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::{count, duration, percent};

    #[test]
    fn durations_keep_three_digits() {
        let shown: Vec<String> = [
            0,
            999,
            1_000,
            9_996,
            12_345,
            999_600,
            4_560_000,
            78_900_000_000,
            12_345_000_000_000,
        ]
        .map(duration)
        .into();
        assert_eq!(
            shown,
            [
                "0 ns", "999 ns", "1.00 µs", "10.0 µs", "12.3 µs", "1.00 ms", "4.56 ms", "78.9 s",
                "12345 s"
            ]
        );
    }

    #[test]
    fn counts_are_exact_as_long_as_they_fit() {
        let shown: Vec<String> = [0, 99_999, 100_000, 1_204_000, 999_999, u64::MAX]
            .map(count)
            .into();
        assert_eq!(
            shown,
            ["0", "99999", "100 k", "1.20 M", "1.00 M", "18446744 T"]
        );
    }

    #[test]
    fn a_small_share_is_not_nothing() {
        assert_eq!(
            [0.0, 0.000_01, 0.0012, 0.123, 1.0].map(percent),
            ["0.0 %", "<0.1 %", "0.1 %", "12.3 %", "100.0 %"]
        );
    }
}
