//! What is to be done with one instruction in a copy. Pure: from its bytes alone.
use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::flow;

/// How an instruction is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// As it is, its distance to data adjusted.
    Plain,
    /// As it is, with rcx logged before and behind.
    Repeated,
    Jump(u64),
    /// Taken there, else on behind.
    Condition(u64),
    Call(u64),
    JumpThrough,
    CallThrough,
    /// So many bytes more are taken off the stack.
    Return(u32),
    /// Not at all: it is stepped.
    Stepped,
}

/// The shape of an instruction.
pub(super) fn of(instruction: &Instruction, bytes: &[u8]) -> Shape {
    if is_special(instruction) || is_short_branch(instruction, bytes) {
        return Shape::Stepped;
    }
    let near = instruction.op0_kind() == OpKind::NearBranch64;
    let target = instruction.near_branch_target();
    match instruction.flow_control() {
        FlowControl::Next if flow::is_repeated(instruction) => repeated(instruction),
        FlowControl::Next => Shape::Plain,
        FlowControl::UnconditionalBranch if near => Shape::Jump(target),
        FlowControl::ConditionalBranch if near => Shape::Condition(target),
        FlowControl::Call if near => Shape::Call(target),
        FlowControl::IndirectBranch if is_whole(instruction) => Shape::JumpThrough,
        FlowControl::IndirectCall if is_whole(instruction) => Shape::CallThrough,
        FlowControl::Return => match instruction.code() {
            Code::Retnq => Shape::Return(0),
            Code::Retnq_imm16 => Shape::Return(u32::from(instruction.immediate16())),
            _ => Shape::Stepped,
        },
        _ => Shape::Stepped,
    }
}

/// A branch with an operand-size prefix: Intel's processors ignore it, AMD's cut the target to 16 bits.
fn is_short_branch(instruction: &Instruction, bytes: &[u8]) -> bool {
    let mut prefixes = bytes.iter().take_while(|byte| is_prefix(**byte));
    instruction.flow_control() != FlowControl::Next && prefixes.any(|byte| *byte == 0x66)
}

/// What needs a stop, or tells where it is in a way that cannot be adjusted.
fn is_special(instruction: &Instruction) -> bool {
    flow::is_system_call(instruction)
        || flow::is_breakpoint(instruction)
        || flow::loads_stack_segment(instruction)
        || flow::pops_flags(instruction)
        || instruction.memory_base() == Register::EIP
        || instruction.is_privileged()
        || matches!(
            instruction.mnemonic(),
            Mnemonic::Sysenter
                | Mnemonic::Wrpkru
                | Mnemonic::Xrstor
                | Mnemonic::Xrstor64
                | Mnemonic::Fnstenv
                | Mnemonic::Fnsave
                | Mnemonic::Fxsave
                | Mnemonic::Fxsave64
        )
}

fn is_whole(instruction: &Instruction) -> bool {
    match instruction.op0_kind() {
        OpKind::Register => instruction.op0_register().size() == 8,
        OpKind::Memory => {
            matches!(instruction.code(), Code::Jmp_rm64 | Code::Call_rm64)
        }
        _ => false,
    }
}

/// Those that count in rcx.
fn repeated(instruction: &Instruction) -> Shape {
    let narrow = (0..instruction.op_count()).any(|operand| {
        matches!(
            instruction.op_kind(operand),
            OpKind::MemorySegESI | OpKind::MemoryESEDI | OpKind::MemorySegEDI
        )
    });
    if narrow {
        Shape::Stepped
    } else {
        Shape::Repeated
    }
}

/// `call` or `jmp` through a register or memory -> the `mov rax, ...` that loads where it leads, and whether its last four
/// bytes are a distance to be adjusted. `None` for prefixes that change what it means.
pub(super) fn load(instruction: &Instruction, bytes: &[u8]) -> Option<([u8; 15], usize)> {
    let (mut out, mut len) = ([0; 15], 0);
    let mut put = |byte: u8| {
        if let Some(place) = out.get_mut(len) {
            *place = byte;
        }
        len += 1;
    };
    let mut rest = bytes.iter().copied().peekable();
    while let Some(prefix) = rest.next_if(|byte| is_prefix(*byte)) {
        match prefix {
            0x66 => return None,
            // Bases of segments, and the width of addresses, mean the same here; hints for branches nothing.
            0x64 | 0x65 | 0x67 => put(prefix),
            _ => {}
        }
    }
    let rex = rest.next_if(|byte| byte & 0xf0 == 0x40).unwrap_or(0x40);
    put(0x48 | rex & 3);
    if rest.next() != Some(0xff) {
        return None;
    }
    put(0x8b);
    put(rest.next()? & 0b1100_0111);
    rest.for_each(&mut put);
    (instruction.op0_kind() != OpKind::Memory || len <= 15).then_some((out, len))
}

fn is_prefix(byte: u8) -> bool {
    matches!(
        byte,
        0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65 | 0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(bytes: &[u8]) -> Shape {
        of(&flow::decode(0x1000, bytes).expect("an instruction"), bytes)
    }

    #[test]
    fn what_needs_a_stop_is_stepped() {
        for bytes in [
            &[0x0f_u8, 5] as &[u8],
            &[0xcd, 0x80],
            &[0xcc],
            &[0x8e, 0xd0],
            &[0x9d],
            &[0x48, 0xcf],
            &[0x0f, 0x0b],
            &[0xf4],
            &[0x67, 0xf3, 0xaa],
            &[0x67, 0x8b, 0x05, 0, 0, 0, 0],
            &[0xff, 0x2f],
            &[0x66, 0xc3],
            &[0x66, 0xe9, 0, 0, 0, 0],
        ] {
            assert_eq!(shape(bytes), Shape::Stepped, "{bytes:x?}");
        }
    }

    #[test]
    fn branches_are_told_apart() {
        assert_eq!(shape(&[0xeb, 0xfe]), Shape::Jump(0x1000));
        assert_eq!(shape(&[0xe2, 0xfe]), Shape::Condition(0x1000));
        assert_eq!(shape(&[0xe8, 0, 0, 0, 0]), Shape::Call(0x1005));
        assert_eq!(shape(&[0xff, 0xe0]), Shape::JumpThrough);
        assert_eq!(shape(&[0xff, 0x10]), Shape::CallThrough);
        assert_eq!(shape(&[0xc2, 16, 0]), Shape::Return(16));
        assert_eq!(shape(&[0xf3, 0xaa]), Shape::Repeated);
    }

    #[test]
    fn a_branch_through_memory_becomes_a_load() {
        let check = |bytes: &[u8], expect: &[u8]| {
            let instruction = flow::decode(0x1000, bytes).expect("an instruction");
            let loaded = load(&instruction, bytes).map(|(out, len)| out[..len].to_vec());
            assert_eq!(loaded.as_deref(), Some(expect), "{bytes:x?}");
        };
        check(&[0xff, 0xd0], &[0x48, 0x8b, 0xc0]);
        check(&[0x41, 0xff, 0xd3], &[0x49, 0x8b, 0xc3]);
        check(&[0xff, 0x54, 0x24, 8], &[0x48, 0x8b, 0x44, 0x24, 8]);
        check(
            &[0x64, 0xff, 0x14, 0x25, 0, 1, 0, 0],
            &[0x64, 0x48, 0x8b, 0x04, 0x25, 0, 1, 0, 0],
        );
        check(
            &[0xf2, 0xff, 0x25, 1, 2, 3, 4],
            &[0x48, 0x8b, 0x05, 1, 2, 3, 4],
        );
        check(&[0x3e, 0xff, 0xe1], &[0x48, 0x8b, 0xc1]);
    }
}
