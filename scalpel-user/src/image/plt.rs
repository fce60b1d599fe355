//! Import stubs: recognised by their instructions, because a stripped file has no section names for them.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, Register};

use super::dynamic::{Dynamic, Slot};
use super::elf::ElfFile;

/// The address of the word through which the stub at `vaddr` jumps, if there is a stub:
/// `[endbr64] [bnd] jmp *word(%rip)`.
pub(super) fn stub_target_word(elf: &ElfFile<'_>, vaddr: u64) -> Option<u64> {
    let mut instructions = decode(elf, vaddr)?.filter(|i| i.mnemonic() != Mnemonic::Endbr64);
    word_of_jump(&instructions.next()?)
}

/// The word of `jmp *word(%rip)` or `call *word(%rip)`.
pub(super) fn word_of_jump(instruction: &Instruction) -> Option<u64> {
    let indirect = matches!(instruction.code(), Code::Jmp_rm64 | Code::Call_rm64);
    (indirect && instruction.memory_base() == Register::RIP)
        .then(|| instruction.ip_rel_memory_address())
}

/// Whether an unwind entry's range begins with import stubs: the lazy binder's `push word(%rip); jmp *word(%rip)`,
/// or a stub through a word that the loader binds to a symbol.
pub(super) fn is_stub_table(elf: &ElfFile<'_>, dynamic: &Dynamic<'_>, vaddr: u64) -> bool {
    let Some(mut instructions) = decode(elf, vaddr) else {
        return false;
    };
    let Some(first) = instructions.next() else {
        return false;
    };
    if first.code() == Code::Push_rm64 && first.memory_base() == Register::RIP {
        return instructions
            .next()
            .is_some_and(|second| word_of_jump(&second).is_some());
    }
    let slot = stub_target_word(elf, vaddr).and_then(|word| dynamic.slots.get(&word));
    matches!(slot, Some(Slot::Import(_) | Slot::Resolved(_)))
}

fn decode<'d>(
    elf: &ElfFile<'d>,
    vaddr: u64,
) -> Option<impl Iterator<Item = Instruction> + use<'d>> {
    let bytes = elf.bytes_at(vaddr, 32)?;
    let mut decoder = Decoder::with_ip(64, bytes, vaddr, DecoderOptions::NONE);
    Some(std::iter::from_fn(move || {
        decoder.can_decode().then(|| decoder.decode())
    }))
}
