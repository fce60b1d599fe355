//! Branch stacks of samples: the second pass, which shows each sample's.
use std::rc::Rc;

use super::records::{Records, SAMPLE};
use super::sample::{BRANCH_STACK, Sample, attr};
use super::scan::Scan;
use crate::decode::files::Files;
use crate::decode::tasks::Tasks;
use crate::decode::{DecodeError, Request, Told};
use crate::lbr::Runs;
use crate::pt::Summary;
use crate::sink::Sink;

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
