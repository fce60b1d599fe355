//! Reads a genome from a file that may come from anybody.
//!
//! Three things keep a hostile file from doing harm: only our tables with our exact text are read (no views, no
//! triggers), every value is checked where it is read, and all rows together may not be larger than the file.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rusqlite::{Connection, OpenFlags, OptionalExtension, Row};

use super::budget::Budget;
use super::header::Head;
use super::rows::{self, func, maybe_func, maybe_unsigned, unsigned};
use super::{GenomeError, exists, header, kept, returns, schema};
use crate::catalog::{Catalog, FactsOfFiles, Kept, Matches};
use crate::event::{FuncId, MonoTime, Pid, Tid};
use crate::function::FunctionTable;
use crate::genome::merge::Merged;
use crate::genome::{BlindSpot, Counter, Genome, loss};
use crate::input::{Bound, Loss};
use crate::tree::{Context, ContextId, Histogram, Thread, Tree};

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

/// Reads the recordings in the file at `path`, and what exists.
pub(super) fn read(path: &Path) -> Result<Merged, GenomeError> {
    with_tables(path, |mut tables| tables.merged())
}

/// The same with what a later build of the catalog needs.
pub(super) fn read_whole(path: &Path) -> Result<Merged, GenomeError> {
    with_tables(path, |mut tables| {
        let merged = tables.merged()?;
        let facts = exists::read_facts(&mut tables, &merged.catalog)?;
        Ok(Merged { facts, ..merged })
    })
}

/// Reads what exists from the file at `path`, which may have no recording.
pub(super) fn read_catalog(path: &Path) -> Result<Catalog, GenomeError> {
    with_tables(path, |mut tables| tables.catalog())
}

/// Reads what exists with what the next build needs; `None` if there is a recording too.
pub(super) fn read_kept(path: &Path) -> Result<Option<Kept>, GenomeError> {
    with_tables(path, |mut tables| {
        let runs: i64 = tables
            .db
            .query_row("SELECT count(*) FROM runs", [], |row| row.get(0))?;
        if runs > 0 {
            return Ok(None);
        }
        tables.kept().map(Some)
    })
}

/// Reads what exists with what the next build needs, whether there is a recording too or not.
pub(super) fn read_kept_of_any(path: &Path) -> Result<Kept, GenomeError> {
    with_tables(path, |mut tables| tables.kept())
}

fn with_tables<T>(
    path: &Path,
    of: impl FnOnce(Tables<'_>) -> Checked<T>,
) -> Result<T, GenomeError> {
    let Head { length, version } = header::check(path)?;
    let read = open(path).map_err(Fault::from).and_then(|db| {
        let tables = Tables {
            db: &db,
            budget: Budget::new(length),
            version,
            runs: Vec::new(),
        };
        tables.check_schema()?;
        of(tables)
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
pub(super) fn open(path: &Path) -> rusqlite::Result<Connection> {
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
    /// Filled as the tables are read; row `n` of `runs` is at `n - 1`.
    runs: Vec<Genome>,
}

impl Tables<'_> {
    fn merged(&mut self) -> Checked<Merged> {
        self.runs()?;
        let functions = self.functions()?;
        let contexts = self.contexts(functions.len())?;
        self.measurements(functions.len(), contexts.len())?;
        self.doubts(functions.len())?;
        if self.version >= schema::TRIGGERS_SINCE {
            self.kept_calls(functions.len())?;
        }
        if self.version >= schema::RETURNS_SINCE {
            returns::read(self, functions.len())?;
        }
        let catalog = self.catalog()?;
        let matches = self.matches(functions.len(), &catalog)?;
        let runs = std::mem::take(&mut self.runs).into_iter();
        Ok(Merged {
            functions,
            contexts,
            runs: runs.map(|run| (run.run.uuid.clone(), run)).collect(),
            catalog,
            facts: FactsOfFiles::default(),
            matches,
        })
    }

    fn matches(&mut self, functions: usize, catalog: &Catalog) -> Checked<Matches> {
        if self.version < schema::MATCHES_SINCE {
            return Ok(Matches::default());
        }
        exists::read_matches(self, functions, catalog)
    }

    fn kept(&mut self) -> Checked<Kept> {
        let catalog = self.catalog()?;
        let facts = exists::read_facts(self, &catalog)?;
        Ok(Kept { catalog, facts })
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
                Some(found) if found == text => {}
                Some(_) => return damaged(format!("its table {name} has another shape")),
                None => return damaged(format!("it has no table {name}")),
            }
        }
        Ok(())
    }

    /// Whether there is a table of exactly that text.
    pub(super) fn has_table(&self, name: &str, text: &str) -> Checked<bool> {
        let mut query = self.db.prepare(
            "SELECT 1 FROM sqlite_schema WHERE name = ?1 AND type = 'table' AND sql = ?2",
        )?;
        Ok(query.exists([name, text])?)
    }

    /// Calls `each` with every row of `table`, in the order of its key.
    pub(super) fn rows(
        &mut self,
        table: &str,
        mut each: impl FnMut(&Row<'_>) -> Checked<()>,
    ) -> Checked<()> {
        self.rows_and_runs(table, |_, row| each(row))
    }

    fn rows_and_runs(
        &mut self,
        table: &str,
        mut each: impl FnMut(&mut [Genome], &Row<'_>) -> Checked<()>,
    ) -> Checked<()> {
        let columns = schema::columns_of(table, self.version);
        let mut query = self.db.prepare(&format!("SELECT {columns} FROM {table}"))?;
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            self.budget.charge(row)?;
            each(&mut self.runs, row)?;
        }
        Ok(())
    }

    /// As [`Tables::rows`], of a table whose first column is the number of a run.
    pub(super) fn rows_of_runs(
        &mut self,
        table: &str,
        mut each: impl FnMut(&mut Genome, &Row<'_>) -> Checked<()>,
    ) -> Checked<()> {
        self.rows_and_runs(table, |runs, row| {
            each(of_run(runs, unsigned(row, 0)?)?, row)
        })
    }

    fn runs(&mut self) -> Checked<()> {
        let mut runs = Vec::new();
        self.rows("runs", |row| {
            if unsigned(row, 0)? != runs.len() as u64 + 1 {
                return damaged("its runs are not numbered 1, 2, 3 ...");
            }
            runs.push(rows::run(row)?);
            Ok(())
        })?;
        self.runs = runs;
        Ok(())
    }

    fn functions(&mut self) -> Checked<FunctionTable> {
        let mut table = FunctionTable::new();
        self.rows("functions", |row| {
            let next = table.len() as u64 + 1;
            match u32::try_from(next).ok().and_then(FuncId::new) {
                Some(id) if unsigned(row, 0)? == next && table.define(id, rows::function(row)?) => {
                }
                _ => return damaged("its functions are not numbered 1, 2, 3 ..."),
            }
            Ok(())
        })?;
        Ok(table)
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

    /// What was measured on which thread.
    fn measurements(&mut self, functions: usize, contexts: usize) -> Checked<()> {
        let places = self.threads()?;
        self.cells(&places, contexts)?;
        self.histograms("histograms", functions, |tree| &mut tree.histograms)?;
        if self.version >= schema::CPU_HISTOGRAMS_SINCE {
            self.histograms(schema::CPU_HISTOGRAMS, functions, |tree| {
                &mut tree.cpu_histograms
            })?;
        }
        self.rows_of_runs("faults", |run, row| {
            let func = func(row, 1, functions)?;
            run.tree.faults.push((func, rows::faults(row)?));
            Ok(())
        })
    }

    /// The threads of all runs: for each, its run and its place there.
    fn threads(&mut self) -> Checked<Vec<(usize, u32)>> {
        let mut places = Vec::new();
        self.rows_and_runs("threads", |runs, row| {
            if unsigned(row, 0)? != places.len() as u64 {
                return damaged("its threads are not numbered 0, 1, 2 ...");
            }
            let number = unsigned(row, 1)?;
            let threads = &mut of_run(runs, number)?.tree.threads;
            places.push((number as usize - 1, threads.len() as u32));
            threads.push(Thread {
                pid: Pid(row.get(2)?),
                tid: Tid(row.get(3)?),
                name: row.get(4)?,
                events: unsigned(row, 5)?,
                lost: unsigned(row, 6)?,
            });
            Ok(())
        })?;
        Ok(places)
    }

    fn cells(&mut self, places: &[(usize, u32)], contexts: usize) -> Checked<()> {
        // Any sum over cells stays below this sum, so none that a report makes can overflow.
        let mut sum = [0i64; schema::METRICS];
        self.rows_and_runs("cells", |runs, row| {
            let mut cell = rows::cell(row, &mut sum)?;
            let place = places.get(cell.thread as usize);
            match place.and_then(|&(run, thread)| Some((runs.get_mut(run)?, thread))) {
                Some((run, thread)) if (cell.context.0 as usize) < contexts => {
                    cell.thread = thread;
                    run.tree.cells.push(cell);
                    Ok(())
                }
                _ => damaged("a cell names a thread or context that is not there"),
            }
        })
    }

    fn histograms(
        &mut self,
        table: &str,
        functions: usize,
        of: impl Fn(&mut Tree) -> &mut Vec<(FuncId, Histogram)>,
    ) -> Checked<()> {
        self.rows_of_runs(table, |run, row| {
            let (func, bucket) = (func(row, 1, functions)?, (row.get(2)?, unsigned(row, 3)?));
            let histograms = of(&mut run.tree);
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
        })
    }

    /// The triggers of each run, and the calls that they kept.
    fn kept_calls(&mut self, functions: usize) -> Checked<()> {
        self.rows_of_runs(schema::TRIGGERS, |run, row| {
            if unsigned(row, 1)? != run.triggers.len() as u64 {
                return damaged("its triggers are not numbered 0, 1, 2 ...");
            }
            run.triggers.push(kept::trigger(row)?);
            Ok(())
        })?;
        self.rows_of_runs(schema::KEPT_CALLS, |run, row| {
            let call = kept::call(row, functions)?;
            if call.trigger as usize >= run.triggers.len() {
                return damaged("a kept call names a trigger that is not there");
            }
            run.kept.push(call);
            Ok(())
        })
    }

    /// What is not sure about each run.
    fn doubts(&mut self, functions: usize) -> Checked<()> {
        self.rows_of_runs("losses", |run, row| {
            let word: String = row.get(1)?;
            let Some(class) = loss::class_of(&word) else {
                return damaged(format!("it lost events of class {word:?}"));
            };
            run.losses.push(Loss {
                class,
                cpu: row.get(2)?,
                func: maybe_func(row, 3, functions)?,
                count: unsigned(row, 4)?,
            });
            Ok(())
        })?;
        self.rows_of_runs("bounds", |run, row| {
            run.bounds.push(Bound {
                func: func(row, 1, functions)?,
                since: maybe_unsigned(row, 2)?.map(MonoTime),
                reason: row.get(3)?,
            });
            Ok(())
        })?;
        self.rows_of_runs("notes", |run, row| {
            run.notes.push(row.get(1)?);
            Ok(())
        })?;
        self.rows_of_runs("counters", |run, row| {
            let word: String = row.get(1)?;
            match Counter::ALL.iter().find(|counter| counter.word() == word) {
                Some(&counter) => drop(run.counters.insert(counter, unsigned(row, 2)?)),
                None => return damaged(format!("it has a counter {word:?}")),
            }
            Ok(())
        })?;
        self.rows_of_runs("blind_spots", |run, row| {
            run.blind_spots.push(BlindSpot {
                probe: row.get(1)?,
                what: row.get(2)?,
            });
            Ok(())
        })
    }
}

fn of_run(runs: &mut [Genome], number: u64) -> Checked<&mut Genome> {
    let at = usize::try_from(number).ok().and_then(|n| n.checked_sub(1));
    match at.and_then(|at| runs.get_mut(at)) {
        Some(run) => Ok(run),
        None => damaged(format!("it names a run {number} that is not there")),
    }
}
