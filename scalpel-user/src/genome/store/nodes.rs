//! Contexts, cells and call edges: nearly all of a large genome. They are written behind what SQLite has written, in bulk.

use std::io;
use std::path::Path;

use rusqlite::Connection;

use super::bulk::{Bulk, Keyed, Record};
use super::schema;
use super::write::{Rows, Sqlite, int};
use crate::genome::totals;
use crate::tree::Cell;

/// First pages of the tables that are still empty.
pub(super) struct Roots {
    contexts: u32,
    cells: u32,
    edges: u32,
}

pub(super) fn roots(db: &Connection) -> Sqlite<Roots> {
    let mut query =
        db.prepare("SELECT rootpage FROM sqlite_schema WHERE name = ?1 AND type = 'table'")?;
    Ok(Roots {
        contexts: query.query_row(["contexts"], |row| row.get(0))?,
        cells: query.query_row(["cells"], |row| row.get(0))?,
        edges: query.query_row(["edge_total"], |row| row.get(0))?,
    })
}

/// Fills these tables of a file that SQLite has closed.
pub(super) fn write(rows: &Rows<'_>, path: &Path, roots: &Roots) -> io::Result<()> {
    let mut bulk = Bulk::open(path)?;
    edges(rows, &mut bulk, roots.edges)?;
    contexts(rows, &mut bulk, roots.contexts)?;
    cells(rows, &mut bulk, roots.cells)?;
    bulk.finish()
}

fn edges(rows: &Rows<'_>, bulk: &mut Bulk, root: u32) -> io::Result<()> {
    let edges = totals::edges_of_cells(rows.contexts(), rows.cells());
    bulk.table(root, Keyed::ByNumber, |table| {
        let mut record = Record::default();
        for (id, (caller, callee, source, sum)) in (1..).zip(edges) {
            record.clear();
            record.maybe(caller.map(|caller| caller.get().into()));
            record.int(callee.get().into());
            record.int(int(sum.calls));
            record.maybe(sum.wall_ns().map(int));
            record.maybe(sum.cpu_ns().map(int));
            record.int(int(sum.samples));
            record.text(source.word());
            table.row(id, &record)?;
        }
        Ok(())
    })
}

fn contexts(rows: &Rows<'_>, bulk: &mut Bulk, root: u32) -> io::Result<()> {
    bulk.table(root, Keyed::ByNumber, |table| {
        let mut record = Record::default();
        for (id, context) in (0..).zip(rows.contexts()) {
            record.clear();
            // The number itself stands beside the row.
            record.null();
            record.int(i64::from(context.parent.0));
            record.maybe(context.func.map(|func| func.get().into()));
            record.int(schema::source_number(context.source).into());
            table.row(id, &record)?;
        }
        Ok(())
    })
}

fn cells(rows: &Rows<'_>, bulk: &mut Bulk, root: u32) -> io::Result<()> {
    // What SQLite and every reader can still add up: absurd numbers of a damaged stream are cut to that.
    let mut left = [i64::MAX; schema::METRICS];
    let order = in_order(rows);
    bulk.table(root, Keyed::ByColumns, |table| {
        let mut record = Record::default();
        let mut before = None;
        for (thread, cell) in order {
            let key = (cell.window, thread, cell.context);
            if before.replace(key) == Some(key) {
                return Err(io::Error::other("two cells are of one place"));
            }
            record.clear();
            record.int(i64::from(cell.window));
            record.int(i64::from(thread));
            record.int(i64::from(cell.context.0));
            let columns = schema::to_columns(&cell.metrics);
            for (value, left) in columns.into_iter().zip(&mut left) {
                let fits = int(value).min(*left);
                *left -= fits;
                record.int(fits);
            }
            table.row(0, &record)?;
        }
        Ok(())
    })
}

/// All cells in the order of the key, by the numbers that their threads have in the file.
fn in_order<'a>(rows: &Rows<'a>) -> Vec<(u32, &'a Cell)> {
    let mut first = 0;
    let mut cells = Vec::new();
    for tree in rows.trees() {
        cells.extend(tree.cells.iter().map(|cell| (first + cell.thread, cell)));
        first += tree.threads.len() as u32;
    }
    cells.sort_unstable_by_key(|(thread, cell)| (cell.window, *thread, cell.context));
    cells
}
