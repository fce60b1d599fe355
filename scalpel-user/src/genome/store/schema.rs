//! The tables of a genome file, version 10. A change of any text here is a new version and a new section in FORMAT.md.
//!
//! Integers of SQLite are signed: file offsets keep their 64 bits (negative = that plus 2^64), counters stay below
//! 2^63. What is not known is NULL.

use crate::function::{ExitStrategy, Language, UnknownReason};
use crate::tree::{EdgeSource, FunctionFaults, Metrics};

/// `PRAGMA application_id`: "SCPG".
pub(super) const APPLICATION_ID: u32 = u32::from_be_bytes(*b"SCPG");

/// `PRAGMA user_version`.
pub(super) const VERSION: u32 = 10;

/// The oldest version that is still read: it has no tables of what exists.
pub(super) const OLDEST: u32 = 2;

/// Name and text of every table of what ran that a reader reads. The reader insists on the exact text: a view or an expression
/// index of that name could run forever.
pub(super) const TABLES: &[(&str, &str)] = &[
    (
        "runs",
        "CREATE TABLE runs(id INTEGER PRIMARY KEY, uuid TEXT NOT NULL UNIQUE, pid INTEGER NOT NULL, command TEXT NOT NULL, \
         host TEXT NOT NULL, kernel TEXT NOT NULL, started_unix_ns INTEGER NOT NULL, started_ns INTEGER NOT NULL, \
         ended_ns INTEGER NOT NULL, cut INTEGER NOT NULL, mode TEXT NOT NULL, version TEXT NOT NULL, \
         probe_cost_low_ns INTEGER, probe_cost_high_ns INTEGER, sample_hz INTEGER NOT NULL, window_ns INTEGER NOT NULL, \
         folded_calls INTEGER NOT NULL) STRICT",
    ),
    (
        "functions",
        "CREATE TABLE functions(id INTEGER PRIMARY KEY, key TEXT NOT NULL, name TEXT NOT NULL, raw_name TEXT NOT NULL, \
         module TEXT NOT NULL, path TEXT NOT NULL, file TEXT, line INTEGER, language TEXT NOT NULL, build_id TEXT NOT NULL, \
         file_offset INTEGER NOT NULL, size INTEGER NOT NULL, site_delta INTEGER NOT NULL, exit TEXT NOT NULL, \
         exit_reason TEXT NOT NULL, unknown TEXT, unknown_detail TEXT, ordinal INTEGER NOT NULL, \
         end_line INTEGER, col INTEGER, text_start INTEGER, text_end INTEGER, body_hash BLOB, text_hash BLOB, \
         flags INTEGER NOT NULL) STRICT",
    ),
    (
        "threads",
        "CREATE TABLE threads(id INTEGER PRIMARY KEY, run INTEGER NOT NULL, pid INTEGER NOT NULL, tid INTEGER NOT NULL, \
         name TEXT NOT NULL, events INTEGER NOT NULL, lost INTEGER NOT NULL) STRICT",
    ),
    (
        "contexts",
        "CREATE TABLE contexts(id INTEGER PRIMARY KEY, parent INTEGER NOT NULL, func INTEGER, source INTEGER NOT NULL) STRICT",
    ),
    (
        "cells",
        "CREATE TABLE cells(window INTEGER NOT NULL, thread INTEGER NOT NULL, context INTEGER NOT NULL, \
         calls INTEGER NOT NULL, timed INTEGER NOT NULL, cpu_timed INTEGER NOT NULL, self_wall_ns INTEGER NOT NULL, \
         self_cpu_ns INTEGER NOT NULL, total_wall_ns INTEGER NOT NULL, total_cpu_ns INTEGER NOT NULL, \
         samples INTEGER NOT NULL, sampled_ns INTEGER NOT NULL, unwound INTEGER NOT NULL, inferred INTEGER NOT NULL, \
         lost INTEGER NOT NULL, tail_calls INTEGER NOT NULL, probe_events INTEGER NOT NULL, \
         pre_await_ns INTEGER NOT NULL, suspended_ns INTEGER NOT NULL, waits INTEGER NOT NULL, \
         off_cpu_ns INTEGER NOT NULL, preempted_ns INTEGER NOT NULL, io_wait_ns INTEGER NOT NULL, PRIMARY KEY(window, thread, context)) STRICT, WITHOUT ROWID",
    ),
    (
        "histograms",
        "CREATE TABLE histograms(run INTEGER NOT NULL, func INTEGER NOT NULL, bucket INTEGER NOT NULL, \
         count INTEGER NOT NULL, PRIMARY KEY(run, func, bucket)) STRICT, WITHOUT ROWID",
    ),
    (
        CPU_HISTOGRAMS,
        "CREATE TABLE cpu_histograms(run INTEGER NOT NULL, func INTEGER NOT NULL, bucket INTEGER NOT NULL, \
         count INTEGER NOT NULL, PRIMARY KEY(run, func, bucket)) STRICT, WITHOUT ROWID",
    ),
    (
        "faults",
        "CREATE TABLE faults(run INTEGER NOT NULL, func INTEGER NOT NULL, missed_enter INTEGER NOT NULL, \
         open_at_end INTEGER NOT NULL, depth_limited INTEGER NOT NULL, cut_by_loss INTEGER NOT NULL, \
         return_refused INTEGER NOT NULL, PRIMARY KEY(run, func)) STRICT, WITHOUT ROWID",
    ),
    (
        "losses",
        "CREATE TABLE losses(run INTEGER NOT NULL, class TEXT NOT NULL, cpu INTEGER, func INTEGER, count INTEGER NOT NULL) STRICT",
    ),
    (
        "bounds",
        "CREATE TABLE bounds(run INTEGER NOT NULL, func INTEGER NOT NULL, since_ns INTEGER, reason TEXT NOT NULL) STRICT",
    ),
    (
        "notes",
        "CREATE TABLE notes(run INTEGER NOT NULL, note TEXT NOT NULL) STRICT",
    ),
    (
        "counters",
        "CREATE TABLE counters(run INTEGER NOT NULL, name TEXT NOT NULL, count INTEGER NOT NULL) STRICT",
    ),
    (
        "blind_spots",
        "CREATE TABLE blind_spots(run INTEGER NOT NULL, probe TEXT NOT NULL, what TEXT NOT NULL) STRICT",
    ),
    (
        TRIGGERS,
        "CREATE TABLE triggers(run INTEGER NOT NULL, place INTEGER NOT NULL, text TEXT NOT NULL, threshold_ns INTEGER NOT NULL, \
         calls INTEGER NOT NULL, over INTEGER NOT NULL, kept INTEGER NOT NULL, endless INTEGER NOT NULL, \
         suspended INTEGER NOT NULL, headless INTEGER NOT NULL, slowest_ns INTEGER NOT NULL, \
         PRIMARY KEY(run, place)) STRICT, WITHOUT ROWID",
    ),
    (
        KEPT_CALLS,
        "CREATE TABLE kept_calls(run INTEGER NOT NULL, trigger_place INTEGER NOT NULL, func INTEGER NOT NULL, \
         pid INTEGER NOT NULL, tid INTEGER NOT NULL, began_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL, end_by TEXT NOT NULL, \
         cpu_ns INTEGER, waits INTEGER NOT NULL, waited_ns INTEGER NOT NULL, lost INTEGER NOT NULL, left_out INTEGER NOT NULL, \
         items INTEGER NOT NULL) STRICT",
    ),
    (
        RETURNED,
        "CREATE TABLE returned(run INTEGER NOT NULL, func INTEGER NOT NULL, calls INTEGER NOT NULL, other INTEGER NOT NULL, \
         least INTEGER, greatest INTEGER, PRIMARY KEY(run, func)) STRICT, WITHOUT ROWID",
    ),
    (
        RETURN_VALUES,
        "CREATE TABLE return_values(run INTEGER NOT NULL, func INTEGER NOT NULL, value INTEGER NOT NULL, \
         calls INTEGER NOT NULL, exact INTEGER NOT NULL, PRIMARY KEY(run, func, value)) STRICT, WITHOUT ROWID",
    ),
];

/// Table of inclusive CPU times, where calls were counted.
pub(super) const CPU_HISTOGRAMS: &str = "cpu_histograms";

/// The first version with that table.
pub(super) const CPU_HISTOGRAMS_SINCE: u32 = 5;

/// Tables of triggers and of the calls that they kept.
pub(super) const TRIGGERS: &str = "triggers";
pub(super) const KEPT_CALLS: &str = "kept_calls";

/// The first version with those tables.
pub(super) const TRIGGERS_SINCE: u32 = 9;

/// Tables of what functions returned.
pub(super) const RETURNED: &str = "returned";
pub(super) const RETURN_VALUES: &str = "return_values";

/// The first version with those tables.
pub(super) const RETURNS_SINCE: u32 = 10;

/// The first version with tables of what exists.
pub(super) const EXISTS_SINCE: u32 = 3;

/// The first version with tables of what functions are among what exists.
pub(super) const MATCHES_SINCE: u32 = 4;

/// Tables of version 2 that had another shape: what the reader puts in the place of columns that came later, and the
/// text.
pub(super) const BEFORE_3: &[(&str, &str, &str)] = &[
    (
        "functions",
        "*, NULL, NULL, NULL, NULL, NULL, NULL, 0",
        "CREATE TABLE functions(id INTEGER PRIMARY KEY, key TEXT NOT NULL, name TEXT NOT NULL, raw_name TEXT NOT NULL, \
         module TEXT NOT NULL, path TEXT NOT NULL, file TEXT, line INTEGER, language TEXT NOT NULL, build_id TEXT NOT NULL, \
         file_offset INTEGER NOT NULL, size INTEGER NOT NULL, site_delta INTEGER NOT NULL, exit TEXT NOT NULL, \
         exit_reason TEXT NOT NULL, unknown TEXT, unknown_detail TEXT, ordinal INTEGER NOT NULL) STRICT",
    ),
    (
        "histograms",
        "1, *",
        "CREATE TABLE histograms(func INTEGER NOT NULL, bucket INTEGER NOT NULL, count INTEGER NOT NULL, \
         PRIMARY KEY(func, bucket)) STRICT, WITHOUT ROWID",
    ),
    (
        "faults",
        "1, *",
        "CREATE TABLE faults(func INTEGER PRIMARY KEY, missed_enter INTEGER NOT NULL, open_at_end INTEGER NOT NULL, \
         depth_limited INTEGER NOT NULL, cut_by_loss INTEGER NOT NULL, return_refused INTEGER NOT NULL) STRICT",
    ),
];

/// The same of versions before 7.
pub(super) const BEFORE_7: &[(&str, &str, &str)] = &[(
    "cells",
    "*, 0, 0, 0, 0",
    "CREATE TABLE cells(window INTEGER NOT NULL, thread INTEGER NOT NULL, context INTEGER NOT NULL, \
     calls INTEGER NOT NULL, timed INTEGER NOT NULL, cpu_timed INTEGER NOT NULL, self_wall_ns INTEGER NOT NULL, \
     self_cpu_ns INTEGER NOT NULL, total_wall_ns INTEGER NOT NULL, total_cpu_ns INTEGER NOT NULL, \
     samples INTEGER NOT NULL, sampled_ns INTEGER NOT NULL, unwound INTEGER NOT NULL, inferred INTEGER NOT NULL, \
     lost INTEGER NOT NULL, tail_calls INTEGER NOT NULL, probe_events INTEGER NOT NULL, \
     pre_await_ns INTEGER NOT NULL, suspended_ns INTEGER NOT NULL, PRIMARY KEY(window, thread, context)) STRICT, WITHOUT ROWID",
)];

fn older(table: &str, version: u32) -> Option<&'static (&'static str, &'static str, &'static str)> {
    let of = |before: u32, tables: &'static [(&str, &str, &str)]| {
        let there = move |name: &str| version < before && name == table;
        tables.iter().find(|(name, ..)| there(name))
    };
    of(3, BEFORE_3)
        .or_else(|| of(7, BEFORE_7))
        .or_else(|| of(8, super::exists::schema::BEFORE_8))
}

/// Name and text of every table of a file of `version`.
pub(super) fn tables(version: u32) -> impl Iterator<Item = (&'static str, &'static str)> {
    let exists: &[_] = if version < EXISTS_SINCE {
        &[]
    } else {
        super::exists::schema::TABLES
    };
    let matches: &[_] = if version < MATCHES_SINCE {
        &[]
    } else {
        super::exists::schema::MATCHES
    };
    let there = move |table: &&(&str, &str)| match table.0 {
        CPU_HISTOGRAMS => version >= CPU_HISTOGRAMS_SINCE,
        TRIGGERS | KEPT_CALLS => version >= TRIGGERS_SINCE,
        RETURNED | RETURN_VALUES => version >= RETURNS_SINCE,
        _ => true,
    };
    let all = TABLES.iter().filter(there).chain(exists).chain(matches);
    all.map(move |&(name, text)| {
        older(name, version).map_or((name, text), |&(name, _, older)| (name, older))
    })
}

/// What to select of a table of a file of `version`, so that its columns are those of this version.
pub(super) fn columns_of(table: &str, version: u32) -> &'static str {
    older(table, version).map_or("*", |&(_, columns, _)| columns)
}

/// Sums for people with a SQLite shell, and two views with names in them. A reader of ours derives them anew.
pub(super) const SUMS: &str = "\
CREATE TABLE func_total(func INTEGER PRIMARY KEY, calls INTEGER NOT NULL, timed INTEGER NOT NULL, self_wall_ns INTEGER, \
 self_cpu_ns INTEGER, total_wall_ns INTEGER, total_cpu_ns INTEGER, samples INTEGER NOT NULL, total_samples INTEGER NOT NULL, \
 sampled_ns INTEGER NOT NULL, total_sampled_ns INTEGER NOT NULL, unwound INTEGER NOT NULL, lost INTEGER NOT NULL, \
 probe_events INTEGER NOT NULL, waits INTEGER NOT NULL, off_cpu_ns INTEGER NOT NULL, \
 total_off_cpu_ns INTEGER NOT NULL) STRICT;
CREATE TABLE edge_total(caller INTEGER, callee INTEGER NOT NULL, calls INTEGER NOT NULL, total_wall_ns INTEGER, \
 total_cpu_ns INTEGER, samples INTEGER NOT NULL, source TEXT NOT NULL) STRICT;
CREATE VIEW hot_functions AS SELECT f.name, f.module, t.calls, t.self_cpu_ns, t.self_wall_ns, t.total_cpu_ns, t.total_wall_ns, \
 t.samples FROM func_total t JOIN functions f ON f.id = t.func ORDER BY t.self_cpu_ns DESC, t.samples DESC, t.calls DESC;
CREATE VIEW call_edges AS SELECT a.name AS caller, b.name AS callee, e.calls, e.total_wall_ns, e.total_cpu_ns, e.source \
 FROM edge_total e LEFT JOIN functions a ON a.id = e.caller JOIN functions b ON b.id = e.callee ORDER BY e.calls DESC;";

/// Number of metric columns of `cells`.
pub(super) const METRICS: usize = 20;

/// Metrics in the order of the columns.
pub(super) const fn to_columns(m: &Metrics) -> [u64; METRICS] {
    [
        m.calls,
        m.timed,
        m.cpu_timed,
        m.self_wall_ns,
        m.self_cpu_ns,
        m.total_wall_ns,
        m.total_cpu_ns,
        m.samples,
        m.sampled_ns,
        m.unwound,
        m.inferred,
        m.lost,
        m.tail_calls,
        m.probe_events,
        m.pre_await_ns,
        m.suspended_ns,
        m.waits,
        m.off_cpu_ns,
        m.preempted_ns,
        m.io_wait_ns,
    ]
}

/// Reverse of [`to_columns`].
pub(super) const fn from_columns(columns: [u64; METRICS]) -> Metrics {
    let [
        calls,
        timed,
        cpu_timed,
        self_wall_ns,
        self_cpu_ns,
        total_wall_ns,
        total_cpu_ns,
        samples,
        sampled_ns,
        unwound,
        inferred,
        lost,
        tail_calls,
        probe_events,
        pre_await_ns,
        suspended_ns,
        waits,
        off_cpu_ns,
        preempted_ns,
        io_wait_ns,
    ] = columns;
    Metrics {
        calls,
        timed,
        cpu_timed,
        self_wall_ns,
        self_cpu_ns,
        total_wall_ns,
        total_cpu_ns,
        samples,
        sampled_ns,
        unwound,
        inferred,
        lost,
        tail_calls,
        probe_events,
        pre_await_ns,
        suspended_ns,
        waits,
        off_cpu_ns,
        preempted_ns,
        io_wait_ns,
    }
}

/// Faults in the order of the columns.
pub(super) const fn faults_to_columns(f: &FunctionFaults) -> [u64; 5] {
    [
        f.missed_enter,
        f.open_at_end,
        f.depth_limited,
        f.cut_by_loss,
        f.return_refused,
    ]
}

/// Reverse of [`faults_to_columns`].
pub(super) const fn faults_from_columns(columns: [u64; 5]) -> FunctionFaults {
    let [
        missed_enter,
        open_at_end,
        depth_limited,
        cut_by_loss,
        return_refused,
    ] = columns;
    FunctionFaults {
        missed_enter,
        open_at_end,
        depth_limited,
        cut_by_loss,
        return_refused,
    }
}

/// Number of an edge source in `contexts`.
pub(super) const fn source_number(source: EdgeSource) -> u8 {
    match source {
        EdgeSource::Inlined => 4,
        EdgeSource::Sampled => 1,
        EdgeSource::CallSite => 2,
        EdgeSource::Exact => 3,
    }
}

/// Reverse of [`source_number`].
pub(super) const fn source_of(number: i64) -> Option<EdgeSource> {
    match number {
        1 => Some(EdgeSource::Sampled),
        4 => Some(EdgeSource::Inlined),
        2 => Some(EdgeSource::CallSite),
        3 => Some(EdgeSource::Exact),
        _ => None,
    }
}

/// Reverse of [`Language::word`].
pub(super) fn language_of(word: &str) -> Option<Language> {
    use Language::{
        C, Cpp, Dotnet, Go, Java, JavaScript, Kernel, Lua, Native, Php, Python, Ruby, Rust, Zig,
    };
    let all = [
        Native, C, Cpp, Rust, Go, Python, JavaScript, Kernel, Ruby, Php, Java, Dotnet, Lua, Zig,
    ];
    all.into_iter().find(|language| language.word() == word)
}

/// Reverse of [`ExitStrategy::word`].
pub(super) fn exit_of(word: &str) -> Option<ExitStrategy> {
    use ExitStrategy::{EntryOnly, None, Probe, RetOffsets, Return};
    [Return, RetOffsets, EntryOnly, None, Probe]
        .into_iter()
        .find(|exit| exit.word() == word)
}

/// The detail of a reason that [`UnknownReason::word`] does not tell.
pub(super) fn unknown_detail(reason: &UnknownReason) -> Option<&str> {
    match reason {
        UnknownReason::FileGone(detail) | UnknownReason::BadFile(detail) => Some(detail),
        _ => None,
    }
}

/// Reverse of [`UnknownReason::word`] with its detail.
pub(super) fn unknown_of(word: &str, detail: String) -> Option<UnknownReason> {
    use UnknownReason as R;
    [
        R::Stripped,
        R::Unmapped,
        R::Anonymous,
        R::FileGone(detail.clone()),
        R::FileChanged,
        R::BadFile(detail),
        R::NoSymbol,
        R::KernelHidden,
        R::ProcessGone,
        R::UndefinedId,
        R::Nameless,
        R::NameLost,
    ]
    .into_iter()
    .find(|reason| reason.word() == word)
}
