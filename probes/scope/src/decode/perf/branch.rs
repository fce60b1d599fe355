//! Branch stacks of samples: the second pass, which shows each sample's.
use std::rc::Rc;

use super::bytes::Bytes;
use super::layout::Attr;
use super::records::{CPU, ID, IDENTIFIER, Records, SAMPLE, STREAM_ID, TID, TIME};
use super::scan::Scan;
use crate::decode::files::Files;
use crate::decode::tasks::Tasks;
use crate::decode::{DecodeError, Request, Told};
use crate::lbr::{Branch, Runs};
use crate::pt::Summary;
use crate::sink::Sink;

const IP: u64 = 1;
const ADDR: u64 = 1 << 3;
const READ: u64 = 1 << 4;
const CALLCHAIN: u64 = 1 << 5;
const PERIOD: u64 = 1 << 8;
const RAW: u64 = 1 << 10;
pub(super) const BRANCH_STACK: u64 = 1 << 11;
/// The stack says where in the hardware its newest record stood.
const HARDWARE_INDEX: u64 = 1 << 17;
/// Most branches of one sample: no processor has as many.
const MOST: u64 = 4096;

/// One sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) time: u64,
    /// The newest first.
    pub(super) stack: Vec<Branch>,
}

impl Sample {
    fn read(attr: &Attr, mut body: Bytes<'_>) -> Option<Self> {
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
        body.skip(words(&[ADDR, ID, STREAM_ID, CPU, PERIOD]))?;
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
            let count = body.u64()?;
            if attr.branch_sample_type & HARDWARE_INDEX != 0 {
                body.u64()?;
            }
            for _ in 0..count.min(MOST) {
                sample.stack.push(Branch {
                    from: body.u64()?,
                    to: body.u64()?,
                    flags: body.u64()?,
                });
            }
        }
        Some(sample)
    }
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
fn attr<'l>(attrs: &'l [Attr], body: Bytes<'_>) -> Option<&'l Attr> {
    let first = attrs.first()?;
    if attrs.len() > 1 && first.sample_type & IDENTIFIER != 0 {
        let id = { body }.u64()?;
        return attrs.iter().find(|attr| attr.ids.contains(&id));
    }
    Some(first)
}

/// Shows each sample to `see`. Whether some could not be read.
pub(super) fn each(scan: &Scan, mut see: impl FnMut(Sample)) -> Result<bool, String> {
    let file = scan
        .file
        .borrow()
        .try_clone()
        .map_err(|error| error.to_string())?;
    let mut records = Records::new(file, scan.layout.records).map_err(|error| error.to_string())?;
    let mut damaged = false;
    records.each(|record, _| {
        if record.kind == SAMPLE {
            match attr(&scan.layout.attrs, record.body) {
                Some(attr) if attr.sample_type & BRANCH_STACK == 0 => {}
                Some(attr) => match Sample::read(attr, record.body) {
                    Some(sample) => see(sample),
                    None => damaged = true,
                },
                None => damaged = true,
            }
        }
        Ok(())
    })?;
    Ok(damaged)
}

/// Makes runs of all samples.
pub(super) fn decode(
    request: &Request,
    scan: &Scan,
    files: &mut Files,
    sink: &mut dyn Sink,
    told: &mut Told<'_>,
) -> Result<Summary, DecodeError> {
    let changes = Rc::from(scan.changes.as_slice());
    let mut tasks =
        Tasks::new(files, changes, request.thread, true).map_err(DecodeError::Library)?;
    let mut runs = Runs::new(sink);
    runs.doubt(scan.reasons);
    let mut failed = None;
    let total = scan.layout.records.1;
    let damaged = each(scan, |sample| {
        if failed.is_none() && request.thread.is_none_or(|tid| tid == sample.tid) {
            failed = tasks.advance(Some(sample.time)).err();
            tasks.thread(sample.pid, sample.tid);
            let mut space = tasks.space(sample.tid);
            runs.sample(sample.tid, &mut space, &sample.stack);
        }
    });
    told.progress(total, total);
    if let Some(why) = failed {
        return Err(DecodeError::Library(why));
    }
    if damaged.map_err(|why| DecodeError::damaged(&request.trace, &why))? {
        runs.doubt(crate::trace::Reasons::DECODE);
    }
    Ok(runs.finish())
}
