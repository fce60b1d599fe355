//! Where the thread goes next, foretold before the instruction runs: from its registers and memory, however a tier reads
//! them. Pure but for those reads; the handler of the single-step tier runs it: no libc, no lock, no allocation.
use iced_x86::{ConditionCode, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::flow;

/// A stopped thread: what can be read of it.
pub(crate) trait Machine {
    /// The flags.
    fn flags(&self) -> u64;
    /// The counter of loops and string instructions.
    fn rcx(&self) -> u64;
    /// The stack pointer.
    fn rsp(&self) -> u64;
    /// The value of a general register (any width) or of a segment's base.
    fn value(&self, register: Register) -> Option<u64>;
    /// A word of its memory, if all of it is there.
    fn word(&self, addr: u64) -> Option<u64>;
}

/// What was foretold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// This address.
    At(u64),
    /// One of these: a string instruction that ends when it finds something.
    Either(u64, u64),
    /// It cannot be told.
    Unknown,
}

impl Next {
    /// Whether `addr` keeps the promise; an unknown one is no promise.
    pub(crate) fn allows(self, addr: u64) -> bool {
        match self {
            Self::At(next) => next == addr,
            Self::Either(one, other) => one == addr || other == addr,
            Self::Unknown => false,
        }
    }
}

/// Foretells the successor of `instruction`, which is about to run with these registers.
pub(crate) fn next(instruction: &Instruction, machine: &impl Machine) -> Next {
    let known = flow::successors(instruction);
    if flow::is_repeated(instruction) {
        return repeated(instruction, machine);
    }
    let at = |address: Option<u64>| address.map_or(Next::Unknown, Next::At);
    match instruction.flow_control() {
        _ if known.fall.is_some() && known.target.is_none() => at(known.fall),
        FlowControl::ConditionalBranch => match taken(instruction, machine) {
            Some(true) => at(known.target),
            Some(false) => at(known.fall),
            None => Next::Unknown,
        },
        FlowControl::Return if instruction.mnemonic() == Mnemonic::Ret => {
            at(machine.word(machine.rsp()))
        }
        FlowControl::IndirectBranch | FlowControl::IndirectCall => {
            at(operand(instruction, machine))
        }
        FlowControl::UnconditionalBranch | FlowControl::Call => at(known.target),
        FlowControl::XbeginXabortXend => match (known.fall, known.target) {
            (Some(fall), Some(target)) => Next::Either(fall, target),
            _ => Next::Unknown,
        },
        _ => Next::Unknown,
    }
}

/// A string instruction runs once a trap: again, or on.
fn repeated(instruction: &Instruction, machine: &impl Machine) -> Next {
    let left = counter(instruction, machine);
    let compares = matches!(
        instruction.mnemonic(),
        Mnemonic::Cmpsb
            | Mnemonic::Cmpsw
            | Mnemonic::Cmpsd
            | Mnemonic::Cmpsq
            | Mnemonic::Scasb
            | Mnemonic::Scasw
            | Mnemonic::Scasd
            | Mnemonic::Scasq
    );
    match left {
        0 | 1 => Next::At(instruction.next_ip()),
        _ if compares => Next::Either(instruction.ip(), instruction.next_ip()),
        _ => Next::At(instruction.ip()),
    }
}

/// rcx, or ecx under a 32-bit address size.
pub(crate) fn counter(instruction: &Instruction, machine: &impl Machine) -> u64 {
    let narrow = (0..instruction.op_count()).any(|operand| {
        matches!(
            instruction.op_kind(operand),
            OpKind::MemorySegESI | OpKind::MemoryESEDI | OpKind::MemorySegEDI
        )
    });
    let rcx = machine.rcx();
    if narrow { rcx & 0xffff_ffff } else { rcx }
}

fn taken(instruction: &Instruction, machine: &impl Machine) -> Option<bool> {
    let rcx = machine.rcx();
    let ecx = rcx & 0xffff_ffff;
    let zero = machine.flags() & 0x40 != 0;
    // LOOP counts down first; the width of its counter is the address size.
    let goes_on = if instruction.code().is_loopcc() || instruction.code().is_loop() {
        Some(match loop_width(instruction)? {
            8 => rcx != 1,
            _ => ecx != 1,
        })
    } else {
        None
    };
    match instruction.mnemonic() {
        Mnemonic::Loop => goes_on,
        Mnemonic::Loope => Some(goes_on? && zero),
        Mnemonic::Loopne => Some(goes_on? && !zero),
        Mnemonic::Jrcxz => Some(rcx == 0),
        Mnemonic::Jecxz => Some(ecx == 0),
        _ => condition(instruction.condition_code(), machine.flags()),
    }
}

/// Bytes of the counter of a LOOP.
fn loop_width(instruction: &Instruction) -> Option<u32> {
    use iced_x86::Code as C;
    Some(match instruction.code() {
        C::Loop_rel8_64_RCX | C::Loope_rel8_64_RCX | C::Loopne_rel8_64_RCX => 8,
        C::Loop_rel8_64_ECX | C::Loope_rel8_64_ECX | C::Loopne_rel8_64_ECX => 4,
        _ => return None,
    })
}

/// A condition, by the flags.
fn condition(condition: ConditionCode, flags: u64) -> Option<bool> {
    let is = |bit: u32| flags & (1 << bit) != 0;
    let (carry, parity, zero, sign, overflow) = (is(0), is(2), is(6), is(7), is(11));
    Some(match condition {
        ConditionCode::o => overflow,
        ConditionCode::no => !overflow,
        ConditionCode::b => carry,
        ConditionCode::ae => !carry,
        ConditionCode::e => zero,
        ConditionCode::ne => !zero,
        ConditionCode::be => carry || zero,
        ConditionCode::a => !carry && !zero,
        ConditionCode::s => sign,
        ConditionCode::ns => !sign,
        ConditionCode::p => parity,
        ConditionCode::np => !parity,
        ConditionCode::l => sign != overflow,
        ConditionCode::ge => sign == overflow,
        ConditionCode::le => zero || sign != overflow,
        ConditionCode::g => !zero && sign == overflow,
        ConditionCode::None => return None,
    })
}

/// The address that an indirect jump or call takes from a register or memory.
fn operand(instruction: &Instruction, machine: &impl Machine) -> Option<u64> {
    match instruction.op0_kind() {
        OpKind::Register if instruction.op0_register().size() == 8 => {
            machine.value(instruction.op0_register())
        }
        OpKind::Memory if instruction.memory_size().size() == 8 => {
            let at = instruction.virtual_address(0, 0, |register, _, _| machine.value(register))?;
            machine.word(at)
        }
        _ => None,
    }
}
