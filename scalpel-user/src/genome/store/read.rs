//! Reads a genome from a file that may come from anybody.
//!
//! Three things keep a hostile file from doing harm: only our tables with our exact text are read (no views, no
//! triggers), every value is checked where it is read, and all rows together may not be larger than the file.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rusqlite::{Connection, OpenFlags, OptionalExtension, Row};

use super::budget::Budget;
use super::{GenomeError, header, schema};
use crate::event::{FuncId, MonoTime, Pid, Tid};
use crate::function::{FunctionInfo, FunctionTable, UnknownReason};
use crate::genome::{BlindSpot, Counter, Genome, loss};
use crate::input::{Bound, Loss, RunInfo};
use crate::tree::{Cell, Context, ContextId, FunctionFaults, Histogram, Thread, Tree};

/// What is wrong with the inside of a file.
#[derive(Debug)]
pub(super) enum Fault {
    Sqlite(rusqlite::Error),
    Damaged(String),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

pub(super) type Checked<T> = Result<T, Fault>;

pub(super) fn damaged<T>(what: impl Into<String>) -> Checked<T> {
    Err(Fault::Damaged(what.into()))
}

/// Reads the genome at `path`.
pub(super) fn read(path: &Path) -> Result<Genome, GenomeError> {
    let length = header::check(path)?;
    let genome = open(path)
        .map_err(Fault::from)
        .and_then(|db| read_tables(&db, Budget::new(length)));
    genome.map_err(|fault| match fault {
        Fault::Sqlite(source) => GenomeError::Read {
            path: path.to_owned(),
            source,
        },
        Fault::Damaged(what) => GenomeError::Damaged {
            path: path.to_owned(),
            what,
        },
    })
}

/// Opens the file as immutable: nothing is locked, no journal beside it is believed, nothing is ever written.
fn open(path: &Path) -> rusqlite::Result<Connection> {
    let mut uri = String::from("file:");
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(char::from(byte))
            }
            _ => drop(write!(uri, "%{byte:02x}")),
        }
    }
    uri.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(uri, flags)?;
    db.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA cache_size = -8192;")?;
    Ok(db)
}

fn read_tables(db: &Connection, budget: Budget) -> Checked<Genome> {
    let mut file = Tables { db, budget };
    file.check_schema()?;
    let (run, ended, cut, window_ns, folded_calls) = file.run()?;
    let functions = file.functions()?;
    let known = functions.len();
    let threads = file.threads()?;
    let contexts = file.contexts(known)?;
    let cells = file.cells(threads.len(), contexts.len())?;
    let histograms = file.histograms(known)?;
    let faults = file.faults(known)?;
    Ok(Genome {
        run,
        ended,
        cut,
        functions,
        tree: Tree {
            window_ns,
            contexts,
            threads,
            cells,
            histograms,
            faults,
            folded_calls,
        },
        losses: file.losses(known)?,
        bounds: file.bounds(known)?,
        notes: file.notes()?,
        counters: file.counters()?,
        blind_spots: file.blind_spots()?,
    })
}

/// The tables of one file.
struct Tables<'db> {
    db: &'db Connection,
    budget: Budget,
}

type RunRow = (RunInfo, MonoTime, bool, u64, u64);

impl Tables<'_> {
    fn check_schema(&self) -> Checked<()> {
        let mut query = self
            .db
            .prepare("SELECT sql FROM sqlite_schema WHERE name = ?1 AND type = 'table'")?;
        for (name, text) in schema::TABLES {
            match query
                .query_row([name], |row| row.get::<_, String>(0))
                .optional()?
            {
                Some(found) if found == *text => {}
                Some(_) => return damaged(format!("its table {name} has another shape")),
                None => return damaged(format!("it has no table {name}")),
            }
        }
        Ok(())
    }

    /// Calls `each` with every row of `table`, in the order of its key.
    fn rows(&mut self, table: &str, mut each: impl FnMut(&Row<'_>) -> Checked<()>) -> Checked<()> {
        let mut query = self.db.prepare(&format!("SELECT * FROM {table}"))?;
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            self.budget.charge(row)?;
            each(row)?;
        }
        Ok(())
    }

    fn run(&mut self) -> Checked<RunRow> {
        let mut runs = Vec::new();
        self.rows("runs", |row| {
            runs.push(run(row)?);
            Ok(())
        })?;
        match (runs.pop(), runs.len()) {
            (Some(run), 0) => Ok(run),
            (None, _) => damaged("it has no run"),
            (Some(_), others) => damaged(format!(
                "it has {} runs, this version reads files of one",
                others + 1
            )),
        }
    }

    fn functions(&mut self) -> Checked<FunctionTable> {
        let mut table = FunctionTable::new();
        self.rows("functions", |row| {
            let next = table.len() as u64 + 1;
            match u32::try_from(next).ok().and_then(FuncId::new) {
                Some(id) if unsigned(row, 0)? == next && table.define(id, function(row)?) => {}
                _ => return damaged("its functions are not numbered 1, 2, 3 ..."),
            }
            Ok(())
        })?;
        Ok(table)
    }

    fn threads(&mut self) -> Checked<Vec<Thread>> {
        let mut threads = Vec::new();
        self.rows("threads", |row| {
            if unsigned(row, 0)? != threads.len() as u64 {
                return damaged("its threads are not numbered 0, 1, 2 ...");
            }
            threads.push(Thread {
                pid: Pid(row.get(2)?),
                tid: Tid(row.get(3)?),
                name: row.get(4)?,
                events: unsigned(row, 5)?,
                lost: unsigned(row, 6)?,
            });
            Ok(())
        })?;
        Ok(threads)
    }

    fn contexts(&mut self, functions: usize) -> Checked<Vec<Context>> {
        let mut contexts: Vec<Context> = Vec::new();
        self.rows("contexts", |row| {
            let id: u32 = row.get(0)?;
            let parent: u32 = row.get(1)?;
            // Parents come first: no walk can run in a circle.
            if id as usize != contexts.len()
                || (parent >= id && id != 0)
                || (id == 0 && parent != 0)
            {
                return damaged(format!("context {id} is out of order"));
            }
            let Some(source) = schema::source_of(row.get(3)?) else {
                return damaged(format!("context {id} has no source"));
            };
            contexts.push(Context {
                parent: ContextId(parent),
                func: maybe_func(row, 2, functions)?,
                source,
            });
            Ok(())
        })?;
        Ok(contexts)
    }

    fn cells(&mut self, threads: usize, contexts: usize) -> Checked<Vec<Cell>> {
        let mut cells = Vec::new();
        // Any sum over cells stays below this sum, so none that a report makes can overflow.
        let mut sum = [0i64; schema::METRICS];
        self.rows("cells", |row| {
            let cell = cell(row, &mut sum)?;
            if cell.thread as usize >= threads || cell.context.0 as usize >= contexts {
                return damaged("a cell names a thread or context that is not there");
            }
            cells.push(cell);
            Ok(())
        })?;
        Ok(cells)
    }

    fn histograms(&mut self, functions: usize) -> Checked<Vec<(FuncId, Histogram)>> {
        let mut histograms: Vec<(FuncId, Histogram)> = Vec::new();
        self.rows("histograms", |row| {
            let (func, bucket) = (func(row, 0, functions)?, (row.get(1)?, unsigned(row, 2)?));
            match histograms.last_mut() {
                Some((last, histogram)) if *last == func => histogram.buckets.push(bucket),
                _ => histograms.push((
                    func,
                    Histogram {
                        buckets: vec![bucket],
                    },
                )),
            }
            Ok(())
        })?;
        Ok(histograms)
    }

    fn faults(&mut self, functions: usize) -> Checked<Vec<(FuncId, FunctionFaults)>> {
        let mut faults = Vec::new();
        self.rows("faults", |row| {
            let mut columns = [0; 5];
            for (at, column) in (1..).zip(&mut columns) {
                *column = unsigned(row, at)?;
            }
            faults.push((
                func(row, 0, functions)?,
                schema::faults_from_columns(columns),
            ));
            Ok(())
        })?;
        Ok(faults)
    }

    fn losses(&mut self, functions: usize) -> Checked<Vec<Loss>> {
        let mut losses = Vec::new();
        self.rows("losses", |row| {
            let word: String = row.get(1)?;
            let Some(class) = loss::class_of(&word) else {
                return damaged(format!("it lost events of class {word:?}"));
            };
            losses.push(Loss {
                class,
                cpu: row.get(2)?,
                func: maybe_func(row, 3, functions)?,
                count: unsigned(row, 4)?,
            });
            Ok(())
        })?;
        Ok(losses)
    }

    fn bounds(&mut self, functions: usize) -> Checked<Vec<Bound>> {
        let mut bounds = Vec::new();
        self.rows("bounds", |row| {
            let since = maybe_unsigned(row, 2)?.map(MonoTime);
            bounds.push(Bound {
                func: func(row, 1, functions)?,
                since,
                reason: row.get(3)?,
            });
            Ok(())
        })?;
        Ok(bounds)
    }

    fn notes(&mut self) -> Checked<Vec<String>> {
        let mut notes = Vec::new();
        self.rows("notes", |row| {
            notes.push(row.get(1)?);
            Ok(())
        })?;
        Ok(notes)
    }

    fn counters(&mut self) -> Checked<BTreeMap<Counter, u64>> {
        let mut counters = BTreeMap::new();
        self.rows("counters", |row| {
            let word: String = row.get(1)?;
            match Counter::ALL.iter().find(|counter| counter.word() == word) {
                Some(&counter) => drop(counters.insert(counter, unsigned(row, 2)?)),
                None => return damaged(format!("it has a counter {word:?}")),
            }
            Ok(())
        })?;
        Ok(counters)
    }

    fn blind_spots(&mut self) -> Checked<Vec<BlindSpot>> {
        let mut spots = Vec::new();
        self.rows("blind_spots", |row| {
            spots.push(BlindSpot {
                probe: row.get(1)?,
                what: row.get(2)?,
            });
            Ok(())
        })?;
        Ok(spots)
    }
}

fn run(row: &Row<'_>) -> Checked<RunRow> {
    let probe_cost_ns = match (maybe_unsigned(row, 12)?, maybe_unsigned(row, 13)?) {
        (Some(low), Some(high)) => Some((low, high)),
        (None, None) => None,
        _ => return damaged("it has half a probe cost"),
    };
    let run = RunInfo {
        uuid: row.get(1)?,
        pid: Pid(row.get(2)?),
        command: row.get(3)?,
        host: row.get(4)?,
        kernel: row.get(5)?,
        started_unix_ns: unsigned(row, 6)?,
        started: MonoTime(unsigned(row, 7)?),
        mode: row.get(10)?,
        version: row.get(11)?,
        probe_cost_ns,
        sample_hz: row.get(14)?,
    };
    Ok((
        run,
        MonoTime(unsigned(row, 8)?),
        row.get(9)?,
        unsigned(row, 15)?,
        unsigned(row, 16)?,
    ))
}

fn function(row: &Row<'_>) -> Checked<FunctionInfo> {
    let language: String = row.get(8)?;
    let exit: String = row.get(13)?;
    let (Some(language), Some(exit)) = (schema::language_of(&language), schema::exit_of(&exit))
    else {
        return damaged(format!(
            "it has a function of language {language:?} with exit {exit:?}"
        ));
    };
    Ok(FunctionInfo {
        name: row.get(2)?,
        raw_name: row.get(3)?,
        module: row.get(4)?,
        path: row.get(5)?,
        file: row.get(6)?,
        line: row.get(7)?,
        language,
        build_id: row.get(9)?,
        file_offset: row.get::<_, i64>(10)?.cast_unsigned(),
        size: unsigned(row, 11)?,
        site_delta: row.get(12)?,
        exit,
        exit_reason: row.get(14)?,
        unknown: unknown(row)?,
        ordinal: row.get(17)?,
    })
}

fn unknown(row: &Row<'_>) -> Checked<Option<UnknownReason>> {
    let Some(word) = row.get::<_, Option<String>>(15)? else {
        return Ok(None);
    };
    let detail = row.get::<_, Option<String>>(16)?.unwrap_or_default();
    match schema::unknown_of(&word, detail) {
        None => damaged(format!("it has a function unknown for {word:?}")),
        known => Ok(known),
    }
}

fn cell(row: &Row<'_>, sum: &mut [i64; schema::METRICS]) -> Checked<Cell> {
    let mut columns = [0; schema::METRICS];
    for ((at, column), sum) in (3..).zip(&mut columns).zip(sum) {
        let value: i64 = row.get(at)?;
        *column = u64::try_from(value).or_else(|_| damaged("a cell has a negative number"))?;
        match sum.checked_add(value) {
            Some(fits) => *sum = fits,
            None => return damaged("its cells add up to more than 63 bits"),
        }
    }
    Ok(Cell {
        window: row.get(0)?,
        thread: row.get(1)?,
        context: ContextId(row.get(2)?),
        metrics: schema::from_columns(columns),
    })
}

fn unsigned(row: &Row<'_>, at: usize) -> Checked<u64> {
    u64::try_from(row.get::<_, i64>(at)?).or_else(|_| damaged("a count, time or size is negative"))
}

fn maybe_unsigned(row: &Row<'_>, at: usize) -> Checked<Option<u64>> {
    match row.get::<_, Option<i64>>(at)? {
        Some(_) => unsigned(row, at).map(Some),
        None => Ok(None),
    }
}

fn func(row: &Row<'_>, at: usize, functions: usize) -> Checked<FuncId> {
    let number: u32 = row.get(at)?;
    match FuncId::new(number) {
        Some(id) if number as usize <= functions => Ok(id),
        _ => damaged(format!("it names a function {number} that is not there")),
    }
}

fn maybe_func(row: &Row<'_>, at: usize, functions: usize) -> Checked<Option<FuncId>> {
    match row.get::<_, Option<i64>>(at)? {
        Some(_) => func(row, at, functions).map(Some),
        None => Ok(None),
    }
}
