//! `list processes`: what can be watched, and the runtimes in it.

use serde::Serialize;

use crate::exit::Outcome;
use crate::output::Output;
use crate::output::table::{Align, Table};
use crate::plan::{ListPlan, words::Pattern};
use crate::target::{Found, processes};

type NameTest = Box<dyn Fn(&str) -> bool>;

#[derive(Serialize)]
struct Row<'a> {
    pid: u32,
    name: &'a str,
    uid: u32,
    threads: u32,
    exe: Option<&'a str>,
    runtimes: Vec<&'static str>,
}

pub(super) fn run(plan: &ListPlan, output: &Output) -> anyhow::Result<Outcome> {
    let matches = matcher(plan.pattern.as_ref())?;
    let mut found = processes();
    found.retain(|process| matches(&process.name) || process.exe.as_deref().is_ok_and(&matches));
    let rows: Vec<Row<'_>> = found.iter().map(row).collect();
    let text = if plan.json {
        serde_json::to_string_pretty(&rows)? + "\n"
    } else {
        table(&rows, output)
    };
    output.data(text)?;
    Ok(Outcome::Done)
}

fn row(process: &Found) -> Row<'_> {
    Row {
        pid: process.pid.0,
        name: &process.name,
        uid: process.uid,
        threads: process.threads,
        exe: process.exe.as_deref().ok(),
        runtimes: process
            .runtimes
            .iter()
            .map(|runtime| runtime.word())
            .collect(),
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
        let runtimes = if row.runtimes.is_empty() {
            "-".into()
        } else {
            row.runtimes.join(",")
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
