//! A set of code addresses: one bit for each byte of the executable segments.

use super::elf::ElfFile;

#[derive(Debug)]
struct Range {
    start: u64,
    end: u64,
    words: Vec<u64>,
}

/// Addresses outside of code are never members.
#[derive(Debug)]
pub(super) struct CodeBits {
    ranges: Vec<Range>,
}

impl CodeBits {
    /// The empty set over an image's code.
    pub(super) fn new(elf: &ElfFile<'_>) -> Self {
        let executable = elf.segments.iter().filter(|segment| segment.executable);
        let ranges = executable.map(|segment| Range {
            start: segment.vaddr,
            end: segment.end(),
            words: vec![0; usize::try_from(segment.file_size.div_ceil(64)).unwrap_or(0)],
        });
        Self {
            ranges: ranges.collect(),
        }
    }

    /// Adds an address; false if it is not code.
    pub(super) fn set(&mut self, vaddr: u64) -> bool {
        let Some(range) = self
            .ranges
            .iter_mut()
            .find(|range| (range.start..range.end).contains(&vaddr))
        else {
            return false;
        };
        let bit = vaddr - range.start;
        if let Some(word) = range.words.get_mut((bit / 64) as usize) {
            *word |= 1 << (bit % 64);
        }
        true
    }

    fn get(&self, vaddr: u64) -> bool {
        let range = self
            .ranges
            .iter()
            .find(|range| (range.start..range.end).contains(&vaddr));
        range.is_some_and(|range| {
            let bit = vaddr - range.start;
            range
                .words
                .get((bit / 64) as usize)
                .is_some_and(|word| word & (1 << (bit % 64)) != 0)
        })
    }

    /// The first member after `entry`, up to and with `last`.
    pub(super) fn first_after(&self, entry: u64, last: u64) -> Option<u64> {
        (entry.saturating_add(1)..=last).find(|&vaddr| self.get(vaddr))
    }
}
