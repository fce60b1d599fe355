//! The records of triggers and of the calls that they kept. Tables: FORMAT.md.

use super::codec::{Get, Malformed, Put};
use crate::event::{FuncId, MonoTime, Pid, Tid};
use crate::input::{CallEnd, KeptCall, Trigger};

pub(super) fn put_trigger(put: &mut Put<'_>, trigger: &Trigger) {
    put.text(&trigger.text)
        .u64(trigger.threshold_ns)
        .u64(trigger.calls)
        .u64(trigger.over)
        .u64(trigger.kept)
        .u64(trigger.endless)
        .u64(trigger.suspended)
        .u64(trigger.headless)
        .u64(trigger.slowest_ns);
}

pub(super) fn trigger(get: &mut Get<'_>) -> Result<Trigger, Malformed> {
    Ok(Trigger {
        text: get.text()?,
        threshold_ns: get.u64()?,
        calls: get.u64()?,
        over: get.u64()?,
        kept: get.u64()?,
        endless: get.u64()?,
        suspended: get.u64()?,
        headless: get.u64()?,
        slowest_ns: get.u64()?,
    })
}

pub(super) fn put_kept(put: &mut Put<'_>, call: &KeptCall) {
    put.u32(call.trigger)
        .u32(call.func.get())
        .u32(call.pid.0)
        .u32(call.tid.0);
    put.u64(call.began.0)
        .u64(call.ended.0)
        .u8(end_number(call.end))
        .option(call.cpu_ns, |put, ns| {
            put.u64(ns);
        });
    put.u64(call.waits)
        .u64(call.waited_ns)
        .u64(call.lost)
        .u64(call.left_out)
        .u64(call.items);
}

pub(super) fn kept(get: &mut Get<'_>) -> Result<KeptCall, Malformed> {
    Ok(KeptCall {
        trigger: get.u32()?,
        func: FuncId::new(get.u32()?).ok_or(Malformed("function 0"))?,
        pid: Pid(get.u32()?),
        tid: Tid(get.u32()?),
        began: MonoTime(get.u64()?),
        ended: MonoTime(get.u64()?),
        end: end(get.u8()?)?,
        cpu_ns: get.option(Get::u64)?,
        waits: get.u64()?,
        waited_ns: get.u64()?,
        lost: get.u64()?,
        left_out: get.u64()?,
        items: get.u64()?,
    })
}

/// Numbers in the file. Append only.
const fn end_number(end: CallEnd) -> u8 {
    match end {
        CallEnd::Returned => 0,
        CallEnd::Unwound => 1,
        CallEnd::Lost => 2,
        CallEnd::ThreadEnded => 3,
        CallEnd::Open => 4,
    }
}

const fn end(number: u8) -> Result<CallEnd, Malformed> {
    Ok(match number {
        0 => CallEnd::Returned,
        1 => CallEnd::Unwound,
        2 => CallEnd::Lost,
        3 => CallEnd::ThreadEnded,
        4 => CallEnd::Open,
        _ => return Err(Malformed("unknown end of a call")),
    })
}
