//! Rows of triggers and of the calls that they kept.

use rusqlite::{Connection, Row, params};

use super::read::{Checked, damaged};
use super::rows::{func, maybe_unsigned, unsigned};
use super::schema;
use super::write::{Sqlite, insert, int};
use crate::event::{MonoTime, Pid, Tid};
use crate::genome::Genome;
use crate::input::{CallEnd, KeptCall, Trigger};

pub(super) fn write(run: i64, genome: &Genome, db: &Connection) -> Sqlite<()> {
    let mut row = insert(db, schema::TRIGGERS, 11)?;
    for (place, trigger) in (0i64..).zip(&genome.triggers) {
        row.execute(params![
            run,
            place,
            trigger.text,
            int(trigger.threshold_ns),
            int(trigger.calls),
            int(trigger.over),
            int(trigger.kept),
            int(trigger.endless),
            int(trigger.suspended),
            int(trigger.headless),
            int(trigger.slowest_ns),
        ])?;
    }
    let mut row = insert(db, schema::KEPT_CALLS, 14)?;
    for call in &genome.kept {
        row.execute(params![
            run,
            call.trigger,
            call.func.get(),
            call.pid.0,
            call.tid.0,
            int(call.began.0),
            int(call.ended.0),
            call.end.word(),
            call.cpu_ns.map(int),
            int(call.waits),
            int(call.waited_ns),
            int(call.lost),
            int(call.left_out),
            int(call.items),
        ])?;
    }
    Ok(())
}

pub(super) fn trigger(row: &Row<'_>) -> Checked<Trigger> {
    Ok(Trigger {
        text: row.get(2)?,
        threshold_ns: unsigned(row, 3)?,
        calls: unsigned(row, 4)?,
        over: unsigned(row, 5)?,
        kept: unsigned(row, 6)?,
        endless: unsigned(row, 7)?,
        suspended: unsigned(row, 8)?,
        headless: unsigned(row, 9)?,
        slowest_ns: unsigned(row, 10)?,
    })
}

pub(super) fn call(row: &Row<'_>, functions: usize) -> Checked<KeptCall> {
    let word: String = row.get(7)?;
    let Some(end) = CallEnd::ALL.iter().find(|end| end.word() == word) else {
        return damaged(format!("a kept call ended by {word:?}"));
    };
    Ok(KeptCall {
        trigger: row.get(1)?,
        func: func(row, 2, functions)?,
        pid: Pid(row.get(3)?),
        tid: Tid(row.get(4)?),
        began: MonoTime(unsigned(row, 5)?),
        ended: MonoTime(unsigned(row, 6)?),
        end: *end,
        cpu_ns: maybe_unsigned(row, 8)?,
        waits: unsigned(row, 9)?,
        waited_ns: unsigned(row, 10)?,
        lost: unsigned(row, 11)?,
        left_out: unsigned(row, 12)?,
        items: unsigned(row, 13)?,
    })
}
