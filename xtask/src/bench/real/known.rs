//! What a recording knew in the end, and what it took.
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use scalpel_tests::scalpel::{self, Recorded};
use serde_json::Value;

/// Of one recording.
pub(super) struct Known {
    unnamed: Option<Unnamed>,
    lost_share: f64,
    memory_mib: f64,
    cpu_s: f64,
    lasted_s: f64,
    announced: Option<(f64, f64)>,
    functions: usize,
}

/// Where a recording into `folder` writes its summary.
pub(super) fn summary_in(folder: &Path) -> PathBuf {
    folder.join("summary.json")
}

impl Known {
    /// Of a recording whose collector took so much memory. Fails where it failed.
    pub(super) fn of(recorded: &Recorded, memory_mib: f64) -> Result<Self> {
        ensure!(
            matches!(recorded.ended.code(), 0 | 5),
            "exit code {}: {}",
            recorded.ended.code(),
            recorded.ended.stderr
        );
        let report = scalpel::report_ended(&recorded.genome)?.expect_code(0)?;
        let report: Value = serde_json::from_str(&report.stdout)?;
        let count = |path: &str| report.pointer(path).and_then(Value::as_f64);
        let (events, lost) = count("/events")
            .zip(count("/lost"))
            .context("no events in the report")?;
        let folder = recorded
            .genome
            .parent()
            .context("a file lies in a folder")?;
        let summary = std::fs::read_to_string(summary_in(folder))?;
        let summary: Value = serde_json::from_str(&summary)?;
        let number = |path: &str| summary.pointer(path).and_then(Value::as_f64);
        let share = |key| number(&format!("/overhead/target_share_{key}"));
        Ok(Self {
            unnamed: Unnamed::of(&report),
            lost_share: lost / (lost + events).max(1.0),
            memory_mib,
            cpu_s: number("/overhead/collector_cpu_ns").context("no collector_cpu_ns")? / 1e9,
            lasted_s: count("/run/duration_ns").unwrap_or(0.0) / 1e9,
            announced: share("low").zip(share("high")),
            functions: ran(&report),
        })
    }
}

/// Functions that ran.
fn ran(report: &Value) -> usize {
    let functions = report.pointer("/functions").and_then(Value::as_array);
    let states = functions.into_iter().flatten().map(|one| one.get("state"));
    states
        .filter(|state| state.and_then(Value::as_str) == Some("ran"))
        .count()
}

/// Shares of what ran that have no name, and of its events by reason.
struct Unnamed {
    functions: f64,
    events: f64,
    reasons: Vec<(String, f64)>,
}

impl Unnamed {
    fn of(report: &Value) -> Option<Self> {
        let share = |key: &str| report.pointer("/unknown")?.get(key)?.as_f64();
        let (functions, events) = (share("functions")?, share("events")?);
        let told = report.pointer("/unknown/reasons")?.as_array()?;
        let told = told.iter().filter_map(|reason| {
            let name = reason.get("reason")?.as_str()?;
            Some((name.to_owned(), reason.get("events")?.as_f64()?))
        });
        let told: Vec<(String, f64)> = told.collect();
        let sum: f64 = told.iter().map(|(_, count)| count).sum();
        let of_all = |count: f64| events * count / sum.max(1.0);
        Some(Self {
            functions,
            events,
            reasons: told
                .into_iter()
                .map(|(name, count)| (name, of_all(count)))
                .collect(),
        })
    }
}

impl std::fmt::Display for Unnamed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reasons = self.reasons.iter();
        let reasons: Vec<String> = reasons
            .filter(|(_, share)| *share >= 0.0005)
            .map(|(name, share)| format!("{name} {:.1}", 100.0 * share))
            .collect();
        let (functions, events) = (100.0 * self.functions, 100.0 * self.events);
        write!(f, "{functions:.1} | {events:.1} | {}", reasons.join(", "))
    }
}

/// What the recordings of the last round knew.
#[derive(Default)]
pub(super) struct Table(Vec<(String, Known)>);

impl Table {
    /// In the place of the one of an earlier round.
    pub(super) fn add(&mut self, name: String, known: Known) {
        match self.0.iter_mut().find(|(other, _)| *other == name) {
            Some((_, old)) => *old = known,
            None => self.0.push((name, known)),
        }
    }

    /// As Markdown.
    pub(super) fn page(&self) -> String {
        let mut page = String::from(
            "| recording | functions that ran | without a name, % of functions | of events | why, % of events | lost, % | announced overhead, % | most memory, MiB | CPU of the collector, s | of so many s |\n\
             |---|---:|---:|---:|---|---:|---:|---:|---:|---:|\n",
        );
        for (name, known) in &self.0 {
            let unnamed = known.unnamed.as_ref();
            let unnamed = unnamed.map_or_else(|| "- | - | ".into(), Unnamed::to_string);
            let announced = known.announced.map_or_else(
                || "-".into(),
                |(low, high)| format!("{:.1} - {:.1}", 100.0 * low, 100.0 * high),
            );
            page += &format!(
                "| {name} | {} | {} | {:.2} | {announced} | {:.0} | {:.2} | {:.1} |\n",
                known.functions,
                unnamed,
                100.0 * known.lost_share,
                known.memory_mib,
                known.cpu_s,
                known.lasted_s,
            );
        }
        page.trim_end().to_owned()
    }
}
