//! The calls that the instructions of an image spell out, by call site: direct calls, jumps out of a function, calls of
//! imports, and, as possible ones, functions whose address is taken or that stand in a table of virtual functions.

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind};
use rustc_hash::FxHashMap;

use super::dynamic::Slot;
use super::functions::ImageFunction;
use super::names::Part;
use super::{Image, plt};

/// Who is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target<'d> {
    /// A function of this image, by its index.
    Function(usize),
    /// A function of another image.
    Import(&'d str),
}

/// How.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallKind {
    /// A call instruction.
    Call,
    /// A jump to the start of another function.
    TailJump,
    /// Its address is taken.
    AddressTaken,
    /// It stands in a table of virtual functions whose address is taken.
    Vtable,
}

/// A call that an instruction spells out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirectCall<'d> {
    /// Index of the function it stands in.
    pub caller: usize,
    /// Link-time address of the instruction.
    pub at: u64,
    /// Who is called.
    pub target: Target<'d>,
    /// How.
    pub kind: CallKind,
}

impl<'d> Image<'d> {
    /// All calls that instructions spell out. `vtables` are the address ranges of tables of virtual functions.
    pub fn direct_calls(&self, vtables: &[(u64, u64)]) -> Vec<DirectCall<'d>> {
        let mut finder = Finder {
            image: self,
            vtables,
            stub_ranges: self
                .elf
                .stub_ranges()
                .into_iter()
                .map(|(start, end)| start..end)
                .collect(),
            stubs: FxHashMap::default(),
            found: Vec::new(),
        };
        for (caller, function) in self.functions().iter().enumerate() {
            finder.function(caller, function);
        }
        finder.found
    }
}

impl Image<'_> {
    /// Of each part without a name that was moved away from its function, the function: the only one with a jump into
    /// it. By index of the part.
    pub fn parts(&self) -> FxHashMap<usize, usize> {
        let functions = self.functions();
        let is_part = |index: &usize| {
            let part = functions.get(*index);
            part.is_some_and(|it| it.part == Part::Cold && it.raw_name.is_empty())
        };
        let mut owners: FxHashMap<usize, Option<usize>> = FxHashMap::default();
        if !(0..functions.len()).any(|index| is_part(&index)) {
            return FxHashMap::default();
        }
        for (caller, function) in functions.iter().enumerate() {
            let code = self.code(function);
            for it in Decoder::with_ip(64, code, function.vaddr, DecoderOptions::NONE) {
                let jumps = matches!(
                    it.flow_control(),
                    FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
                ) && it.op0_kind() == OpKind::NearBranch64;
                let part = jumps.then(|| self.function_at(it.near_branch_target()));
                if let Some(part) = part.flatten().filter(|&part| part != caller)
                    && is_part(&part)
                {
                    let owner = owners.entry(part).or_insert(Some(caller));
                    *owner = owner.filter(|owner| *owner == caller);
                }
            }
        }
        let known = owners.into_iter();
        known
            .filter_map(|(part, owner)| Some((part, owner?)))
            .collect()
    }
}

struct Finder<'i, 'd> {
    image: &'i Image<'d>,
    vtables: &'i [(u64, u64)],
    stub_ranges: Vec<Range<u64>>,
    /// Imports by the address of their stub.
    stubs: FxHashMap<u64, Option<&'d str>>,
    found: Vec<DirectCall<'d>>,
}

impl<'d> Finder<'_, 'd> {
    fn function(&mut self, caller: usize, function: &ImageFunction) {
        let code = self.image.code(function);
        let decoder = Decoder::with_ip(64, code, function.vaddr, DecoderOptions::NONE);
        // A symbol without a size reaches into the stubs behind it.
        let own = |it: &Instruction| {
            !self
                .stub_ranges
                .iter()
                .any(|range| range.contains(&it.ip()))
        };
        for instruction in decoder.into_iter().take_while(own).collect::<Vec<_>>() {
            self.instruction(caller, function, &instruction);
        }
    }

    fn instruction(&mut self, caller: usize, function: &ImageFunction, it: &Instruction) {
        match it.flow_control() {
            FlowControl::Call if it.op0_kind() == OpKind::NearBranch64 => {
                self.branch(caller, it, CallKind::Call);
            }
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
                if it.op0_kind() == OpKind::NearBranch64
                    && !(function.vaddr..function.end()).contains(&it.near_branch_target()) =>
            {
                self.branch(caller, it, CallKind::TailJump);
            }
            FlowControl::IndirectCall => self.through_word(caller, it, CallKind::Call),
            FlowControl::IndirectBranch => self.through_word(caller, it, CallKind::TailJump),
            _ => self.address(caller, it),
        }
    }

    fn add(&mut self, caller: usize, at: u64, target: Target<'d>, kind: CallKind) {
        self.found.push(DirectCall {
            caller,
            at,
            target,
            kind,
        });
    }

    /// The function that begins at an address.
    fn begins(&self, vaddr: u64) -> Option<usize> {
        let index = self.image.function_at(vaddr)?;
        let function = self.image.functions().get(index)?;
        (function.vaddr == vaddr && function.part.is_entry()).then_some(index)
    }

    fn branch(&mut self, caller: usize, it: &Instruction, kind: CallKind) {
        let target = it.near_branch_target();
        if let Some(callee) = self.begins(target) {
            return self.add(caller, it.ip(), Target::Function(callee), kind);
        }
        if let Some(import) = self.stub(target) {
            self.add(caller, it.ip(), Target::Import(import), kind);
        }
    }

    /// The import that the stub at an address jumps to.
    fn stub(&mut self, vaddr: u64) -> Option<&'d str> {
        if let Some(&known) = self.stubs.get(&vaddr) {
            return known;
        }
        let word = plt::stub_target_word(&self.image.elf, vaddr);
        let import = word.and_then(|word| self.image.import_at(word));
        self.stubs.insert(vaddr, import);
        import
    }

    /// `call *word(%rip)`: what the loader writes into the word is known.
    fn through_word(&mut self, caller: usize, it: &Instruction, kind: CallKind) {
        let Some(word) = plt::word_of_jump(it) else {
            return;
        };
        match self.image.dynamic.slots.get(&word) {
            Some(Slot::Import(import)) => {
                self.add(caller, it.ip(), Target::Import(import.name), kind)
            }
            Some(Slot::Local(target)) => {
                if let Some(callee) = self.begins(*target) {
                    self.add(caller, it.ip(), Target::Function(callee), kind);
                }
            }
            _ => {}
        }
    }

    /// An address that an instruction makes.
    fn address(&mut self, caller: usize, it: &Instruction) {
        let made = match it.code() {
            Code::Lea_r64_m if it.is_ip_rel_memory_operand() => it.ip_rel_memory_address(),
            Code::Mov_r32_imm32 | Code::Mov_rm64_imm32 | Code::Mov_r64_imm64 => it.immediate(1),
            _ => return,
        };
        if let Some(callee) = self.begins(made) {
            return self.add(
                caller,
                it.ip(),
                Target::Function(callee),
                CallKind::AddressTaken,
            );
        }
        let table = self
            .vtables
            .iter()
            .find(|(start, end)| (*start..*end).contains(&made));
        if let Some(&(_, end)) = table {
            self.table(caller, it.ip(), made, end);
        }
    }

    fn table(&mut self, caller: usize, at: u64, start: u64, end: u64) {
        for word in (start & !7..end).step_by(8) {
            let slot = self.image.dynamic.slots.get(&word);
            let target = match slot {
                Some(Slot::Local(target)) => Some(*target),
                Some(_) => None,
                None => self.image.elf.word_at(word),
            };
            if let Some(callee) = target.and_then(|target| self.begins(target)) {
                self.add(caller, at, Target::Function(callee), CallKind::Vtable);
            }
        }
    }
}
