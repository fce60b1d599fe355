//! One linear pass over all code of the image: where jumps land, which code has its address taken, and what each
//! function does that decides whether its end can be probed.
//!
//! Every function is decoded from its own start, and what no function covers is decoded too (assembly without
//! symbols jumps as well). Bytes that are data only add landings that do not exist, which forbids a site needlessly;
//! it never allows one.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::bits::CodeBits;
use super::dynamic::{Dynamic, Slot};
use super::elf::{ElfFile, ImageKind};
use super::functions::ImageFunction;
use super::nothrow;
use super::plt;
use super::state::FunctionState;
use super::tables;
use super::unwind::{Cfa, Cursor, Unwind};

/// What one function does. All of it is over-approximated: a bit that is not set is a proof.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traits {
    /// Has a `ret`.
    pub(super) returns: bool,
    /// Leaves by a jump: the callee's `ret` ends the call.
    pub(super) tail_jumps: bool,
    /// Reads, writes or takes the address of its own return address.
    pub(super) touches_return_address: bool,
    /// Loads the stack pointer from elsewhere.
    pub(super) switches_stack: bool,
    /// How many jumps of its own land on its first instruction.
    pub(super) reentries: u32,
    /// Has, with the stack as at entry, an indirect jump whose targets are not known, or a call that an exception may
    /// leave to a landing pad. (With a frame both land where there is a frame: never in front of a site.)
    pub(super) unresolved_jump: bool,
    /// Has bytes that are no instruction, or an instruction that reaches past its end.
    pub(super) undecodable: bool,
    /// Where it may hand control to code that this image does not determine: the first such instruction.
    pub(super) escape: Option<Escape>,
}

/// A way out of what can be proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Escape {
    /// Address of the instruction.
    pub(super) at: u64,
    pub(super) kind: EscapeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EscapeKind {
    /// Call or jump through this word of the loader's, bound to a symbol.
    Import { word: u64 },
    /// Call through a pointer.
    IndirectCall,
    /// Jump through a pointer, out of the function.
    IndirectJump,
    /// Call or jump to an address that is in no known function.
    UnknownTarget { target: u64 },
    /// Bytes that cannot be decoded.
    Undecodable,
}

/// The result of the pass.
#[derive(Debug)]
pub(super) struct Flow {
    /// Targets of direct jumps and calls.
    pub(super) landings: CodeBits,
    /// Code whose address is held by data, by a jump table or by an instruction's operand.
    pub(super) pointers: CodeBits,
    /// By index of function.
    pub(super) traits: Vec<Traits>,
    /// Direct calls and jumps from a function (index) to an address outside of it.
    pub(super) edges: Vec<(u32, u64)>,
}

impl Flow {
    /// Decodes all executable segments.
    pub(super) fn analyse(
        elf: &ElfFile<'_>,
        dynamic: &Dynamic<'_>,
        unwind: &Unwind,
        functions: &[ImageFunction],
    ) -> Self {
        let mut pass = Pass {
            elf,
            dynamic,
            absolute: elf.kind() == ImageKind::Executable,
            harmless: nothrow::words(dynamic),
            stubs: FxHashMap::default(),
            flow: Self {
                landings: CodeBits::new(elf),
                pointers: tables::pointers_in_data(elf, dynamic),
                traits: vec![Traits::default(); functions.len()],
                edges: Vec::new(),
            },
        };
        pass.functions(unwind, functions);
        pass.gaps(functions);
        pass.flow
    }
}

struct Pass<'a, 'd> {
    elf: &'a ElfFile<'d>,
    dynamic: &'a Dynamic<'d>,
    /// Code may hold addresses as immediate operands.
    absolute: bool,
    /// Words bound to imports that can neither throw nor call back.
    harmless: FxHashSet<u64>,
    /// Call targets that were looked at: the word of the stub there, if there is a stub.
    stubs: FxHashMap<u64, Option<u64>>,
    flow: Flow,
}

impl Pass<'_, '_> {
    fn functions(&mut self, unwind: &Unwind, functions: &[ImageFunction]) {
        let mut cursor = unwind.cursor();
        for (index, function) in functions.iter().enumerate() {
            let Some(bytes) = self.elf.bytes_at(function.vaddr, function.size) else {
                continue;
            };
            let mut state = FunctionState::new(
                function.vaddr,
                function.end(),
                unwind.covering(function.vaddr),
            );
            self.function(index, bytes, &mut state, &mut cursor);
        }
    }

    fn function(
        &mut self,
        index: usize,
        bytes: &[u8],
        state: &mut FunctionState,
        cursor: &mut Cursor<'_>,
    ) {
        let mut decoder = Decoder::with_ip(64, bytes, state.start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut ended = false;
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            let at = instruction.ip();
            let cfa = state.cfa(cursor.at(at));
            if instruction.mnemonic() != Mnemonic::Nop {
                ended = self.step(index, &instruction, cfa, state);
            }
        }
        if !ended && state.traits.escape.is_none() {
            // Falls through into whatever follows, like a jump.
            self.flow.edges.push((index as u32, state.end));
            state.traits.tail_jumps = true;
        }
        tables::resolve(self.elf, state, &mut self.flow.pointers);
        state.finish();
        if let Some(slot) = self.flow.traits.get_mut(index) {
            *slot = state.traits;
        }
    }

    /// One instruction; true if a function may end with it: control does not go on, or a call does not return.
    fn step(
        &mut self,
        index: usize,
        instruction: &Instruction,
        cfa: Option<Cfa>,
        state: &mut FunctionState,
    ) -> bool {
        state.note_operands(instruction, cfa);
        if instruction.memory_base() == Register::RIP {
            self.note_address(instruction, state);
        } else if self.absolute {
            self.note_immediate(instruction, state);
        }
        match instruction.flow_control() {
            FlowControl::Next => {
                state.note_write(instruction);
                false
            }
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                self.direct(index, instruction, state, false);
                instruction.flow_control() == FlowControl::UnconditionalBranch
            }
            FlowControl::Call => {
                state.note_call(cfa);
                self.direct(index, instruction, state, true);
                true
            }
            FlowControl::IndirectBranch => {
                self.indirect_jump(index, instruction, cfa, state);
                true
            }
            FlowControl::IndirectCall => {
                state.note_call(cfa);
                self.indirect_call(index, instruction, state);
                true
            }
            FlowControl::Return => {
                state.traits.returns = true;
                true
            }
            FlowControl::Exception if instruction.is_invalid() => {
                state.traits.undecodable = true;
                state.escape(instruction.ip(), EscapeKind::Undecodable);
                true
            }
            FlowControl::Exception | FlowControl::Interrupt => true,
            FlowControl::XbeginXabortXend => {
                self.flow.landings.set(instruction.near_branch_target());
                false
            }
        }
    }

    fn direct(
        &mut self,
        index: usize,
        instruction: &Instruction,
        state: &mut FunctionState,
        call: bool,
    ) {
        if instruction.op0_kind() != OpKind::NearBranch64 {
            return; // `syscall` and its like count as calls in the decoder's tables.
        }
        let target = instruction.near_branch_target();
        self.flow.landings.set(target);
        if (state.start..state.end).contains(&target) {
            state.traits.reentries += u32::from(!call && target == state.start);
            if call && target != state.start {
                // A call into its own middle begins an activation that is not this function's.
                state.escape(instruction.ip(), EscapeKind::UnknownTarget { target });
            }
            return;
        }
        state.traits.tail_jumps |= !call;
        let elf = self.elf;
        match *self
            .stubs
            .entry(target)
            .or_insert_with(|| plt::stub_target_word(elf, target))
        {
            Some(word) if self.dynamic.slots.contains_key(&word) => {
                self.through_word(index, instruction, word, EscapeKind::IndirectCall, state);
            }
            _ => self.flow.edges.push((index as u32, target)),
        }
    }

    /// A call or jump through a word that the loader fills.
    fn through_word(
        &mut self,
        index: usize,
        instruction: &Instruction,
        word: u64,
        otherwise: EscapeKind,
        state: &mut FunctionState,
    ) {
        match self.dynamic.slots.get(&word) {
            Some(&Slot::Local(target)) => self.flow.edges.push((index as u32, target)),
            Some(Slot::Import(_)) if self.harmless.contains(&word) => {}
            Some(Slot::Import(_)) => state.escape(instruction.ip(), EscapeKind::Import { word }),
            _ => state.escape(instruction.ip(), otherwise),
        }
    }

    fn indirect_call(
        &mut self,
        index: usize,
        instruction: &Instruction,
        state: &mut FunctionState,
    ) {
        match plt::word_of_jump(instruction) {
            Some(word) => {
                self.through_word(index, instruction, word, EscapeKind::IndirectCall, state)
            }
            None => state.escape(instruction.ip(), EscapeKind::IndirectCall),
        }
    }

    /// With a frame on the stack an indirect jump stays inside the function: another function could not return.
    fn indirect_jump(
        &mut self,
        index: usize,
        instruction: &Instruction,
        cfa: Option<Cfa>,
        state: &mut FunctionState,
    ) {
        let computed = state.jumps_to_computed(instruction);
        if computed {
            state.computed_jumps += 1;
        }
        if cfa.is_some_and(|cfa| cfa != Cfa::ENTRY) {
            return;
        }
        if computed {
            state.frameless_computed = state.frameless_computed.or(Some(instruction.ip()));
            return;
        }
        state.traits.tail_jumps = true;
        match plt::word_of_jump(instruction) {
            Some(word) => {
                self.through_word(index, instruction, word, EscapeKind::IndirectJump, state)
            }
            None => state.escape(instruction.ip(), EscapeKind::IndirectJump),
        }
    }

    /// `lea table(%rip)` and other operands that name an address of this image.
    fn note_address(&mut self, instruction: &Instruction, state: &mut FunctionState) {
        if instruction.mnemonic() == Mnemonic::Lea {
            self.note_pointer(instruction.ip_rel_memory_address(), state);
        }
    }

    fn note_immediate(&mut self, instruction: &Instruction, state: &mut FunctionState) {
        if matches!(
            instruction.code(),
            Code::Mov_r32_imm32 | Code::Mov_rm64_imm32 | Code::Pushq_imm32
        ) {
            self.note_pointer(u64::from(instruction.immediate32()), state);
        } else if instruction.code() == Code::Mov_r64_imm64 {
            self.note_pointer(instruction.immediate64(), state);
        }
    }

    fn note_pointer(&mut self, vaddr: u64, state: &mut FunctionState) {
        self.flow.pointers.set(vaddr);
        state.add_table(vaddr);
    }

    fn gaps(&mut self, functions: &[ImageFunction]) {
        for segment in self
            .elf
            .segments
            .iter()
            .filter(|segment| segment.executable)
        {
            let mut from = segment.vaddr;
            let inside = functions.partition_point(|function| function.vaddr < segment.vaddr);
            for function in functions.get(inside..).unwrap_or_default() {
                if function.vaddr >= segment.end() {
                    break;
                }
                if function.vaddr > from {
                    self.gap(from, function.vaddr);
                }
                from = from.max(function.end());
            }
            if from < segment.end() {
                self.gap(from, segment.end());
            }
        }
    }

    fn gap(&mut self, start: u64, end: u64) {
        let Some(bytes) = self.elf.bytes_at(start, end - start) else {
            return;
        };
        let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            let direct = matches!(
                instruction.flow_control(),
                FlowControl::ConditionalBranch
                    | FlowControl::UnconditionalBranch
                    | FlowControl::Call
            );
            if direct && instruction.op0_kind() == OpKind::NearBranch64 {
                self.flow.landings.set(instruction.near_branch_target());
            } else if instruction.is_invalid() {
                // Data: try again at the next byte.
                let next = (instruction.ip() + 1 - start) as usize;
                if decoder.set_position(next).is_err() {
                    return;
                }
                decoder.set_ip(start + next as u64);
            }
        }
    }
}
