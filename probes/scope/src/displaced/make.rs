//! One block's copy: its instructions one by one, and what stands in for those that cannot be moved as they are.
use iced_x86::{ConstantOffsets, Decoder, DecoderOptions, Instruction};

use super::super::{doors, memory as process};
use super::blocks::{Block, Exit, LONGEST_BLOCK, Line};
use super::may::Range;
use super::shape::{self, Shape};
use super::table::Table;
use super::write::{Gap, Writer};

/// What stands before the abort address of a restartable sequence.
const SEQUENCE: u32 = 0x5305_3053;

/// Writes one block.
pub(super) struct Maker<'a> {
    pub(super) writer: Writer<'a>,
    pub(super) lines: &'a mut Vec<Line>,
    pub(super) exits: &'a mut Vec<Exit>,
    pub(super) known: (&'a Table, &'a [Block]),
    pub(super) confined: Option<Range>,
    pub(super) off: &'a mut bool,
}

impl Maker<'_> {
    /// Where the copy begins, where its number is stored, and whether it is one string instruction. `None` if its first
    /// instruction cannot be copied.
    pub(super) fn block(
        &mut self,
        addr: u64,
        code: &[u8],
        number: u32,
    ) -> Option<(u64, u64, bool)> {
        let mut decoder = Decoder::try_with_ip(64, code, addr, DecoderOptions::NONE).ok()?;
        let (copy, first) = (self.writer.here(), self.lines.len());
        let mut store = 0;
        for place in 0..LONGEST_BLOCK {
            let at = usize::try_from(decoder.ip() - addr).ok()?;
            let instruction = decoder.decode();
            let bytes = code.get(at..at + instruction.len()).unwrap_or_default();
            let shape = self.shape(&instruction, bytes);
            let alone = shape == Shape::Repeated;
            if shape == Shape::Stepped || alone && place > 0 {
                if place > 0 {
                    self.leave(instruction.ip(), None);
                    return Some((copy, store, false));
                }
                return None;
            }
            if place == 0 {
                store = self.writer.log(number, alone);
            }
            let offsets = decoder.get_constant_offsets(&instruction);
            if !self.line(&instruction, bytes, shape, &offsets)? {
                return Some((copy, store, alone));
            }
        }
        debug_assert!(self.lines.len() - first == LONGEST_BLOCK);
        self.go(decoder.ip());
        Some((copy, store, false))
    }

    fn shape(&mut self, instruction: &Instruction, bytes: &[u8]) -> Shape {
        if instruction.is_invalid() || bytes.is_empty() || doors::ends(instruction.ip()) {
            return Shape::Stepped;
        }
        if begins_sequence(instruction) {
            // Preempted in a copy, a restartable sequence would not be restarted.
            *self.off = true;
            return Shape::Stepped;
        }
        let shape = shape::of(instruction, bytes);
        let leaves = match (shape, self.confined) {
            (Shape::Call(target), Some((start, end))) => !(start..end).contains(&target),
            (Shape::CallThrough, Some(_)) => true,
            _ => false,
        };
        if leaves { Shape::Stepped } else { shape }
    }

    /// Writes one instruction; whether the block goes on behind it.
    fn line(
        &mut self,
        instruction: &Instruction,
        bytes: &[u8],
        shape: Shape,
        offsets: &ConstantOffsets,
    ) -> Option<bool> {
        let mut line = Line {
            addr: instruction.ip(),
            len: u8::try_from(bytes.len()).ok()?,
            bytes: [0; 15],
            plain: self.writer.here(),
            saved: 0,
        };
        line.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let behind = instruction.next_ip();
        match shape {
            Shape::Plain => self.plain(instruction, bytes, offsets)?,
            Shape::Repeated => {
                self.writer.log_rcx();
                line.plain = self.writer.here();
                self.writer.put(bytes);
                self.writer.log_rcx();
                self.go(behind);
            }
            Shape::Jump(target) => self.go(target),
            Shape::Condition(target) => self.condition(instruction, bytes, target, behind),
            Shape::Call(target) => {
                let gap = self.writer.branch(&[0xff, 0x35]);
                self.go(target);
                self.constant(gap, behind);
            }
            Shape::JumpThrough | Shape::CallThrough => {
                self.through(instruction, bytes, &mut line, shape == Shape::CallThrough)?;
            }
            Shape::Return(more) => self.ret(more, &mut line),
            Shape::Stepped => return None,
        }
        self.lines.push(line);
        Some(shape == Shape::Plain)
    }

    fn plain(
        &mut self,
        instruction: &Instruction,
        bytes: &[u8],
        offsets: &ConstantOffsets,
    ) -> Option<()> {
        if !instruction.is_ip_rel_memory_operand() {
            self.writer.put(bytes);
            return Some(());
        }
        let at = offsets.displacement_offset();
        let target = instruction.ip_rel_memory_address();
        self.writer
            .relative_with(bytes.get(..at)?, target, bytes.get(at + 4..)?);
        Some(())
    }

    fn condition(&mut self, instruction: &Instruction, bytes: &[u8], target: u64, behind: u64) {
        let last = if instruction.is_jcc_near() { 5 } else { 2 };
        let conditional = instruction.is_jcc_short_or_near();
        let taken = bytes
            .len()
            .checked_sub(last)
            .filter(|_| conditional)
            .and_then(|place| bytes.get(place).copied());
        match taken {
            Some(code) => {
                let gap = self.writer.branch(&[0x0f, 0x80 | code & 0xf]);
                self.go(behind);
                self.fill(gap, target);
            }
            None => {
                // loop, jrcxz: over the jump behind them
                let short = bytes.len().saturating_sub(1);
                self.writer.put(bytes.get(..short).unwrap_or_default());
                self.writer.put(&[5]);
                let gap = self.writer.branch(&[0xe9]);
                self.go(target);
                self.fill(gap, behind);
            }
        }
    }

    fn through(
        &mut self,
        instruction: &Instruction,
        bytes: &[u8],
        line: &mut Line,
        calls: bool,
    ) -> Option<()> {
        let (load, len) = shape::load(instruction, bytes)?;
        let load = load.get(..len)?;
        self.writer.save_rax();
        line.saved = self.writer.here();
        if instruction.is_ip_rel_memory_operand() {
            let before = load.get(..len.checked_sub(4)?)?;
            self.writer
                .relative(before, instruction.ip_rel_memory_address());
        } else {
            self.writer.put(load);
        }
        self.writer.target_is_rax();
        self.writer.restore_rax();
        line.plain = self.writer.here();
        let gap = calls.then(|| self.writer.branch(&[0xff, 0x35]));
        self.dispatch();
        if let Some(gap) = gap {
            self.constant(gap, instruction.next_ip());
        }
        Some(())
    }

    fn ret(&mut self, more: u32, line: &mut Line) {
        self.writer.save_rax();
        line.saved = self.writer.here();
        line.plain = 0;
        // mov rax, [rsp]
        self.writer.put(&[0x48, 0x8b, 0x04, 0x24]);
        self.writer.target_is_rax();
        self.writer.restore_rax();
        // lea rsp, [rsp + 8 + more]
        self.writer.put(&[0x48, 0x8d, 0xa4, 0x24]);
        self.writer.put(&(8 + more).to_le_bytes());
        self.dispatch();
    }

    fn dispatch(&mut self) {
        let to = self.writer.arena().dispatch;
        self.writer.relative(&[0xe9], to);
    }

    /// A word behind the code, which an instruction with this gap reads.
    fn constant(&mut self, gap: Gap, value: u64) {
        gap.lead_to(self.writer.here());
        self.writer.put(&value.to_le_bytes());
    }

    /// Goes to the copy of `target`, or stops where that is not made yet.
    fn go(&mut self, target: u64) {
        let gap = self.writer.branch(&[0xe9]);
        self.fill(gap, target);
    }

    fn fill(&mut self, gap: Gap, target: u64) {
        let (table, blocks) = self.known;
        let block = table.find(target).and_then(|block| blocks.get(block));
        if block.is_some_and(|block| gap.lead_to(block.copy)) {
            return;
        }
        gap.lead_to(self.writer.here());
        self.leave(target, Some(gap));
    }

    /// A breakpoint, and its number.
    fn leave(&mut self, target: u64, gap: Option<Gap>) {
        let number = u32::try_from(self.exits.len()).unwrap_or(u32::MAX);
        let at = self.writer.here();
        self.exits.push(Exit { at, target, gap });
        self.writer.put(&[0xcc]);
        self.writer.put(&number.to_le_bytes());
    }
}

/// Whether the instruction takes the address of a restartable sequence's description, as one does that begins it.
fn begins_sequence(instruction: &Instruction) -> bool {
    let addr = if instruction.is_ip_rel_memory_operand() {
        instruction.ip_rel_memory_address()
    } else if instruction.op_count() == 2 && moves_immediate(instruction) {
        instruction.immediate(1)
    } else {
        return false;
    };
    if addr % 8 != 0 || addr < 4096 {
        return false;
    }
    let mut words = [0; 32];
    if process::read(addr, &mut words) != words.len() || words.get(..8) != Some(&[0; 8]) {
        return false;
    }
    let abort = words
        .as_chunks::<8>()
        .0
        .last()
        .copied()
        .map(u64::from_le_bytes);
    let mut mark = [0; 4];
    abort.is_some_and(|abort| process::read(abort.wrapping_sub(4), &mut mark) == mark.len())
        && u32::from_le_bytes(mark) == SEQUENCE
}

/// A move of an immediate that may be an address.
fn moves_immediate(instruction: &Instruction) -> bool {
    use iced_x86::OpKind as K;
    instruction.mnemonic() == iced_x86::Mnemonic::Mov
        && matches!(
            instruction.op1_kind(),
            K::Immediate32 | K::Immediate64 | K::Immediate32to64
        )
}
