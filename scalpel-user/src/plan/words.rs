//! The small languages of the flags: sizes, durations, budgets, function patterns.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::image;
use serde::{Deserialize, Serialize};

/// A number of bytes, typed with or without K, M, G (powers of 1024).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSize(pub u64);

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = text
            .get(digits.len()..)
            .unwrap_or_default()
            .to_ascii_uppercase();
        let shift = match unit.trim_end_matches('B').trim_end_matches('I') {
            "" => 0,
            "K" => 10,
            "M" => 20,
            "G" => 30,
            _ => return Err(format!("unknown unit `{unit}`; known are K, M, G")),
        };
        let number: u64 = digits
            .parse()
            .map_err(|_error| "a number of bytes looks like 16M".to_owned())?;
        number
            .checked_mul(1 << shift)
            .map(Self)
            .ok_or_else(|| "that is more than 16 EiB".to_owned())
    }
}

/// A length of time, typed in seconds or with us, ms, s, m, h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub struct Seconds(pub Duration);

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let factor = match text.get(number.len()..).unwrap_or_default() {
            "us" => 0.000_001,
            "ms" => 0.001,
            "" | "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            unit => return Err(format!("unknown unit `{unit}`; known are us, ms, s, m, h")),
        };
        let number: f64 = number
            .parse()
            .map_err(|_error| "a time looks like 10, 0.5, 500ms or 2m".to_owned())?;
        Duration::try_from_secs_f64(number * factor)
            .map(Self)
            .map_err(|error| error.to_string())
    }
}

/// How much the probes may slow the target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Overhead {
    /// What exceeds this share of the target's CPU time, in percent, is detached.
    Percent(f64),
    /// Nothing is detached.
    Off,
}

impl FromStr for Overhead {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" | "none" => Ok(Self::Off),
            _ => percent(text).map(Self::Percent),
        }
    }
}

impl fmt::Display for Overhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent} %"),
            Self::Off => f.write_str("off"),
        }
    }
}

/// A percentage from 0 to 100, with or without the sign.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').trim_end();
    match number.parse::<f64>() {
        Ok(value) if (0.0..=100.0).contains(&value) => Ok(value),
        Ok(_) => Err("a percentage is from 0 to 100".into()),
        Err(_) => Err("a percentage looks like 5 or 0.1".into()),
    }
}

/// Which functions a pattern means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pattern {
    /// A glob over raw and demangled names.
    Glob(String),
    /// A regular expression over raw and demangled names.
    Regex(String),
    /// A link-time address.
    Address(u64),
}

impl Pattern {
    /// One of names, as functions are looked for that are not there yet.
    pub(super) fn of_names(text: &str) -> Result<Self, String> {
        match text.parse()? {
            Self::Address(_) => Err("an address is no function's name: name it".into()),
            pattern => Ok(pattern),
        }
    }
}

impl FromStr for Pattern {
    type Err = String;

    /// Checked by who will use it, so that what is refused is refused before anything was done.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err("an empty pattern matches nothing; `*` matches all".into());
        }
        image::Pattern::parse(text).map_err(|error| said_by(&error))?;
        if let Some(inner) = text
            .strip_prefix('/')
            .and_then(|rest| rest.strip_suffix('/'))
        {
            return Ok(Self::Regex(inner.to_owned()));
        }
        match text
            .strip_prefix("0x")
            .map(|digits| u64::from_str_radix(digits, 16))
        {
            Some(Ok(address)) => Ok(Self::Address(address)),
            _ => Ok(Self::Glob(text.to_owned())),
        }
    }
}

/// An error and its causes in one line.
fn said_by(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Glob(glob) => f.write_str(glob),
            Self::Regex(regex) => write!(f, "/{regex}/"),
            Self::Address(address) => write!(f, "{address:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_binary_units() {
        let check = |text: &str, expect: Option<u64>| {
            assert_eq!(
                text.parse::<ByteSize>().ok().map(|size| size.0),
                expect,
                "{text}"
            );
        };
        check("4096", Some(4096));
        check("16M", Some(16 << 20));
        check("16MiB", Some(16 << 20));
        check("1g", Some(1 << 30));
        check("1.5M", None);
        check("M", None);
        check("-1", None);
        check("4T", None);
        check("99999999999G", None);
    }

    #[test]
    fn times_take_units_and_refuse_nonsense() {
        let check = |text: &str, expect: Option<u64>| {
            assert_eq!(
                text.parse::<Seconds>()
                    .ok()
                    .map(|time| time.0.as_millis() as u64),
                expect,
                "{text}"
            );
        };
        check("10", Some(10_000));
        check("0.5", Some(500));
        check("250ms", Some(250));
        check("2m", Some(120_000));
        check("1h", Some(3_600_000));
        check("-1", None);
        check("nan", None);
        check("inf", None);
        check("1d", None);
        check("", None);
    }

    #[test]
    fn budgets_are_percentages_or_off() {
        assert_eq!("off".parse(), Ok(Overhead::Off));
        assert_eq!("2.5".parse(), Ok(Overhead::Percent(2.5)));
        assert_eq!("2%".parse(), Ok(Overhead::Percent(2.0)));
        assert!("101".parse::<Overhead>().is_err());
        assert!("NaN".parse::<Overhead>().is_err());
    }

    #[test]
    fn patterns_are_told_apart_and_checked() {
        assert_eq!("http_*".parse(), Ok(Pattern::Glob("http_*".into())));
        assert_eq!("/^a.c$/".parse(), Ok(Pattern::Regex("^a.c$".into())));
        assert_eq!("0x1040".parse(), Ok(Pattern::Address(0x1040)));
        assert_eq!("operator/".parse(), Ok(Pattern::Glob("operator/".into())));
        assert!("/(/".parse::<Pattern>().is_err());
        assert_eq!("operator[]".parse(), Ok(Pattern::Glob("operator[]".into())));
        assert!("0xzz".parse::<Pattern>().is_err());
        assert!("".parse::<Pattern>().is_err());
    }
}
