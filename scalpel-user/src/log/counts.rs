//! The payload of counted calls. Table: FORMAT.md.

use super::codec::{Get, Malformed, Put};
use crate::event::{FuncId, MonoTime, Pid};
use crate::input::{CountedEdge, CountedSite, CountedTimes, Counts};

const ADDRESS: u8 = 1;
const JUMP: u8 = 2;

/// Returns how many records there are.
pub(super) fn put_counts(put: &mut Put<'_>, counts: &Counts) -> usize {
    put.u64(counts.from.0).u64(counts.until.0);
    put.u32(length(counts.edges.len()));
    for edge in &counts.edges {
        put_edge(put, edge);
    }
    put.u32(length(counts.times.len()));
    for times in &counts.times {
        put.u32(times.func.get()).u8(u8::from(times.is_cpu));
        put.u32(length(times.buckets.len()));
        for &(bucket, count) in &times.buckets {
            put.u32(u32::from(bucket)).u64(count);
        }
    }
    counts.edges.len() + counts.times.len()
}

fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn put_edge(put: &mut Put<'_>, edge: &CountedEdge) {
    put.u32(edge.pid.0).u32(edge.func.get());
    match edge.site {
        CountedSite::Unknown => put.u8(0).u64(0),
        CountedSite::Address(address) => put.u8(ADDRESS).u64(address),
        CountedSite::Jump(from) => put.u8(JUMP).u64(u64::from(from.get())),
    };
    for number in edge.numbers() {
        put.u64(number);
    }
}

pub(super) fn counts(get: &mut Get<'_>) -> Result<Counts, Malformed> {
    Ok(Counts {
        from: MonoTime(get.u64()?),
        until: MonoTime(get.u64()?),
        edges: get.list(edge)?,
        times: get.list(times)?,
    })
}

fn edge(get: &mut Get<'_>) -> Result<CountedEdge, Malformed> {
    let (pid, func) = (Pid(get.u32()?), func_id(u64::from(get.u32()?))?);
    let site = match (get.u8()?, get.u64()?) {
        (0, _) => CountedSite::Unknown,
        (ADDRESS, address) => CountedSite::Address(address),
        (JUMP, from) => CountedSite::Jump(func_id(from)?),
        _ => return Err(Malformed("unknown kind of call site")),
    };
    let mut edge = CountedEdge::new(pid, func, site);
    for number in edge.numbers_mut() {
        *number = get.u64()?;
    }
    Ok(edge)
}

fn times(get: &mut Get<'_>) -> Result<CountedTimes, Malformed> {
    Ok(CountedTimes {
        func: func_id(u64::from(get.u32()?))?,
        is_cpu: get.u8()? != 0,
        buckets: get.list(bucket)?,
    })
}

fn bucket(get: &mut Get<'_>) -> Result<(u16, u64), Malformed> {
    let number = u16::try_from(get.u32()?).or(Err(Malformed("no such bucket")))?;
    Ok((number, get.u64()?))
}

fn func_id(number: u64) -> Result<FuncId, Malformed> {
    u32::try_from(number)
        .ok()
        .and_then(FuncId::new)
        .ok_or(Malformed("function id 0"))
}
