//! One row of a table -> what it says, or what is wrong with it.

use rusqlite::Row;

use super::read::{Checked, damaged};
use super::schema;
use crate::event::{FuncId, MonoTime, Pid};
use crate::function::{FunctionInfo, SourcePlace, UnknownReason};
use crate::genome::Genome;
use crate::input::RunInfo;
use crate::tree::{Cell, ContextId, FunctionFaults, Tree};

pub(super) fn run(row: &Row<'_>) -> Checked<Genome> {
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
    Ok(Genome {
        ended: MonoTime(unsigned(row, 8)?),
        cut: row.get(9)?,
        tree: Tree {
            window_ns: unsigned(row, 15)?,
            folded_calls: unsigned(row, 16)?,
            ..Tree::default()
        },
        ..Genome::of_run(run)
    })
}

pub(super) fn function(row: &Row<'_>) -> Checked<FunctionInfo> {
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
        place: SourcePlace {
            end_line: row.get(18)?,
            column: row.get(19)?,
            range: row.get::<_, Option<u32>>(20)?.zip(row.get(21)?),
            body_hash: hash(row, 22)?,
            text_hash: hash(row, 23)?,
            flags: row.get(24)?,
        },
    })
}

/// Hashes are blobs: SQLite's integers are signed. NULL = not known.
fn hash(row: &Row<'_>, at: usize) -> Checked<u64> {
    match row.get::<_, Option<Vec<u8>>>(at)?.map(<[u8; 8]>::try_from) {
        None => Ok(0),
        Some(Ok(bytes)) => Ok(u64::from_be_bytes(bytes)),
        Some(Err(_)) => damaged("a hash is not 8 bytes long"),
    }
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

pub(super) fn cell(row: &Row<'_>, sum: &mut [i64; schema::METRICS]) -> Checked<Cell> {
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

pub(super) fn faults(row: &Row<'_>) -> Checked<FunctionFaults> {
    let mut columns = [0; 5];
    for (at, column) in (2..).zip(&mut columns) {
        *column = unsigned(row, at)?;
    }
    Ok(schema::faults_from_columns(columns))
}

pub(super) fn unsigned(row: &Row<'_>, at: usize) -> Checked<u64> {
    u64::try_from(row.get::<_, i64>(at)?).or_else(|_| damaged("a count, time or size is negative"))
}

pub(super) fn maybe_unsigned(row: &Row<'_>, at: usize) -> Checked<Option<u64>> {
    match row.get::<_, Option<i64>>(at)? {
        Some(_) => unsigned(row, at).map(Some),
        None => Ok(None),
    }
}

pub(super) fn func(row: &Row<'_>, at: usize, functions: usize) -> Checked<FuncId> {
    let number: u32 = row.get(at)?;
    match FuncId::new(number) {
        Some(id) if number as usize <= functions => Ok(id),
        _ => damaged(format!("it names a function {number} that is not there")),
    }
}

pub(super) fn maybe_func(row: &Row<'_>, at: usize, functions: usize) -> Checked<Option<FuncId>> {
    match row.get::<_, Option<i64>>(at)? {
        Some(_) => func(row, at, functions).map(Some),
        None => Ok(None),
    }
}
