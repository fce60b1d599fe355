//! Pieces of a trace that samples hold: each is the newest part of a buffer when its sample was taken, so that it may begin
//! before the piece before it ends.
use std::collections::BTreeMap;

use super::records::Raw;
use super::scan::{Chunk, Trace};
use crate::pt::psb::PSB;

/// What stands within few bytes behind a synchronisation point and makes it one of a kind: its time stamp.
const TSC: u8 = 0x19;
const LATEST: usize = 8;
const STAMPED: usize = PSB.len() + LATEST + 8;

/// Whose buffer a piece is of: processor or thread.
type Owner = (Option<u32>, Option<u32>);

/// Pieces by buffer.
#[derive(Debug, Default)]
pub(super) struct Pieces(BTreeMap<Owner, (Trace, Vec<u8>)>);

impl Pieces {
    /// The next piece of a buffer: its bytes and where they are.
    pub(super) fn add(&mut self, owner: Owner, raw: Raw, bytes: Vec<u8>) {
        let (trace, last) = self.0.entry(owner).or_default();
        (trace.cpu, trace.tid, trace.sampled) = (owner.0, owner.1, true);
        let end = trace
            .chunks
            .last()
            .map(|chunk| chunk.offset + chunk.raw.len);
        let offset = match (end, overlap(last, &bytes)) {
            (None, _) => 0,
            (Some(end), Some(common)) => end - common as u64,
            // Something ran between.
            (Some(end), None) => end + 1,
        };
        trace.chunks.push(Chunk { raw, offset });
        *last = bytes;
    }

    /// The traces that they are.
    pub(super) fn traces(self) -> impl Iterator<Item = Trace> {
        self.0.into_values().map(|(trace, _)| trace)
    }
}

/// How many bytes at the end of `old` are the beginning of `new`: told by the first synchronisation point with a time.
fn overlap(old: &[u8], new: &[u8]) -> Option<usize> {
    let place = new.windows(STAMPED).position(is_stamped)?;
    let stamped = new.get(place..place + STAMPED)?;
    let there = old.windows(STAMPED).position(|bytes| bytes == stamped)?;
    let common = old.get(there.checked_sub(place)?..)?;
    new.starts_with(common).then_some(common.len())
}

fn is_stamped(bytes: &[u8]) -> bool {
    let behind = bytes.strip_prefix(&PSB);
    behind.is_some_and(|rest| rest.iter().take(LATEST + 1).any(|byte| *byte == TSC))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamped(time: u8) -> Vec<u8> {
        [&PSB[..], &[0x99, 1, 2, 0x23, TSC, time], &[0; 10]].concat()
    }

    #[test]
    fn pieces_overlap_where_a_time_stands_in_both() {
        let all = [vec![6, 6], stamped(1), vec![4, 4], stamped(2), vec![8]].concat();
        assert_eq!(overlap(&all[..50], &all[1..]), Some(49));
        assert_eq!(overlap(&all[..20], &all[22..]), None);
        assert_eq!(overlap(&stamped(1), &stamped(2)), None);
        assert_eq!(overlap(&[], &all), None);
        // The same time, and other bytes behind it.
        let other = [stamped(1), vec![5]].concat();
        assert_eq!(overlap(&all[2..36], &other), None);
    }
}
