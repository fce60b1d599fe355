//! Native code: by build-id and the offset of the first instruction. Another build is another program.

use crate::catalog::{DefId, Why};
use crate::function::{FunctionInfo, UnknownReason};

use super::index::Index;

/// The definition that a function is.
pub(super) fn find(index: &Index<'_>, info: &FunctionInfo) -> Result<DefId, Why> {
    if let Some(why) = unplaced(info) {
        return Err(why);
    }
    let Some(image) = index.image(&info.build_id) else {
        return Err(match index.file_at(&info.path) {
            Some(_) => Why::Edited,
            None => Why::OutOfTree,
        });
    };
    index.code(image, info.file_offset).ok_or(Why::NotFound)
}

fn unplaced(info: &FunctionInfo) -> Option<Why> {
    match (&info.unknown, &*info.path) {
        (Some(UnknownReason::Anonymous), _) | (_, "[jit]") => Some(Why::Jit),
        (_, "[vdso]" | "[kernel]" | "[uprobes]") => Some(Why::System),
        (_, "") => Some(Why::NoPlace),
        _ => None,
    }
}
