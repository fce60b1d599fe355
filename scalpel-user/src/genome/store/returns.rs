//! Rows of what functions returned.

use rusqlite::{Connection, Row, params};

use super::read::{Checked, Tables, damaged};
use super::rows::{func, unsigned};
use super::schema;
use super::write::{Sqlite, insert, int};
use crate::event::FuncId;
use crate::tree::{Returned, Returns, Tree};

pub(super) fn write(run: i64, tree: &Tree, db: &Connection) -> Sqlite<()> {
    let mut row = insert(db, schema::RETURNED, 6)?;
    for (func, returns) in &tree.returns {
        let (least, greatest) = returns.range.unzip();
        row.execute(params![
            run,
            func.get(),
            int(returns.calls),
            int(returns.other),
            least,
            greatest,
        ])?;
    }
    let mut row = insert(db, schema::RETURN_VALUES, 5)?;
    for (func, returns) in &tree.returns {
        for (value, returned) in &returns.values {
            let calls = int(returned.calls);
            row.execute(params![run, func.get(), value, calls, returned.exact])?;
        }
    }
    Ok(())
}

/// The tables of a file that has them.
pub(super) fn read(tables: &mut Tables<'_>, functions: usize) -> Checked<()> {
    tables.rows_of_runs(schema::RETURNED, |run, row| {
        run.tree.returns.push(function(row, functions)?);
        Ok(())
    })?;
    tables.rows_of_runs(schema::RETURN_VALUES, |run, row| {
        value(row, functions, &mut run.tree)
    })
}

/// A function, without its values.
fn function(row: &Row<'_>, functions: usize) -> Checked<(FuncId, Returns)> {
    let range = match (row.get(4)?, row.get(5)?) {
        (Some(least), Some(greatest)) => Some((least, greatest)),
        (None, None) => None,
        _ => return damaged("a function returned half a range of values"),
    };
    let returns = Returns {
        calls: unsigned(row, 2)?,
        other: unsigned(row, 3)?,
        range,
        ..Returns::default()
    };
    Ok((func(row, 1, functions)?, returns))
}

/// One value of a function that was read before.
fn value(row: &Row<'_>, functions: usize, tree: &mut Tree) -> Checked<()> {
    let func = func(row, 1, functions)?;
    let at = tree
        .returns
        .binary_search_by_key(&func, |&(func, _)| func)
        .ok();
    let Some((_, returns)) = at.and_then(|at| tree.returns.get_mut(at)) else {
        return damaged("a value was returned by a function that nobody asked about");
    };
    let returned = Returned {
        calls: unsigned(row, 3)?,
        exact: row.get(4)?,
    };
    returns.values.insert(row.get(2)?, returned);
    Ok(())
}
