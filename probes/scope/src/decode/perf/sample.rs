//! One sample of a `perf.data`: what it holds is said by its event's attributes, in the order that the kernel writes.
use super::bytes::Bytes;
use super::layout::Attr;
use super::records::{CPU, ID, IDENTIFIER, STREAM_ID, TID, TIME};
use crate::lbr::Branch;

const IP: u64 = 1;
const ADDR: u64 = 1 << 3;
const READ: u64 = 1 << 4;
const CALLCHAIN: u64 = 1 << 5;
const PERIOD: u64 = 1 << 8;
const RAW: u64 = 1 << 10;
pub(super) const BRANCH_STACK: u64 = 1 << 11;
const REGISTERS_OF_USER: u64 = 1 << 12;
const STACK_OF_USER: u64 = 1 << 13;
const WEIGHT: u64 = 1 << 14;
const DATA_SOURCE: u64 = 1 << 15;
const TRANSACTION: u64 = 1 << 17;
const REGISTERS: u64 = 1 << 18;
const PHYSICAL: u64 = 1 << 19;
/// A piece of the trace that was recorded beside.
pub(super) const AUX: u64 = 1 << 20;
const CGROUP: u64 = 1 << 21;
const DATA_PAGE: u64 = 1 << 22;
const CODE_PAGE: u64 = 1 << 23;
const WEIGHTS: u64 = 1 << 24;
/// The stack says where in the hardware its newest record stood.
const HARDWARE_INDEX: u64 = 1 << 17;
/// A word of counters behind the stack for each of its records.
const COUNTERS: u64 = 1 << 19;
/// Most branches of one sample: no processor has as many.
const MOST: u64 = 4096;

/// One sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) cpu: u32,
    pub(super) time: u64,
    /// The newest first.
    pub(super) stack: Vec<Branch>,
    /// Its piece of the trace: how long it is, and how many bytes of the record are behind its beginning.
    pub(super) aux: Option<(u64, u64)>,
}

impl Sample {
    /// Reads it.
    pub(super) fn read(attr: &Attr, mut body: Bytes<'_>) -> Option<Self> {
        let has = |bit: u64| attr.sample_type & bit != 0;
        let mut sample = Self::default();
        let words = |bits: &[u64]| 8 * bits.iter().filter(|bit| has(**bit)).count();
        body.skip(words(&[IDENTIFIER, IP]))?;
        if has(TID) {
            (sample.pid, sample.tid) = (body.u32()?, body.u32()?);
        }
        if has(TIME) {
            sample.time = body.u64()?;
        }
        body.skip(words(&[ADDR, ID, STREAM_ID]))?;
        if has(CPU) {
            sample.cpu = body.u32()?;
            body.skip(4)?;
        }
        body.skip(words(&[PERIOD]))?;
        if has(READ) {
            body.skip(read_len(attr.read_format, body)?)?;
        }
        if has(CALLCHAIN) {
            let frames = body.u64()?;
            body.skip(usize::try_from(frames).ok()?.checked_mul(8)?)?;
        }
        if has(RAW) {
            let len = body.u32()?;
            body.skip(usize::try_from(len).ok()?)?;
        }
        if has(BRANCH_STACK) {
            sample.stack = stack(attr, &mut body)?;
        }
        if has(AUX) {
            behind(attr, &mut body)?;
            let len = body.u64()?;
            let left = u64::try_from(body.len()).ok()?;
            sample.aux = Some((len, left)).filter(|_| len <= left);
            sample.aux?;
        }
        Some(sample)
    }
}

fn stack(attr: &Attr, body: &mut Bytes<'_>) -> Option<Vec<Branch>> {
    let mut stack = Vec::new();
    let count = body.u64()?;
    if attr.branch_sample_type & HARDWARE_INDEX != 0 {
        body.u64()?;
    }
    for _ in 0..count.min(MOST) {
        stack.push(Branch {
            from: body.u64()?,
            to: body.u64()?,
            flags: body.u64()?,
        });
    }
    if attr.branch_sample_type & COUNTERS != 0 {
        body.skip(8 * stack.len())?;
    }
    Some(stack)
}

/// Skips what stands between the stack of branches and the piece of trace.
fn behind(attr: &Attr, body: &mut Bytes<'_>) -> Option<()> {
    let has = |bit: u64| attr.sample_type & bit != 0;
    let words = |bits: &[u64]| 8 * bits.iter().filter(|bit| has(**bit)).count();
    let [of_user, all] = attr.registers;
    if has(REGISTERS_OF_USER) {
        registers(of_user, body)?;
    }
    if has(STACK_OF_USER) {
        let len = usize::try_from(body.u64()?).ok()?;
        body.skip(len)?;
        // How much of it is used.
        body.skip(if len > 0 { 8 } else { 0 })?;
    }
    body.skip(words(&[WEIGHT | WEIGHTS, DATA_SOURCE, TRANSACTION]))?;
    if has(REGISTERS) {
        registers(all, body)?;
    }
    body.skip(words(&[PHYSICAL, CGROUP, DATA_PAGE, CODE_PAGE]))
}

fn registers(mask: u64, body: &mut Bytes<'_>) -> Option<()> {
    let none = body.u64()? == 0;
    let count = if none { 0 } else { mask.count_ones() };
    body.skip(8 * usize::try_from(count).ok()?)
}

/// How long the counter values of a sample are.
fn read_len(format: u64, mut body: Bytes<'_>) -> Option<usize> {
    const TIMES: u64 = 3;
    const EACH: u64 = 4 | 16;
    const GROUP: u64 = 8;
    let times = (format & TIMES).count_ones() as usize;
    let each = 1 + (format & EACH).count_ones() as usize;
    let words = if format & GROUP == 0 {
        each + times
    } else {
        let counters = usize::try_from(body.u64()?).ok()?;
        1 + times + counters.checked_mul(each)?
    };
    words.checked_mul(8)
}

/// The event that a sample is of: with several, each sample begins or ends in its number.
pub(super) fn attr<'l>(attrs: &'l [Attr], body: Bytes<'_>) -> Option<&'l Attr> {
    let first = attrs.first()?;
    if attrs.len() > 1 && first.sample_type & IDENTIFIER != 0 {
        let id = { body }.u64()?;
        return attrs.iter().find(|attr| attr.ids.contains(&id));
    }
    Some(first)
}
