//! `report --json`, read as another program would read it.
//!
//! Every field that DESIGN promises is required here: a missing or renamed one fails every test.

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::truth::Truth;

/// The whole object.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Report {
    /// Version of the shape.
    pub schema: serde_json::Value,
    /// The recording.
    pub run: Run,
    /// Events seen.
    pub events: u64,
    /// Events lost.
    pub lost: u64,
    /// Share of what ran without a name, 0 to 1; `null` when nothing ran.
    pub unknown_share: Option<f64>,
    /// `null` without a static side.
    pub match_rate: Option<f64>,
    /// Warnings about this result.
    pub doubts: Vec<Doubt>,
    /// Functions.
    pub functions: Vec<Function>,
    /// Call edges.
    pub edges: Vec<Edge>,
    /// Threads.
    pub threads: Vec<Thread>,
}

/// Facts about the recording.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Run {
    /// Main target.
    pub pid: u32,
    /// Its command.
    pub command: String,
    /// Host name.
    pub host: String,
    /// Kernel release.
    pub kernel: String,
    /// When it started.
    pub started: serde_json::Value,
    /// Length in ns.
    pub duration_ns: Option<u64>,
    /// `trace`, `sample`, `trace+sample`.
    pub mode: String,
}

/// What to doubt, why it matters, and what to do.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Doubt {
    /// What happened.
    pub what: String,
    /// Why it matters.
    pub why: String,
    /// What to do about it.
    #[serde(rename = "do")]
    pub action: String,
}

/// One function. `None` = not measured.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Function {
    /// Key that survives rebuilds.
    pub key: String,
    /// Demangled name.
    pub name: String,
    /// File name of the image.
    pub module: String,
    /// Source file.
    pub file: Option<String>,
    /// Source line.
    pub line: Option<u32>,
    /// Language.
    pub language: String,
    /// Calls seen.
    pub calls: Option<u64>,
    /// Wall time in the function itself.
    pub self_wall_ns: Option<u64>,
    /// Wall time with callees.
    pub total_wall_ns: Option<u64>,
    /// CPU time in the function itself.
    pub self_cpu_ns: Option<u64>,
    /// CPU time with callees.
    pub total_cpu_ns: Option<u64>,
    /// What the probes cost: a number or an interval.
    pub overhead_ns: serde_json::Value,
    /// Samples whose innermost frame it was.
    #[serde(default)]
    pub samples: Option<u64>,
    /// Calls ended by exception or jump.
    pub unwound: Option<u64>,
    /// Events lost.
    pub lost: Option<u64>,
    /// What is known of it.
    pub state: String,
    /// Warnings about it.
    pub doubts: serde_json::Value,
}

/// One call edge.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Edge {
    /// Key of the caller.
    pub caller: Option<String>,
    /// Key of the callee.
    pub callee: String,
    /// Calls.
    pub calls: Option<u64>,
    /// Wall time of the callee below this caller.
    pub total_wall_ns: Option<u64>,
    /// CPU time of the callee below this caller.
    pub total_cpu_ns: Option<u64>,
    /// How the edge is known.
    pub source: String,
}

/// One thread.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Thread {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Name.
    pub name: Option<String>,
    /// Events seen.
    pub events: u64,
    /// Events lost.
    pub lost: u64,
}

impl Report {
    /// Parses a report.
    pub fn parse(json: &str) -> anyhow::Result<Self> {
        serde_json::from_str(json).with_context(|| {
            format!(
                "not the promised report: {}",
                json.get(..400).unwrap_or(json)
            )
        })
    }

    /// All functions with this name.
    pub fn named(&self, name: &str) -> Vec<&Function> {
        self.functions
            .iter()
            .filter(|function| function.name == name)
            .collect()
    }

    /// The one function with this name.
    pub fn function(&self, name: &str) -> anyhow::Result<&Function> {
        match self.named(name).as_slice() {
            [one] => Ok(one),
            [] => {
                let all: Vec<_> = self
                    .functions
                    .iter()
                    .map(|f| format!("{}={:?}", f.name, f.calls))
                    .collect();
                anyhow::bail!(
                    "{name} is not in the report; there are: {}; doubts: {:#?}",
                    all.join(", "),
                    self.doubts
                )
            }
            many => anyhow::bail!("{name} is {} functions: {many:#?}", many.len()),
        }
    }

    /// Calls of the one function with this name; 0 if it never ran.
    pub fn calls(&self, name: &str) -> anyhow::Result<u64> {
        self.function(name)?
            .calls
            .with_context(|| format!("calls of {name} are null"))
    }

    /// Calls from `caller` to `callee`, by name, over all edges between them.
    pub fn edge_calls(&self, caller: &str, callee: &str) -> u64 {
        let keys = |name: &str| {
            self.named(name)
                .iter()
                .map(|f| f.key.clone())
                .collect::<Vec<_>>()
        };
        let (callers, callees) = (keys(caller), keys(callee));
        let between = |edge: &&Edge| {
            edge.caller
                .as_ref()
                .is_some_and(|key| callers.contains(key))
                && callees.contains(&edge.callee)
        };
        self.edges
            .iter()
            .filter(between)
            .filter_map(|edge| edge.calls)
            .sum()
    }

    /// Fails unless every function and edge that the program counted has exactly that count here.
    pub fn agrees_with(&self, truth: &Truth) -> anyhow::Result<()> {
        self.counts_agree_with(truth)?;
        let wrong: Vec<String> = truth
            .edges
            .iter()
            .map(|(caller, callee, calls)| {
                (caller, callee, *calls, self.edge_calls(caller, callee))
            })
            .filter(|(_, _, told, seen)| told != seen)
            .map(|(caller, callee, told, seen)| {
                format!("{caller} -> {callee}: {seen} seen, {told} made")
            })
            .collect();
        ensure!(
            wrong.is_empty(),
            "edges differ: {wrong:#?}\nall edges: {:#?}",
            self.edge_list()
        );
        Ok(())
    }

    /// Fails unless every function that the program counted has exactly that count here, and nothing was lost.
    pub fn counts_agree_with(&self, truth: &Truth) -> anyhow::Result<()> {
        let mut wrong = Vec::new();
        for (name, &told) in &truth.calls {
            let seen = match self.named(name).as_slice() {
                [] => 0,
                found => found.iter().filter_map(|function| function.calls).sum(),
            };
            if seen != told {
                wrong.push(format!("{name}: {seen} seen, {told} made"));
            }
        }
        ensure!(
            wrong.is_empty(),
            "counts differ: {wrong:#?}\nlost {}, doubts: {:#?}",
            self.lost,
            self.doubts
        );
        ensure!(
            self.lost == 0,
            "{} events lost, doubts: {:#?}",
            self.lost,
            self.doubts
        );
        Ok(())
    }

    /// Fails if a function has more calls here than it made, or fewer without a word about it.
    pub fn counts_do_not_exceed(&self, truth: &Truth) -> anyhow::Result<()> {
        let mut wrong = Vec::new();
        for (name, &told) in &truth.calls {
            let found = self.named(name);
            let seen: u64 = found.iter().filter_map(|function| function.calls).sum();
            let says_so = self.lost > 0
                || found
                    .iter()
                    .any(|f| f.doubts.as_array().is_some_and(|d| !d.is_empty()));
            if seen > told || (seen < told && !says_so) {
                wrong.push(format!(
                    "{name}: {seen} seen, {told} made, says so: {says_so}"
                ));
            }
        }
        ensure!(
            wrong.is_empty(),
            "counts differ: {wrong:#?}\nlost {}, doubts: {:#?}",
            self.lost,
            self.doubts
        );
        Ok(())
    }

    fn edge_list(&self) -> Vec<String> {
        let show = |e: &Edge| {
            format!(
                "{:?} -> {} {:?} ({})",
                e.caller, e.callee, e.calls, e.source
            )
        };
        self.edges.iter().map(show).collect()
    }
}
