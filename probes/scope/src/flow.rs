//! Where an instruction can lead, from its bytes alone. Knows nothing of registers, memory or how it was seen to run.
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, Register};

/// Where an instruction can lead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Successors {
    /// The address behind it, if it can go on there.
    pub fall: Option<u64>,
    /// The address that a direct branch names.
    pub target: Option<u64>,
    /// It goes where a register, memory or the kernel says.
    pub anywhere: bool,
    /// Its own address: a string instruction with `rep`.
    pub again: Option<u64>,
}

impl Successors {
    /// Whether `next` can follow.
    #[must_use]
    pub fn allow(&self, next: u64) -> bool {
        let at = Some(next);
        self.anywhere || at == self.fall || at == self.target || at == self.again
    }
}

/// Decodes the instruction at `addr`; `None` for what is none, or is cut short.
#[must_use]
pub fn decode(addr: u64, bytes: &[u8]) -> Option<Instruction> {
    let mut decoder = Decoder::try_with_ip(64, bytes, addr, DecoderOptions::NONE).ok()?;
    let instruction = decoder.decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// Where the instruction can lead.
#[must_use]
pub fn successors(instruction: &Instruction) -> Successors {
    let fall = Some(instruction.next_ip());
    let mut all = Successors::default();
    if returns_behind(instruction) {
        all.fall = fall;
        return all;
    }
    match instruction.flow_control() {
        FlowControl::Next => {
            all.fall = fall;
            all.again = is_repeated(instruction).then(|| instruction.ip());
        }
        FlowControl::UnconditionalBranch | FlowControl::Call if is_near(instruction) => {
            all.target = Some(instruction.near_branch_target());
        }
        FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
            all.fall = fall;
            all.target = is_near(instruction).then(|| instruction.near_branch_target());
        }
        FlowControl::Exception => {}
        _ => all.anywhere = true,
    }
    all
}

/// System calls and breakpoints: the kernel goes on behind them.
fn returns_behind(instruction: &Instruction) -> bool {
    is_system_call(instruction) || is_breakpoint(instruction)
}

/// `SYSCALL` or `INT 0x80`.
#[must_use]
pub fn is_system_call(instruction: &Instruction) -> bool {
    instruction.code() == Code::Syscall
        || instruction.code() == Code::Int_imm8 && instruction.immediate8() == 0x80
}

/// `INT3`, in either form.
#[must_use]
pub fn is_breakpoint(instruction: &Instruction) -> bool {
    instruction.code() == Code::Int3
        || instruction.code() == Code::Int_imm8 && instruction.immediate8() == 3
}

/// A call, direct or not; the kernel is not called.
#[must_use]
pub fn is_call(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall
    ) && !is_system_call(instruction)
}

/// A return, near or far.
#[must_use]
pub fn is_return(instruction: &Instruction) -> bool {
    instruction.flow_control() == FlowControl::Return
}

/// A string instruction with a prefix that repeats it: one trap an iteration.
#[must_use]
pub fn is_repeated(instruction: &Instruction) -> bool {
    instruction.is_string_instruction()
        && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
}

/// `MOV SS` or `POP SS`: no trap comes before the next instruction has run.
#[must_use]
pub fn loads_stack_segment(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Pop)
        && instruction.op_count() > 0
        && instruction.op0_register() == Register::SS
}

/// `PUSHF` in any width.
#[must_use]
pub fn pushes_flags(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Pushf | Mnemonic::Pushfq | Mnemonic::Pushfd
    )
}

/// `POPF` in any width.
#[must_use]
pub fn pops_flags(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Popf | Mnemonic::Popfq | Mnemonic::Popfd
    )
}

/// Whether a direct branch has its target in it.
#[must_use]
pub fn is_near(instruction: &Instruction) -> bool {
    instruction.op_count() > 0
        && matches!(
            instruction.op0_kind(),
            iced_x86::OpKind::NearBranch16
                | iced_x86::OpKind::NearBranch32
                | iced_x86::OpKind::NearBranch64
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], fall: bool, target: Option<u64>, anywhere: bool, again: bool) {
        let instruction = decode(0x1000, bytes).expect("an instruction");
        let expect = Successors {
            fall: fall.then(|| 0x1000 + bytes.len() as u64),
            target,
            anywhere,
            again: again.then_some(0x1000),
        };
        assert_eq!(successors(&instruction), expect, "{bytes:x?}");
    }

    #[test]
    fn a_plain_instruction_goes_on() {
        check(&[0x90], true, None, false, false);
    }

    #[test]
    fn jumps_and_calls_lead_to_their_target_only() {
        check(&[0xeb, 0xfe], false, Some(0x1000), false, false);
        check(&[0xe8, 0, 0, 0, 0], false, Some(0x1005), false, false);
    }

    #[test]
    fn conditional_jumps_and_loops_lead_to_two_places() {
        check(&[0x75, 2], true, Some(0x1004), false, false);
        check(&[0xe2, 0xfe], true, Some(0x1000), false, false);
        check(&[0xe3, 1], true, Some(0x1003), false, false);
    }

    #[test]
    fn indirect_jumps_and_returns_lead_anywhere() {
        check(&[0xff, 0xe0], false, None, true, false);
        check(&[0xff, 0xd0], false, None, true, false);
        check(&[0xc3], false, None, true, false);
    }

    #[test]
    fn system_calls_and_breakpoints_go_on_behind() {
        check(&[0x0f, 5], true, None, false, false);
        check(&[0xcd, 0x80], true, None, false, false);
        check(&[0xcc], true, None, false, false);
    }

    #[test]
    fn only_a_string_instruction_repeats() {
        check(&[0xf3, 0xa4], true, None, false, true);
        check(&[0xf2, 0xae], true, None, false, true);
        check(&[0xf3, 0x90], true, None, false, false);
        check(&[0xa4], true, None, false, false);
    }

    #[test]
    fn what_traps_for_certain_leads_nowhere() {
        check(&[0x0f, 0x0b], false, None, false, false);
    }
}
