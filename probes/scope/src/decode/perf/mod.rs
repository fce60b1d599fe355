//! `perf.data`: a first pass collects what happened beside the traces, a second one decodes them.
mod branch;
mod bytes;
mod inflate;
mod layout;
mod pieces;
mod pt;
mod records;
mod sample;
mod scan;

use std::fs::File;

use super::files::Files;
use super::{DecodeError, Request, Told};
use crate::pt::Summary;
use crate::sink::Sink;
use crate::trace::Tier;
use scan::Scan;

/// Decodes what `perf record` wrote: Intel PT if there is some, else branch stacks.
pub(super) fn decode(
    request: &Request,
    sink: &mut dyn Sink,
    told: &mut Told<'_>,
) -> Result<(Tier, Summary), DecodeError> {
    let path = &request.trace;
    let damaged = |why: String| DecodeError::damaged(path, &why);
    let mut file = File::open(path).map_err(|source| DecodeError::io(path, source))?;
    let layout = layout::Layout::read(&mut file).map_err(damaged)?;
    let scan = Scan::of(file, layout).map_err(damaged)?;
    let mut files = Files::new(&request.folders);
    let decoded = if scan.is_intel_pt() {
        (
            Tier::IntelPt,
            pt::decode(request, &scan, &mut files, sink, told)?,
        )
    } else if scan.has_branches() {
        (
            Tier::Lbr,
            branch::decode(request, &scan, &mut files, sink, told)?,
        )
    } else {
        return Err(DecodeError::NoTrace(path.clone()));
    };
    told.complaints(files.complaints());
    Ok(decoded)
}

/// How many packets of each of libipt's kinds the Intel PT of a `perf.data` holds.
///
/// # Errors
/// It cannot be read, or libipt is not there.
pub fn packets(path: &std::path::Path) -> Result<[u64; 32], DecodeError> {
    let damaged = |why: String| DecodeError::damaged(path, &why);
    let mut file = File::open(path).map_err(|source| DecodeError::io(path, source))?;
    let layout = layout::Layout::read(&mut file).map_err(damaged)?;
    let scan = Scan::of(file, layout).map_err(damaged)?;
    let mut all = [0; 32];
    for trace in scan.traces.values() {
        let mut bytes = Vec::new();
        for chunk in &trace.chunks {
            scan.read(chunk.raw.at, chunk.raw.len, &mut bytes)
                .map_err(damaged)?;
        }
        let (counts, _) = crate::pt::packets(&bytes).map_err(DecodeError::Library)?;
        for (sum, count) in all.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    Ok(all)
}

/// The branch stacks of a `perf.data`, sample by sample, the newest branch first.
///
/// # Errors
/// It cannot be read.
pub fn branch_stacks(path: &std::path::Path) -> Result<Vec<Vec<crate::lbr::Branch>>, DecodeError> {
    let damaged = |why: String| DecodeError::damaged(path, &why);
    let mut file = File::open(path).map_err(|source| DecodeError::io(path, source))?;
    let layout = layout::Layout::read(&mut file).map_err(damaged)?;
    let scan = Scan::of(file, layout).map_err(damaged)?;
    let mut all = Vec::new();
    branch::each(&scan, |sample| all.push(sample.stack)).map_err(damaged)?;
    Ok(all)
}
