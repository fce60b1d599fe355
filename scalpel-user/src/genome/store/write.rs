//! Writes all rows of a genome in one transaction.

use std::path::Path;

use rusqlite::{Connection, Statement, params, params_from_iter};

use super::{bulk, exists, kept, nodes, returns, schema};
use crate::catalog::{Catalog, FactsOfFiles, Kept, Matches};
use crate::event::FuncId;
use crate::function::{FunctionInfo, FunctionTable, UnknownReason};
use crate::genome::merge::Merged;
use crate::genome::{Genome, loss, totals};
use crate::tree::{Cell, Context, Histogram, Metrics, Tree};

pub(super) type Sqlite<T> = rusqlite::Result<T>;

/// What a file will hold: runs over one set of functions and contexts.
pub(super) struct Rows<'a> {
    functions: &'a FunctionTable,
    contexts: &'a [Context],
    runs: Vec<&'a Genome>,
    catalog: &'a Catalog,
    facts: &'a FactsOfFiles,
    matches: &'a Matches,
}

impl<'a> Rows<'a> {
    /// One recording.
    pub(super) fn of(genome: &'a Genome) -> Self {
        Self {
            functions: &genome.functions,
            contexts: &genome.tree.contexts,
            runs: vec![genome],
            catalog: &genome.catalog,
            facts: &genome.facts,
            matches: &genome.matches,
        }
    }

    /// Many.
    pub(super) fn of_merged(merged: &'a Merged) -> Self {
        Self {
            functions: &merged.functions,
            contexts: &merged.contexts,
            runs: merged.runs.values().collect(),
            catalog: &merged.catalog,
            facts: &merged.facts,
            matches: &merged.matches,
        }
    }

    /// Runs with their numbers.
    fn runs(&self) -> impl Iterator<Item = (i64, &'a Genome)> {
        (1i64..).zip(self.runs.iter().copied())
    }

    /// All contexts.
    pub(super) const fn contexts(&self) -> &'a [Context] {
        self.contexts
    }

    /// The trees of all runs.
    pub(super) fn trees(&self) -> impl Iterator<Item = &'a Tree> {
        self.runs.iter().map(|run| &run.tree)
    }

    pub(super) fn cells(&self) -> impl Iterator<Item = &'a Cell> {
        self.trees().flat_map(|tree| &tree.cells)
    }
}

/// Fills the empty file at `path`. `max_pages` is a limit for tests of a full disk.
pub(super) fn write(genome: &Rows<'_>, path: &Path, max_pages: Option<u32>) -> Sqlite<()> {
    let roots = fill(path, max_pages, |db| {
        write_rows(genome, db)?;
        exists::write(genome.catalog, db)?;
        exists::write_facts(genome.facts, db)?;
        exists::write_matches(genome.matches, db)?;
        nodes::roots(db)
    })?;
    nodes::write(genome, path, &roots).map_err(bulk::error)
}

/// Fills the empty file at `path` with what exists, and no recording.
pub(super) fn write_catalog(catalog: &Catalog, path: &Path) -> Sqlite<()> {
    fill(path, None, |db| exists::write(catalog, db))
}

/// The same with what the next build needs.
pub(super) fn write_kept(kept: &Kept, path: &Path) -> Sqlite<()> {
    fill(path, None, |db| {
        exists::write(&kept.catalog, db)?;
        exists::write_facts(&kept.facts, db)
    })
}

fn fill<T>(
    path: &Path,
    max_pages: Option<u32>,
    rows: impl FnOnce(&Connection) -> Sqlite<T>,
) -> Sqlite<T> {
    let mut db = Connection::open(path)?;
    // The file is aside and fsynced before it gets its name: a journal would only write everything twice.
    db.pragma_update(None, "page_size", bulk::PAGE as u32)?;
    db.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; \
         PRAGMA temp_store = MEMORY; PRAGMA cache_size = -65536;",
    )?;
    db.pragma_update(None, "application_id", schema::APPLICATION_ID)?;
    db.pragma_update(None, "user_version", schema::VERSION)?;
    if let Some(pages) = max_pages {
        db.pragma_update(None, "max_page_count", pages)?;
    }
    let transaction = db.transaction()?;
    for (_, text) in schema::tables(schema::VERSION) {
        transaction.execute(text, [])?;
    }
    transaction.execute(exists::schema::FACTS, [])?;
    transaction.execute(exists::schema::STATES, [])?;
    transaction.execute_batch(schema::SUMS)?;
    transaction.execute_batch(exists::schema::VIEWS)?;
    let wrote = rows(&transaction)?;
    transaction.commit()?;
    db.close().map_err(|(_, error)| error)?;
    Ok(wrote)
}

/// Size the file will have, estimated from above: for a message about a full disk.
pub(super) fn needed_bytes(genome: &Rows<'_>) -> u64 {
    let text: usize = genome
        .functions
        .iter()
        .map(|(_, f)| {
            160 + 2 * (f.name.len() + f.module.len())
                + f.raw_name.len()
                + f.path.len()
                + f.exit_reason.len()
        })
        .sum();
    let of_run = |run: &&Genome| run.tree.cells.len() * 64 + run.tree.threads.len() * 64;
    let rows = genome.runs.iter().map(of_run).sum::<usize>() + genome.contexts.len() * 48;
    let facts: usize = genome.facts.values().map(|(_, facts)| facts.len()).sum();
    let matches = 24 * (genome.matches.outcomes.len() + genome.matches.states.len());
    let kept: usize = genome.runs.iter().map(|run| run.kept.len() * 64).sum();
    (text + rows + kept + facts + matches + (1 << 16)) as u64 + needed_for(genome.catalog)
}

/// The same for what exists.
pub(super) fn needed_for(catalog: &Catalog) -> u64 {
    let text: usize = catalog
        .definitions
        .iter()
        .map(|definition| 160 + definition.name.len() + definition.qualified.len())
        .sum();
    let rows = catalog.edges.len() * 32 + catalog.pieces.len() * 40 + catalog.files.len() * 160;
    (text + rows + (1 << 16)) as u64
}

fn write_rows(genome: &Rows<'_>, db: &Connection) -> Sqlite<()> {
    write_runs(genome, db)?;
    write_functions(genome, db)?;
    write_threads(genome, db)?;
    write_histograms(genome, "histograms", |tree| &tree.histograms, db)?;
    write_histograms(
        genome,
        schema::CPU_HISTOGRAMS,
        |tree| &tree.cpu_histograms,
        db,
    )?;
    for (number, run) in genome.runs() {
        write_doubts(number, run, db)?;
        kept::write(number, run, db)?;
        returns::write(number, &run.tree, db)?;
    }
    write_sums(genome, db)
}

/// A counter as SQLite stores it. One absurd number must not cost the whole recording: it is stored as the largest.
pub(super) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn insert<'db>(
    db: &'db Connection,
    table: &str,
    columns: usize,
) -> Sqlite<Statement<'db>> {
    db.prepare(&format!(
        "INSERT INTO {table} VALUES (?{})",
        ", ?".repeat(columns - 1)
    ))
}

fn write_runs(genome: &Rows<'_>, db: &Connection) -> Sqlite<()> {
    let mut row = insert(db, "runs", 17)?;
    for (number, genome) in genome.runs() {
        let run = &genome.run;
        let (low, high) = run.probe_cost_ns.unzip();
        row.execute(params![
            number,
            run.uuid,
            run.pid.0,
            run.command,
            run.host,
            run.kernel,
            int(run.started_unix_ns),
            int(run.started.0),
            int(genome.ended.0),
            genome.cut,
            run.mode,
            run.version,
            low.map(int),
            high.map(int),
            run.sample_hz,
            int(genome.tree.window_ns),
            int(genome.tree.folded_calls),
        ])?;
    }
    Ok(())
}

fn write_functions(genome: &Rows<'_>, db: &Connection) -> Sqlite<()> {
    let mut row = insert(db, "functions", 25)?;
    for (id, info) in genome.functions.iter() {
        write_function(&mut row, id.get(), info)?;
    }
    Ok(())
}

fn write_function(row: &mut Statement<'_>, id: u32, info: &FunctionInfo) -> Sqlite<()> {
    let unknown = info.unknown.as_ref();
    row.execute(params![
        id,
        info.key(),
        info.name,
        info.raw_name,
        info.module,
        info.path,
        info.file,
        info.line,
        info.language.word(),
        info.build_id,
        info.file_offset.cast_signed(),
        int(info.size),
        info.site_delta,
        info.exit.word(),
        info.exit_reason,
        unknown.map(UnknownReason::word),
        unknown.and_then(schema::unknown_detail),
        info.ordinal,
        info.place.end_line,
        info.place.column,
        info.place.range.map(|(start, _)| start),
        info.place.range.map(|(_, end)| end),
        blob(info.place.body_hash),
        blob(info.place.text_hash),
        info.place.flags,
    ])?;
    Ok(())
}

/// A hash as a blob, as integers of SQLite are signed; NULL for 0, which is *not known*.
fn blob(hash: u64) -> Option<[u8; 8]> {
    (hash != 0).then(|| hash.to_be_bytes())
}

fn write_threads(genome: &Rows<'_>, db: &Connection) -> Sqlite<()> {
    let mut row = insert(db, "threads", 7)?;
    let threads = genome
        .runs()
        .flat_map(|(number, run)| run.tree.threads.iter().map(move |thread| (number, thread)));
    for (id, (number, thread)) in (0i64..).zip(threads) {
        let (events, lost) = (int(thread.events), int(thread.lost));
        row.execute(params![
            id,
            number,
            thread.pid.0,
            thread.tid.0,
            thread.name,
            events,
            lost
        ])?;
    }
    Ok(())
}

fn write_histograms(
    genome: &Rows<'_>,
    table: &str,
    of: impl Fn(&Tree) -> &[(FuncId, Histogram)],
    db: &Connection,
) -> Sqlite<()> {
    let mut row = insert(db, table, 4)?;
    for (number, run) in genome.runs() {
        for (func, histogram) in of(&run.tree) {
            for &(bucket, count) in &histogram.buckets {
                row.execute((number, func.get(), bucket, int(count)))?;
            }
        }
    }
    Ok(())
}

fn write_doubts(run: i64, genome: &Genome, db: &Connection) -> Sqlite<()> {
    let mut row = insert(db, "faults", 7)?;
    for (func, faults) in &genome.tree.faults {
        let columns = schema::faults_to_columns(faults).map(int);
        row.execute(params_from_iter(
            [run, i64::from(func.get())].into_iter().chain(columns),
        ))?;
    }
    let mut row = insert(db, "losses", 5)?;
    for loss in &genome.losses {
        let func = loss.func.map(FuncId::get);
        row.execute(params![
            run,
            loss::word(loss.class),
            loss.cpu,
            func,
            int(loss.count)
        ])?;
    }
    let mut row = insert(db, "bounds", 4)?;
    for bound in &genome.bounds {
        let since = bound.since.map(|time| int(time.0));
        row.execute(params![run, bound.func.get(), since, bound.reason])?;
    }
    let mut row = insert(db, "notes", 2)?;
    for note in &genome.notes {
        row.execute((run, note))?;
    }
    let mut row = insert(db, "counters", 3)?;
    for (counter, &count) in &genome.counters {
        row.execute((run, counter.word(), int(count)))?;
    }
    let mut row = insert(db, "blind_spots", 3)?;
    for spot in &genome.blind_spots {
        row.execute((run, &spot.probe, &spot.what))?;
    }
    Ok(())
}

fn write_sums(genome: &Rows<'_>, db: &Connection) -> Sqlite<()> {
    let mut row = insert(db, "func_total", 17)?;
    let totals = totals::functions_of_cells(genome.contexts, genome.cells(), genome.functions);
    for (func, total) in (1i64..).zip(totals) {
        let m = &total.metrics;
        let [self_wall, self_cpu, total_wall, total_cpu] = times(m);
        if total.contexts > 0 {
            row.execute(params![
                func,
                int(m.calls),
                int(m.timed),
                self_wall,
                self_cpu,
                total_wall,
                total_cpu,
                int(m.samples),
                int(total.total_samples),
                int(m.sampled_ns),
                int(total.total_sampled_ns),
                int(m.unwound),
                int(m.lost),
                int(m.probe_events),
                int(m.waits),
                int(m.off_cpu_ns),
                int(total.total_off_cpu_ns),
            ])?;
        }
    }
    Ok(())
}

/// Self wall, self CPU, total wall, total CPU; NULL where nothing was timed.
fn times(m: &Metrics) -> [Option<i64>; 4] {
    let measured = |count: u64, value: u64| (count > 0).then(|| int(value));
    [
        measured(m.timed, m.self_wall_ns),
        measured(m.cpu_timed, m.self_cpu_ns),
        measured(m.timed, m.total_wall_ns),
        measured(m.cpu_timed, m.total_cpu_ns),
    ]
}
