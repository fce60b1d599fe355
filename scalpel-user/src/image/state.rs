//! What is tracked of one function while its instructions pass by, in order of address.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::flow::{Escape, EscapeKind, Traits};
use super::unwind::{Cfa, Fde};

/// Tables whose addresses are kept of one function.
const MAX_TABLES: usize = 64;

/// How a register got its value, as far as a jump through it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    /// From memory or from the caller: a pointer that someone stored.
    Loaded,
    /// By arithmetic: an address made of a table's distance.
    Computed,
}

/// Running facts about one function.
#[derive(Debug)]
pub(super) struct FunctionState {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) traits: Traits,
    pub(super) computed_jumps: usize,
    /// Address of a computed jump with the stack as at entry.
    pub(super) frameless_computed: Option<u64>,
    pub(super) tables_resolved: bool,
    /// Whether the unwind table knows the function.
    covered: bool,
    /// Whether exceptions that leave its calls are received in it.
    has_landing_pads: bool,
    /// Without unwind entry: the stack pointer has been changed before this point.
    moved: bool,
    writers: [Writer; 16],
    tables: Vec<u64>,
}

impl FunctionState {
    pub(super) fn new(start: u64, end: u64, fde: Option<&Fde>) -> Self {
        Self {
            start,
            end,
            traits: Traits::default(),
            computed_jumps: 0,
            frameless_computed: None,
            tables_resolved: false,
            covered: fde.is_some(),
            has_landing_pads: fde.is_some_and(|fde| fde.has_landing_pads),
            moved: false,
            writers: [Writer::Loaded; 16],
            tables: Vec::new(),
        }
    }

    /// Keeps the first escape.
    pub(super) fn escape(&mut self, at: u64, kind: EscapeKind) {
        self.traits.escape.get_or_insert(Escape { at, kind });
    }

    /// Candidates for bases of jump tables.
    pub(super) fn tables(&self) -> &[u64] {
        &self.tables
    }

    pub(super) fn add_table(&mut self, vaddr: u64) {
        if self.tables.len() < MAX_TABLES && !self.tables.contains(&vaddr) {
            self.tables.push(vaddr);
        }
    }

    /// The frame rule at the current instruction: the table's, else what the instructions so far prove.
    pub(super) fn cfa(&self, table: Option<Cfa>) -> Option<Cfa> {
        match table {
            Some(cfa) => Some(cfa),
            None => (!self.covered && !self.moved).then_some(Cfa::ENTRY),
        }
    }

    /// Reads of the return address, and writes of the stack pointer.
    pub(super) fn note_operands(&mut self, instruction: &Instruction, cfa: Option<Cfa>) {
        self.traits.touches_return_address |= touches_return_address(instruction, cfa);
        let writes =
            instruction.op0_register() == Register::RSP && !reads_only(instruction.mnemonic());
        if writes
            || (instruction.mnemonic() == Mnemonic::Xchg
                && instruction.op1_register() == Register::RSP)
        {
            self.traits.switches_stack |= switches_stack(instruction, cfa);
        }
        if !self.covered && !self.moved {
            self.moved = writes || instruction.stack_pointer_increment() != 0;
        }
    }

    /// A landing pad is entered with the frame of its call.
    pub(super) fn note_call(&mut self, cfa: Option<Cfa>) {
        self.traits.unresolved_jump |= self.has_landing_pads && cfa == Some(Cfa::ENTRY);
    }

    /// Remembers how the written register got its value.
    pub(super) fn note_write(&mut self, instruction: &Instruction) {
        if instruction.op0_kind() != OpKind::Register || reads_only(instruction.mnemonic()) {
            return;
        }
        let writer = match (instruction.mnemonic(), instruction.op1_kind()) {
            (Mnemonic::Mov, OpKind::Memory) => Writer::Loaded,
            (Mnemonic::Mov, OpKind::Register) => self.writer(instruction.op1_register()),
            _ => Writer::Computed,
        };
        if let Some(slot) =
            number(instruction.op0_register()).and_then(|index| self.writers.get_mut(index))
        {
            *slot = writer;
        }
    }

    fn writer(&self, register: Register) -> Writer {
        number(register)
            .and_then(|index| self.writers.get(index))
            .copied()
            .unwrap_or(Writer::Computed)
    }

    /// Whether an indirect jump goes to an address that was calculated, not loaded.
    pub(super) fn jumps_to_computed(&self, instruction: &Instruction) -> bool {
        instruction.op0_kind() == OpKind::Register
            && self.writer(instruction.op0_register()) == Writer::Computed
    }

    /// A computed jump without known table may go anywhere.
    pub(super) fn finish(&mut self) {
        if let Some(at) = self.frameless_computed.filter(|_| !self.tables_resolved) {
            self.traits.unresolved_jump = true;
            self.traits.tail_jumps = true;
            self.escape(at, EscapeKind::IndirectJump);
        }
    }
}

/// Number of a 64- or 32-bit general register.
fn number(register: Register) -> Option<usize> {
    (register.is_gpr64() || register.is_gpr32()).then(|| register.number())
}

fn reads_only(mnemonic: Mnemonic) -> bool {
    matches!(mnemonic, Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push)
}

/// The return address lies 8 below the frame address.
fn touches_return_address(instruction: &Instruction, cfa: Option<Cfa>) -> bool {
    let slot = match (instruction.memory_base(), cfa) {
        (Register::RSP, Some(Cfa::Rsp(offset))) | (Register::RBP, Some(Cfa::Rbp(offset))) => {
            offset - 8
        }
        _ => return instruction.mnemonic() == Mnemonic::Pop && cfa == Some(Cfa::ENTRY),
    };
    let from = instruction.memory_displacement64().cast_signed();
    let size = (instruction.memory_size().size() as i64).max(1);
    let is_nop = instruction.mnemonic() == Mnemonic::Nop;
    !is_nop
        && instruction.memory_index() == Register::None
        && from < slot + 8
        && from.saturating_add(size) > slot
}

/// Whether a write of `rsp` can leave the thread's stack. Compilers move it by constants, by the size of a variable
/// array, and back by the frame pointer; whatever loads it from elsewhere is a context switch.
fn switches_stack(instruction: &Instruction, cfa: Option<Cfa>) -> bool {
    let framed = matches!(cfa, Some(Cfa::Rbp(_) | Cfa::Other));
    let base = instruction.memory_base();
    match instruction.mnemonic() {
        Mnemonic::Add | Mnemonic::Sub | Mnemonic::And | Mnemonic::Inc | Mnemonic::Dec => false,
        Mnemonic::Lea => !framed && base != Register::RSP && base != Register::RBP,
        Mnemonic::Mov if instruction.op1_kind() == OpKind::Memory => {
            base != Register::RSP && base != Register::RBP
        }
        Mnemonic::Mov => !framed && instruction.op1_register() != Register::RBP,
        _ => true,
    }
}
