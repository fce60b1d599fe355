//! What works on this host and for this process, what does not, and what to do about it.
//!
//! Facts -> checks -> text or JSON, all pure; who reads the facts and prints the answer is `commands`.

mod host;
mod process;
mod render;

use serde::Serialize;

pub use host::check_host;
pub use process::{TargetFacts, check_process};
pub use render::{json, text};

/// How one check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Well.
    Ok,
    /// Something is not offered, or may go wrong.
    Warn,
    /// Nothing can be recorded.
    Fail,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Stable name.
    pub name: &'static str,
    /// How it came out.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What follows from it; empty if nothing.
    pub why: String,
    /// The next step; empty if none is needed.
    pub next: String,
}

impl Check {
    /// All is well.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            status: Status::Ok,
            found: found.into(),
            why: String::new(),
            next: String::new(),
        }
    }

    /// Something to know.
    pub fn warn(
        name: &'static str,
        found: impl Into<String>,
        why: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Self {
            status: Status::Warn,
            why: why.into(),
            next: next.into(),
            ..Self::ok(name, found)
        }
    }

    /// Blocked.
    pub fn fail(
        name: &'static str,
        found: impl Into<String>,
        why: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Self {
            status: Status::Fail,
            ..Self::warn(name, found, why, next)
        }
    }
}

/// Whether something blocks recording.
pub fn blocked(checks: &[Check]) -> bool {
    checks.iter().any(|check| check.status == Status::Fail)
}
