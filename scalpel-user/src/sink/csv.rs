//! Rows as CSV: a heading, then a line a row; times in ns; an empty field is *not measured*.

use std::io::{self, Write};

use crate::report::{FunctionRow, GroupRow, Measures, PerCall};

const MEASURES: [&str; 30] = [
    "calls",
    "calls_at_most",
    "self_wall_ns",
    "total_wall_ns",
    "self_cpu_ns",
    "total_cpu_ns",
    "overhead_low_ns",
    "overhead_high_ns",
    "samples",
    "sampled_self_ns",
    "sampled_total_ns",
    "unwound",
    "lost",
    "pre_await_ns",
    "suspended_ns",
    "per_call_wall_calls",
    "per_call_wall_avg_ns",
    "per_call_wall_p50_ns",
    "per_call_wall_p90_ns",
    "per_call_wall_p99_ns",
    "per_call_cpu_calls",
    "per_call_cpu_avg_ns",
    "per_call_cpu_p50_ns",
    "per_call_cpu_p90_ns",
    "per_call_cpu_p99_ns",
    "waits",
    "self_off_cpu_ns",
    "total_off_cpu_ns",
    "preempted_ns",
    "io_wait_ns",
];

/// Writes functions.
pub fn functions(rows: &[FunctionRow], out: &mut dyn Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(
        [
            "key", "name", "module", "file", "line", "language", "state", "exit", "unknown",
        ]
        .into_iter()
        .chain(MEASURES)
        .chain(["returned", "doubts"]),
    )?;
    for row in rows {
        let line = row.line.map(|line| line.to_string());
        let state = serde_json::to_value(row.state)?;
        let names = [
            &row.key,
            &row.name,
            &row.module,
            row.file.as_deref().unwrap_or(""),
            line.as_deref().unwrap_or(""),
            row.language,
            state.as_str().unwrap_or(""),
            row.exit,
            row.unknown.unwrap_or(""),
        ];
        let names = names.map(harmless);
        let doubts = row.doubts.join("; ");
        csv.write_record(
            names
                .iter()
                .cloned()
                .chain(numbers(&row.measures))
                .chain([returned(row), doubts]),
        )?;
    }
    csv.flush()
}

/// `BITS=CALLS` for each value, then what has none of these; empty where nobody asked.
fn returned(row: &FunctionRow) -> String {
    let Some(returned) = &row.returned else {
        return String::new();
    };
    let values = returned.values.iter().map(|row| {
        let least = if row.exact { "" } else { ">" };
        format!("{}{least}={}", row.value.bits, row.calls)
    });
    let rest = [("other", returned.other), ("none", returned.without)];
    let rest = rest.map(|(what, calls)| format!("{what}={calls}"));
    values.chain(rest).collect::<Vec<_>>().join("; ")
}

/// Writes modules or threads; `what` heads the first column.
pub fn groups(what: &str, rows: &[GroupRow], out: &mut dyn Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record([what].into_iter().chain(MEASURES))?;
    for row in rows {
        csv.write_record(
            [harmless(&row.name)]
                .into_iter()
                .chain(numbers(&row.measures)),
        )?;
    }
    csv.flush()
}

/// A spreadsheet takes `=`, `+`, `-` and `@` for the start of a formula, and names come from somebody's file.
fn harmless(text: &str) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        format!("'{text}")
    } else {
        text.to_owned()
    }
}

fn numbers(m: &Measures) -> Vec<String> {
    let sums = [
        m.calls,
        m.calls_at_most,
        m.self_wall_ns,
        m.total_wall_ns,
        m.self_cpu_ns,
        m.total_cpu_ns,
        m.overhead_ns.map(|interval| interval.low),
        m.overhead_ns.map(|interval| interval.high),
        m.samples,
        m.sampled_self_ns,
        m.sampled_total_ns,
        Some(m.unwound),
        Some(m.lost),
        m.pre_await_ns,
        m.suspended_ns,
    ];
    let times = [m.per_call_wall, m.per_call_cpu]
        .into_iter()
        .flat_map(per_call);
    let waits = [
        m.waits,
        m.self_off_cpu_ns,
        m.total_off_cpu_ns,
        m.preempted_ns,
        m.io_wait_ns,
    ];
    sums.into_iter()
        .chain(times)
        .chain(waits)
        .map(|number| number.map(|number| number.to_string()).unwrap_or_default())
        .collect()
}

fn per_call(times: Option<PerCall>) -> [Option<u64>; 5] {
    [
        times.map(|times| times.calls),
        times.and_then(|times| times.avg_ns),
        times.map(|times| times.p50_ns),
        times.map(|times| times.p90_ns),
        times.map(|times| times.p99_ns),
    ]
}
