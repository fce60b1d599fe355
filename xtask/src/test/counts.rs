//! How many tests passed, failed and were skipped, read from the closing lines of test runners. Pure.
use std::fmt;
use std::ops::AddAssign;

/// Outcomes of tests; a check without a test runner counts as one test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Ran, and held.
    pub(super) passed: u64,
    /// Ran, and did not hold.
    pub(super) failed: u64,
    /// Could not run here; the reason stands in the output.
    pub(super) skipped: u64,
}

impl Counts {
    /// One check that held.
    pub(super) const fn passed() -> Self {
        Self {
            passed: 1,
            failed: 0,
            skipped: 0,
        }
    }

    /// One check that did not.
    pub(super) const fn failed() -> Self {
        Self {
            passed: 0,
            failed: 1,
            skipped: 0,
        }
    }

    /// One check that could not run here.
    pub(super) const fn skipped() -> Self {
        Self {
            passed: 0,
            failed: 0,
            skipped: 1,
        }
    }

    /// The counts of a runner's closing line: `test result: ok. 3 passed; 0 failed; 1 ignored; ...`.
    pub(super) fn of_line(line: &str) -> Option<Self> {
        let (_, list) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let number = |word: &str| {
            list.split("; ")
                .find_map(|part| part.strip_suffix(word)?.trim_end().parse().ok())
        };
        Some(Self {
            passed: number("passed")?,
            failed: number("failed")?,
            skipped: number("ignored")?,
        })
    }

    /// The counts of other languages' runners: pytest's last line, doctest's, and each of the three that Node's has.
    pub(super) fn of_summary(line: &str) -> Option<Self> {
        let words: Vec<&str> = line
            .split(|character: char| character.is_whitespace() || character == ',')
            .filter(|word| !word.is_empty())
            .collect();
        let before = |name: &str| {
            let place = words.iter().position(|word| *word == name)?;
            words.get(place.checked_sub(1)?)?.parse::<u64>().ok()
        };
        let of = |passed: &str, failed: &str, skipped: &str| Self {
            passed: before(passed).unwrap_or(0),
            failed: before(failed).unwrap_or(0),
            skipped: before(skipped).unwrap_or(0),
        };
        match *words.as_slice() {
            ["[doctest]", "test", "cases:", ..] => Some(of("passed", "failed", "skipped")),
            ["#", kind, number] => {
                let number = number.parse().ok()?;
                let mut counts = Self::default();
                match kind {
                    "pass" => counts.passed = number,
                    "fail" | "cancelled" => counts.failed = number,
                    "skipped" => counts.skipped = number,
                    _ => return None,
                }
                Some(counts)
            }
            [.., "in", time] | [.., "in", time, _] if time.ends_with('s') => {
                let counts = of("passed", "failed", "skipped");
                (counts != Self::default()).then_some(counts)
            }
            _ => None,
        }
    }

    /// A runner that failed without counting a failure (it did not compile, or crashed) failed once.
    pub(super) fn with_status(mut self, succeeded: bool) -> Self {
        if !succeeded && self.failed == 0 {
            self.failed = 1;
        }
        self
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
        } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_test_runners_are_counted() {
        let line = "test result: FAILED. 3 passed; 2 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.00s";
        assert_eq!(
            Counts::of_line(line),
            Some(Counts {
                passed: 3,
                failed: 2,
                skipped: 1
            })
        );
    }

    #[test]
    fn other_lines_are_not() {
        for line in [
            "",
            "test a ... ok",
            "test result: pending",
            "test result: ok. 3 passed",
        ] {
            assert_eq!(Counts::of_line(line), None, "{line}");
        }
    }

    #[test]
    fn closing_lines_of_other_languages_are_counted() {
        let counts = |passed, failed, skipped| {
            Some(Counts {
                passed,
                failed,
                skipped,
            })
        };
        for (line, wanted) in [
            (
                "[doctest] test cases:   25 |   24 passed | 1 failed | 2 skipped",
                counts(24, 1, 2),
            ),
            ("83 passed, 1 skipped in 45.41s", counts(83, 0, 1)),
            (
                "2 failed, 3 passed, 1 skipped, 1 deselected in 61.62s (0:01:01)",
                counts(3, 2, 1),
            ),
            ("# pass 55", counts(55, 0, 0)),
            ("# fail 2", counts(0, 2, 0)),
            ("# skipped 1", counts(0, 0, 1)),
            ("# duration_ms 69157.9", None),
            ("# Subtest: empty is exact", None),
            (
                "[doctest] assertions: 1309 | 1309 passed | 0 failed |",
                None,
            ),
            ("made in Paris", None),
        ] {
            assert_eq!(Counts::of_summary(line), wanted, "{line}");
        }
    }

    #[test]
    fn a_runner_that_did_not_compile_has_failed() {
        assert_eq!(Counts::default().with_status(false), Counts::failed());
        assert_eq!(Counts::passed().with_status(true), Counts::passed());
    }

    #[test]
    fn the_closing_line_is_the_plain_one() {
        let counts = Counts {
            passed: 12,
            failed: 0,
            skipped: 3,
        };
        assert_eq!(counts.to_string(), "12 passed, 0 failed, 3 skipped");
    }
}
