//! What a fixture says about itself when it ends: one JSON line on its stdout.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde::Deserialize;

/// The program's own account of what it did.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Truth {
    /// Calls by function name.
    #[serde(default)]
    pub calls: BTreeMap<String, u64>,
    /// Calls by (caller, callee).
    #[serde(default)]
    pub edges: Vec<(String, String, u64)>,
    /// Anything else it measured, by name: `cpu_ns:burn`, `wall_ns:nap`.
    #[serde(default)]
    pub measured: BTreeMap<String, u64>,
}

impl Truth {
    /// The account in a program's output.
    pub fn of(stdout: &str) -> anyhow::Result<Self> {
        let line = stdout
            .lines()
            .find(|line| line.starts_with("{\"calls\""))
            .with_context(|| format!("the program printed no account of itself: {stdout}"))?;
        serde_json::from_str(line).with_context(|| format!("not an account: {line}"))
    }

    /// Calls of `function`.
    pub fn calls(&self, function: &str) -> anyhow::Result<u64> {
        self.calls
            .get(function)
            .copied()
            .with_context(|| format!("the program did not count {function}"))
    }

    /// The measurement `name`.
    pub fn measured(&self, name: &str) -> anyhow::Result<u64> {
        self.measured
            .get(name)
            .copied()
            .with_context(|| format!("the program did not measure {name}"))
    }
}
