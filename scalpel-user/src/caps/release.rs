//! Kernel releases as numbers that compare.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// A kernel release: `6.12.14-arch1` is (6, 12, 14). What distributions add or backport does not show in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Release(pub u32, pub u32, pub u32);

impl FromStr for Release {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut numbers = text
            .split(['.', '-', '+', '_', ' '])
            .map(|part| part.parse::<u32>().ok());
        match (
            numbers.next().flatten(),
            numbers.next().flatten(),
            numbers.next().flatten(),
        ) {
            // `6.13-rc1` comes before 6.13, but has its features: they are merged before rc1.
            (Some(major), Some(minor), patch) => Ok(Self(major, minor, patch.unwrap_or(0))),
            _ => Err(format!("`{text}` is no kernel release")),
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)?;
        if self.2 > 0 {
            write!(f, ".{}", self.2)
        } else {
            Ok(())
        }
    }
}

impl Serialize for Release {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
