//! A callee that reads its own return address before it has pushed anything, as `setjmp` does: told apart from a new call
//! that pushes the same address at the same place.
use iced_x86::{FlowControl, Instruction};

use super::super::memory;
use crate::flow;

/// Instructions that a callee may run before it reads its return address.
const PROLOGUE: usize = 24;

/// Whether straight code from `target` on leads to `rip`, so that it was not called anew.
pub(super) fn reads_slot(target: u64, rip: u64) -> bool {
    let mut at = target;
    for place in 0..PROLOGUE {
        if at == rip {
            return place > 0;
        }
        let mut bytes = [0; 15];
        let got = memory::read(at, &mut bytes);
        let Some(instruction) = flow::decode(at, bytes.get(..got).unwrap_or_default()) else {
            return false;
        };
        let next = flow::successors(&instruction);
        let Some(next) = next.fall.or(next.target).or_else(|| through(&instruction)) else {
            return false;
        };
        at = next;
    }
    false
}

/// Where a jump through a word of the program's table of functions leads.
fn through(instruction: &Instruction) -> Option<u64> {
    let jump = instruction.flow_control() == FlowControl::IndirectBranch
        && instruction.is_ip_rel_memory_operand();
    jump.then(|| memory::read_word(instruction.ip_rel_memory_address()))
        .flatten()
}
