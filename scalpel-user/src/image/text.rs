//! Instructions as text, by Capstone, and Capstone as the second opinion on where instructions begin.

use capstone::arch::BuildsCapstone as _;
use capstone::arch::x86::{ArchMode, ArchSyntax};
use capstone::{Capstone, arch::BuildsCapstoneSyntax as _};

/// A disassembler; making one takes a few microseconds.
#[derive(Debug)]
pub struct Disassembler {
    /// `None` if the library cannot be initialised: then nothing is confirmed and text is bytes.
    capstone: Option<Capstone>,
}

impl Default for Disassembler {
    fn default() -> Self {
        Self::new()
    }
}

impl Disassembler {
    /// A disassembler of x86-64 code, in AT&T syntax as the GNU tools write it.
    pub fn new() -> Self {
        Self {
            capstone: Capstone::new()
                .x86()
                .mode(ArchMode::Mode64)
                .syntax(ArchSyntax::Att)
                .build()
                .ok(),
        }
    }

    /// The first instruction of `bytes`, which is `len` bytes long by the other decoder. Encodings that are newer than
    /// Capstone are written as bytes.
    pub fn text(&self, bytes: &[u8], vaddr: u64, len: usize) -> String {
        let found = self
            .capstone
            .as_ref()
            .and_then(|capstone| capstone.disasm_count(bytes, vaddr, 1).ok());
        let first = found
            .as_ref()
            .and_then(|instructions| instructions.first())
            .filter(|first| first.len() == len);
        match first {
            Some(first) => {
                let (mnemonic, operands) = (
                    first.mnemonic().unwrap_or("?"),
                    first.op_str().unwrap_or_default(),
                );
                if operands.is_empty() {
                    mnemonic.to_owned()
                } else {
                    format!("{mnemonic} {operands}")
                }
            }
            None => as_bytes(bytes.get(..len).unwrap_or(bytes)),
        }
    }

    /// Whether Capstone, reading from the start of `bytes`, also finds an instruction of `len` bytes at `delta`.
    pub(super) fn confirms(&self, bytes: &[u8], delta: usize, len: usize) -> bool {
        let (Some(capstone), Some(window)) = (&self.capstone, bytes.get(..delta + len)) else {
            return false;
        };
        let Ok(instructions) = capstone.disasm_all(window, 0) else {
            return false;
        };
        instructions
            .last()
            .is_some_and(|last| last.address() == delta as u64 && last.len() == len)
    }
}

fn as_bytes(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:#04x}")).collect();
    format!(".byte {}", digits.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_prints_full_text() {
        assert!(!Capstone::is_diet());
        assert_eq!(
            Disassembler::new().text(&[0x55, 0x90], 0x1000, 1),
            "pushq %rbp"
        );
    }

    #[test]
    fn unknown_encodings_are_written_as_bytes() {
        assert_eq!(Disassembler::new().text(&[0x06], 0, 1), ".byte 0x06");
    }
}
