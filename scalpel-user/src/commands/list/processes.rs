//! `list processes`: what can be watched, the runtimes in it, and what each offers now.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::exit::Outcome;
use crate::output::table::{Align, Table};
use crate::output::{Output, Stream, wrapped};
use crate::plan::{ListPlan, words::Pattern};
use crate::record::installed;
use crate::survey::runtimes::{self, Offer, Offered};
use crate::target::{Found, Process, processes};

type NameTest = Box<dyn Fn(&str) -> bool>;

#[derive(Serialize)]
struct Row<'a> {
    pid: u32,
    name: &'a str,
    uid: u32,
    threads: u32,
    exe: Option<&'a str>,
    runtimes: Vec<&'static str>,
    offers: Vec<OfferRow>,
}

/// What one runtime offers to `record --pid`.
#[derive(Serialize)]
struct OfferRow {
    runtime: &'static str,
    version: Option<String>,
    offers: Offered,
    why_not: Option<String>,
}

impl OfferRow {
    fn of(offer: Offer) -> Self {
        Self {
            runtime: offer.present.runtime.word(),
            version: offer.present.version,
            offers: offer.offered,
            why_not: offer.why_not,
        }
    }

    /// `python 3.14.8 (calls)`.
    fn text(&self) -> String {
        let version = self.version.as_ref().map(|version| format!(" {version}"));
        format!(
            "{}{} ({})",
            self.runtime,
            version.unwrap_or_default(),
            self.offers.word()
        )
    }
}

pub(super) fn run(plan: &ListPlan, output: &Output) -> anyhow::Result<Outcome> {
    let matches = matcher(plan.pattern.as_ref())?;
    let mut found = processes();
    found.retain(|process| matches(&process.name) || process.exe.as_deref().is_ok_and(&matches));
    let installed = installed();
    let row = |process| row(process, offers(process, &installed));
    let rows: Vec<Row<'_>> = found.iter().map(row).collect();
    let text = if plan.json {
        serde_json::to_string_pretty(&rows)? + "\n"
    } else {
        table(&rows, output) + &legend(&rows, output.stdout())
    };
    output.data(text)?;
    Ok(Outcome::Done)
}

/// Empty also where the process has ended, or may not be looked at.
fn offers(process: &Found, installed: &runtimes::Installed) -> Vec<OfferRow> {
    let process = Process::open(process.pid);
    let offers = process.map(|process| runtimes::offers(&process, installed));
    let offers = offers.ok().and_then(Result::ok).unwrap_or_default();
    offers.into_iter().map(OfferRow::of).collect()
}

/// What the words in brackets mean, and why some offer no more.
fn legend(rows: &[Row<'_>], stream: Stream) -> String {
    let all = || rows.iter().flat_map(|row| &row.offers);
    let meanings: BTreeSet<String> = all()
        .map(|offer| format!("{}: {}", offer.offers.word(), offer.offers.meaning()))
        .collect();
    let reasons: BTreeSet<String> = all()
        .filter_map(|offer| Some(format!("{}: {}", offer.runtime, offer.why_not.as_ref()?)))
        .collect();
    let lines = meanings.into_iter().chain(reasons);
    let lines = lines.map(|line| wrapped(&line, stream.room(4)).join("\n    "));
    let lines: Vec<String> = lines.map(|line| format!("  {line}\n")).collect();
    if lines.is_empty() {
        return String::new();
    }
    format!("\nWith record --pid:\n{}", lines.concat())
}

fn row(process: &Found, offers: Vec<OfferRow>) -> Row<'_> {
    Row {
        pid: process.pid.0,
        name: &process.name,
        uid: process.uid,
        threads: process.threads,
        exe: process.exe.as_deref().ok(),
        runtimes: offers.iter().map(|offer| offer.runtime).collect(),
        offers,
    }
}

fn table(rows: &[Row<'_>], output: &Output) -> String {
    let columns = [
        ("PID", Align::Right),
        ("NAME", Align::Left),
        ("UID", Align::Right),
        ("THREADS", Align::Right),
        ("RUNTIMES", Align::Left),
        ("PROGRAM", Align::Left),
    ];
    let mut table = Table::new(&columns, output.stdout());
    for row in rows {
        let runtimes: Vec<String> = row.offers.iter().map(OfferRow::text).collect();
        let runtimes = if runtimes.is_empty() {
            "-".into()
        } else {
            runtimes.join(", ")
        };
        let exe = row.exe.unwrap_or("(not permitted to see)");
        table.row([
            row.pid.to_string(),
            row.name.into(),
            row.uid.to_string(),
            row.threads.to_string(),
            runtimes,
            exe.into(),
        ]);
    }
    table.to_string()
}

/// A test of names: a glob also finds a name that merely contains it, as a shell user expects of `list processes redis`.
fn matcher(pattern: Option<&Pattern>) -> anyhow::Result<NameTest> {
    Ok(match pattern {
        None => Box::new(|_| true),
        Some(Pattern::Regex(regex)) => {
            let regex = regex::Regex::new(regex)?;
            Box::new(move |name| regex.is_match(name))
        }
        Some(pattern) => {
            let text = pattern.to_string();
            let glob = globset::Glob::new(&text)?.compile_matcher();
            Box::new(move |name| glob.is_match(name) || name.contains(&text))
        }
    })
}
