//! The kernel's rules for one instruction under a breakpoint: refused, emulated, or executed out of line.
//!
//! Facts from `arch/x86/kernel/uprobes.c` of Linux 6.6 to 6.18 (`uprobe_init_insn`, `branch_setup_xol_ops`,
//! `push_setup_xol_ops`, `can_optimize`). Where releases differ the rule names them; where the kernel accepts what
//! could harm the program, this refuses.

use iced_x86::{Code, EncodingKind, FlowControl, Instruction, Mnemonic, OpKind, Register};
use serde::{Deserialize, Serialize};

use super::KernelRelease;

/// What one hit of a probe at an instruction costs, by how the kernel carries the instruction out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SiteCost {
    /// A 5-byte nop: the breakpoint becomes a call into the kernel, without a trap (from 6.18).
    Nop5,
    /// One trap; the kernel emulates the instruction.
    Emulated,
    /// Two traps: the instruction is single-stepped in a page of the kernel's (about 17 times dearer in a virtual
    /// machine, 3 times on bare metal).
    SingleStepped,
}

impl SiteCost {
    /// Short stable word for tables and JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Nop5 => "nop5",
            Self::Emulated => "emulated",
            Self::SingleStepped => "stepped",
        }
    }
}

/// Why the kernel, or caution, refuses a probe at an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unprobeable {
    /// `lock` or a segment prefix other than `fs` and `gs`.
    Prefix,
    /// An opcode outside of the kernel's table of good ones (vector instructions reuse such numbers).
    Opcode,
    /// A branch with an operand-size prefix.
    ShortBranch,
    /// A system call or its return: out of line it would return to a foreign address.
    SystemCall,
    /// An instruction that only traps.
    Trap,
    /// `xchg %rax,%r8`: the kernel takes it for a nop, and the exchange would be lost.
    ExchangeTakenForNop,
    /// Not an instruction.
    Invalid,
}

impl std::fmt::Display for Unprobeable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Prefix => "the kernel refuses its lock or segment prefix",
            Self::Opcode => "the kernel's table has its opcode as bad",
            Self::ShortBranch => "the kernel refuses branches with an operand-size prefix",
            Self::SystemCall => "a system call cannot be moved out of line",
            Self::Trap => "it only traps",
            Self::ExchangeTakenForNop => "the kernel would take this exchange for a nop",
            Self::Invalid => "it is no instruction",
        })
    }
}

/// How the kernel will carry out `instruction`, whose encoding is `bytes`.
pub(super) fn judge(
    instruction: &Instruction,
    bytes: &[u8],
    kernel: KernelRelease,
) -> Result<SiteCost, Unprobeable> {
    refusal(instruction, bytes).map_or(Ok(()), Err)?;
    if is_emulated_nop(bytes, kernel) {
        let same_page = instruction.ip() & 0xfff <= 0x1000 - 5;
        let optimized = bytes.len() == 5
            && same_page
            && kernel >= KernelRelease(6, 18, 0)
            && kernel < KernelRelease(7, 0, 0);
        return Ok(if optimized {
            SiteCost::Nop5
        } else {
            SiteCost::Emulated
        });
    }
    let near = instruction.op0_kind() == OpKind::NearBranch64 && is_near_branch(instruction);
    Ok(if near || is_emulated_push(bytes) {
        SiteCost::Emulated
    } else {
        SiteCost::SingleStepped
    })
}

fn is_near_branch(instruction: &Instruction) -> bool {
    match instruction.flow_control() {
        FlowControl::Call => instruction.code() == Code::Call_rel32_64,
        FlowControl::UnconditionalBranch => instruction.is_jmp_short_or_near(),
        // `loop` and `jrcxz` are conditional branches too, but not of the kernel's kind.
        FlowControl::ConditionalBranch => instruction.is_jcc_short_or_near(),
        _ => false,
    }
}

/// `push %reg`, without or with the plain REX prefix that names `r8` to `r15`.
fn is_emulated_push(bytes: &[u8]) -> bool {
    matches!(bytes, [0x50..=0x57] | [0x41, 0x50..=0x57])
}

/// The nops that the kernel's own code is padded with are emulated from 6.16; before, only the one-byte one.
fn is_emulated_nop(bytes: &[u8], kernel: KernelRelease) -> bool {
    const LONG: [&[u8]; 7] = [
        &[0x66, 0x90],
        &[0x0f, 0x1f, 0x00],
        &[0x0f, 0x1f, 0x40, 0x00],
        &[0x0f, 0x1f, 0x44, 0x00, 0x00],
        &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
        &[0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00],
        &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
    ];
    bytes == [0x90] || (kernel >= KernelRelease(6, 16, 0) && LONG.contains(&bytes))
}

fn refusal(instruction: &Instruction, bytes: &[u8]) -> Option<Unprobeable> {
    if instruction.is_invalid() {
        return Some(Unprobeable::Invalid);
    }
    let prefixes = bytes
        .iter()
        .take_while(|&&byte| is_legacy_prefix(byte))
        .count();
    let (prefixes, rest) = bytes.split_at_checked(prefixes)?;
    if prefixes
        .iter()
        .any(|prefix| matches!(prefix, 0x26 | 0x2e | 0x36 | 0x3e | 0xf0))
    {
        return Some(Unprobeable::Prefix);
    }
    if instruction.flow_control() != FlowControl::Next && prefixes.contains(&0x66) {
        return Some(Unprobeable::ShortBranch);
    }
    match instruction.mnemonic() {
        Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Sysret | Mnemonic::Sysexit => {
            return Some(Unprobeable::SystemCall);
        }
        Mnemonic::Ud0
        | Mnemonic::Ud1
        | Mnemonic::Ud2
        | Mnemonic::Int3
        | Mnemonic::Int1
        | Mnemonic::Hlt => {
            return Some(Unprobeable::Trap);
        }
        Mnemonic::Xchg
            if rest.last() == Some(&0x90) && instruction.op0_kind() == OpKind::Register =>
        {
            return Some(Unprobeable::ExchangeTakenForNop);
        }
        // Masks the single-step trap for one instruction.
        Mnemonic::Mov if instruction.op0_register() == Register::SS => {
            return Some(Unprobeable::Opcode);
        }
        _ => {}
    }
    bad_opcode(instruction, rest).then_some(Unprobeable::Opcode)
}

const fn is_legacy_prefix(byte: u8) -> bool {
    matches!(
        byte,
        0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3
    )
}

/// The kernel looks the opcode up in its one-byte table even where it follows a VEX or EVEX prefix, that is, where
/// the number means something else.
fn bad_opcode(instruction: &Instruction, rest: &[u8]) -> bool {
    let opcode = match (instruction.encoding(), rest) {
        (EncodingKind::VEX, [0xc5, _, opcode, ..] | [0xc4, _, _, opcode, ..]) => *opcode,
        (EncodingKind::EVEX, [0x62, _, _, _, opcode, ..]) => *opcode,
        (EncodingKind::Legacy, [0x40..=0x4f, opcode, ..]) => *opcode,
        (EncodingKind::Legacy, [opcode, ..]) => *opcode,
        _ => return true,
    };
    is_bad_one_byte(opcode)
}

const fn is_bad_one_byte(opcode: u8) -> bool {
    matches!(
        opcode,
        0x06 | 0x07 | 0x0e | 0x16 | 0x17 | 0x1e | 0x1f | 0x27 | 0x2f | 0x37 | 0x3f | 0x60..=0x62 | 0x6c..=0x6f
            | 0x82 | 0x9a | 0xcc..=0xcf | 0xd4..=0xd6 | 0xe4..=0xe7 | 0xea | 0xec..=0xef | 0xf1 | 0xf4 | 0xfa | 0xfb
    )
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    const NOW: KernelRelease = KernelRelease(6, 18, 0);

    #[track_caller]
    fn check(bytes: &[u8], kernel: KernelRelease, expect: Result<SiteCost, Unprobeable>) {
        let instruction = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode();
        assert_eq!(instruction.len(), bytes.len(), "{bytes:x?}");
        assert_eq!(judge(&instruction, bytes, kernel), expect, "{bytes:x?}");
    }

    #[test]
    fn pushes_of_any_register_are_emulated() {
        check(&[0x55], NOW, Ok(SiteCost::Emulated));
        check(&[0x41, 0x57], NOW, Ok(SiteCost::Emulated));
        check(&[0x48, 0x55], NOW, Ok(SiteCost::SingleStepped));
        check(&[0x6a, 0x01], NOW, Ok(SiteCost::SingleStepped));
    }

    #[test]
    fn direct_branches_are_emulated() {
        check(&[0xe8, 0, 0, 0, 0], NOW, Ok(SiteCost::Emulated));
        check(&[0xe9, 1, 0, 0, 0], NOW, Ok(SiteCost::Emulated));
        check(&[0xeb, 1], NOW, Ok(SiteCost::Emulated));
        check(&[0x74, 1], NOW, Ok(SiteCost::Emulated));
        check(&[0x0f, 0x84, 1, 0, 0, 0], NOW, Ok(SiteCost::Emulated));
        check(&[0xe3, 1], NOW, Ok(SiteCost::SingleStepped));
        check(&[0xff, 0xe0], NOW, Ok(SiteCost::SingleStepped));
        check(&[0x3e, 0xff, 0xe0], NOW, Err(Unprobeable::Prefix));
    }

    #[test]
    fn nops_depend_on_the_kernel() {
        check(&[0x90], KernelRelease(6, 6, 0), Ok(SiteCost::Emulated));
        check(
            &[0x0f, 0x1f, 0x44, 0, 0],
            KernelRelease(6, 6, 0),
            Ok(SiteCost::SingleStepped),
        );
        check(
            &[0x0f, 0x1f, 0x44, 0, 0],
            KernelRelease(6, 16, 0),
            Ok(SiteCost::Emulated),
        );
        check(&[0x0f, 0x1f, 0x44, 0, 0], NOW, Ok(SiteCost::Nop5));
        check(
            &[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
            NOW,
            Err(Unprobeable::Prefix),
        );
        check(&[0x41, 0x90], NOW, Err(Unprobeable::ExchangeTakenForNop));
    }

    #[test]
    fn endbr64_and_ordinary_instructions_are_stepped() {
        check(&[0xf3, 0x0f, 0x1e, 0xfa], NOW, Ok(SiteCost::SingleStepped));
        check(&[0x48, 0x83, 0xec, 0x08], NOW, Ok(SiteCost::SingleStepped));
        check(&[0xc3], NOW, Ok(SiteCost::SingleStepped));
    }

    #[test]
    fn what_the_kernel_refuses_is_refused_before() {
        check(&[0xf0, 0xff, 0x07], NOW, Err(Unprobeable::Prefix));
        check(&[0xcc], NOW, Err(Unprobeable::Trap));
        check(&[0x0f, 0x0b], NOW, Err(Unprobeable::Trap));
        check(&[0x0f, 0x05], NOW, Err(Unprobeable::SystemCall));
        check(&[0xfa], NOW, Err(Unprobeable::Opcode));
        // vpxor %xmm0,%xmm0,%xmm0: 0xef is `out` in the one-byte table.
        check(&[0xc5, 0xf9, 0xef, 0xc0], NOW, Err(Unprobeable::Opcode));
        // vzeroupper: 0x77 is a jump there, and good.
        check(&[0xc5, 0xf8, 0x77], NOW, Ok(SiteCost::SingleStepped));
    }
}
