//! Code addresses that data holds: pointers in data segments, and tables of jump distances.

use super::bits::CodeBits;
use super::dynamic::{Dynamic, Slot};
use super::elf::{ElfFile, ImageKind};
use super::state::FunctionState;

/// Longest jump table that is followed, in entries.
const MAX_ENTRIES: usize = 1 << 14;

/// All code whose address stands in data when the image is loaded.
///
/// In a position-independent image the loader must relocate each such word, so that the relocations are all of
/// them; else any aligned word with the value of a code address may be one.
pub(super) fn pointers_in_data(elf: &ElfFile<'_>, dynamic: &Dynamic<'_>) -> CodeBits {
    let mut pointers = CodeBits::new(elf);
    for slot in dynamic.slots.values() {
        if let Slot::Local(vaddr) | Slot::Resolved(vaddr) = *slot {
            pointers.set(vaddr);
        }
    }
    if elf.kind() == ImageKind::Executable {
        for segment in elf.segments.iter().filter(|segment| !segment.executable) {
            let aligned = segment.vaddr.checked_next_multiple_of(8);
            for word in aligned
                .and_then(|aligned| elf.bytes_from(aligned))
                .unwrap_or_default()
                .as_chunks::<8>()
                .0
            {
                pointers.set(u64::from_le_bytes(*word));
            }
        }
    }
    pointers
}

/// Follows the tables of 4-byte distances (`base + distance` = case label) that a function without a frame may
/// jump through, and marks it if some of its computed jumps has none.
pub(super) fn resolve(elf: &ElfFile<'_>, state: &mut FunctionState, pointers: &mut CodeBits) {
    if state.frameless_computed.is_none() {
        return;
    }
    let (start, end) = (state.start, state.end);
    let mut resolved = 0;
    for &base in state.tables() {
        let distances = elf
            .bytes_from(base)
            .unwrap_or_default()
            .as_chunks::<4>()
            .0
            .iter()
            .take(MAX_ENTRIES);
        let targets = distances
            .map(|distance| base.wrapping_add_signed(i64::from(i32::from_le_bytes(*distance))))
            .take_while(|target| (start..end).contains(target));
        resolved += usize::from(targets.map(|target| pointers.set(target)).count() > 0);
    }
    state.tables_resolved = resolved >= state.computed_jumps;
}
