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
use super::header::Head;
use super::rows::{RunRow, cell, func, function, maybe_func, maybe_unsigned, run, unsigned};
use super::{GenomeError, exists, header, schema};
use crate::catalog::Catalog;
use crate::event::{FuncId, MonoTime, Pid, Tid};
use crate::function::FunctionTable;
use crate::genome::{BlindSpot, Counter, Genome, loss};
use crate::input::{Bound, Loss};
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
    with_tables(path, |tables| tables.genome())
}

/// Reads what exists from the file at `path`, which may have no recording.
pub(super) fn read_catalog(path: &Path) -> Result<Catalog, GenomeError> {
    with_tables(path, |tables| tables.catalog())
}

fn with_tables<T>(
    path: &Path,
    of: impl FnOnce(&mut Tables<'_>) -> Checked<T>,
) -> Result<T, GenomeError> {
    let Head { length, version } = header::check(path)?;
    let read = open(path).map_err(Fault::from).and_then(|db| {
        let mut tables = Tables {
            db: &db,
            budget: Budget::new(length),
            version,
        };
        tables.check_schema()?;
        of(&mut tables)
    });
    read.map_err(|fault| match fault {
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

/// The tables of one file.
pub(super) struct Tables<'db> {
    db: &'db Connection,
    budget: Budget,
    version: u32,
}

impl Tables<'_> {
    fn genome(&mut self) -> Checked<Genome> {
        let (run, ended, cut, window_ns, folded_calls) = self.run()?;
        let functions = self.functions()?;
        let known = functions.len();
        let threads = self.threads()?;
        let contexts = self.contexts(known)?;
        let cells = self.cells(threads.len(), contexts.len())?;
        let histograms = self.histograms(known)?;
        let faults = self.faults(known)?;
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
            losses: self.losses(known)?,
            bounds: self.bounds(known)?,
            notes: self.notes()?,
            counters: self.counters()?,
            blind_spots: self.blind_spots()?,
            catalog: self.catalog()?,
        })
    }

    /// What exists; nothing in files of a version that had no tables for it.
    fn catalog(&mut self) -> Checked<Catalog> {
        if self.version < schema::EXISTS_SINCE {
            return Ok(Catalog::default());
        }
        exists::read(self)
    }

    fn check_schema(&self) -> Checked<()> {
        let mut query = self
            .db
            .prepare("SELECT sql FROM sqlite_schema WHERE name = ?1 AND type = 'table'")?;
        for (name, text) in schema::tables(self.version) {
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
    pub(super) fn rows(
        &mut self,
        table: &str,
        mut each: impl FnMut(&Row<'_>) -> Checked<()>,
    ) -> Checked<()> {
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
            (None, _) => damaged("it has no run: it holds at most what exists"),
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
