//! Which functions an exception can never pass: the closure over direct calls, whole image.
//!
//! A function is safe if neither it nor anything it reaches by direct calls and jumps throws, calls an import that
//! may, or calls through a pointer.

use super::flow::{Escape, EscapeKind, Flow};
use super::functions::ImageFunction;

/// Why an exception may pass a function: the instruction, and the callee through which it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    pub(super) escape: Escape,
    /// Index of the function that holds the instruction, unless it is the function itself.
    pub(super) through: Option<u32>,
}

/// By index of function: `None` = proven safe.
pub(super) fn reach(functions: &[ImageFunction], flow: &Flow) -> Vec<Option<Reach>> {
    let mut reached: Vec<Option<Reach>> = flow
        .traits
        .iter()
        .map(|traits| {
            traits.escape.map(|escape| Reach {
                escape,
                through: None,
            })
        })
        .collect();
    let mut callers: Vec<(u32, u32)> = Vec::with_capacity(flow.edges.len());
    for &(caller, target) in &flow.edges {
        match containing(functions, target) {
            Some(callee) => callers.push((callee, caller)),
            None => mark_unknown(&mut reached, caller, target),
        }
    }
    callers.sort_unstable();
    callers.dedup();
    spread(&mut reached, &callers);
    reached
}

fn mark_unknown(reached: &mut [Option<Reach>], caller: u32, target: u64) {
    if let Some(slot) = reached.get_mut(caller as usize) {
        let escape = Escape {
            at: target,
            kind: EscapeKind::UnknownTarget { target },
        };
        slot.get_or_insert(Reach {
            escape,
            through: None,
        });
    }
}

/// Callers of what is reached are reached, until nothing changes.
fn spread(reached: &mut [Option<Reach>], callers: &[(u32, u32)]) {
    let mut work: Vec<u32> = (0u32..)
        .zip(reached.iter())
        .filter(|(_, reach)| reach.is_some())
        .map(|(i, _)| i)
        .collect();
    while let Some(callee) = work.pop() {
        let Some(&Some(reach)) = reached.get(callee as usize) else {
            continue;
        };
        let first = callers.partition_point(|&(other, _)| other < callee);
        for &(_, caller) in callers
            .get(first..)
            .unwrap_or_default()
            .iter()
            .take_while(|&&(other, _)| other == callee)
        {
            if let Some(slot @ None) = reached.get_mut(caller as usize) {
                *slot = Some(Reach {
                    escape: reach.escape,
                    through: reach.through.or(Some(callee)),
                });
                work.push(caller);
            }
        }
    }
}

/// Index of the function that an address belongs to.
pub(super) fn containing(functions: &[ImageFunction], vaddr: u64) -> Option<u32> {
    let index = functions
        .partition_point(|function| function.vaddr <= vaddr)
        .checked_sub(1)?;
    functions
        .get(index)
        .filter(|function| vaddr < function.end())?;
    u32::try_from(index).ok()
}
