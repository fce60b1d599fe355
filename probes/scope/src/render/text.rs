//! One line an instruction, by Capstone; by iced where Capstone does not know it.
use capstone::Capstone;
use capstone::arch::x86::{ArchMode, ArchSyntax};
use capstone::arch::{BuildsCapstone, BuildsCapstoneSyntax};
use iced_x86::{Formatter, GasFormatter, IntelFormatter, Mnemonic};

use crate::flow;
use crate::sink::Sink;
use crate::symbol::{Resolver, Symbol};
use crate::trace::{Code, Step, Trace};

/// The assembly dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Syntax {
    /// `mov rax, [rdi]`
    #[default]
    Intel,
    /// `mov (%rdi), %rax`
    Att,
}

/// One distinct instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its address.
    pub addr: u64,
    /// How often it ran.
    pub count: u64,
    /// Its assembly text.
    pub text: String,
    /// What it stands in.
    pub symbol: Option<Symbol>,
}

/// Disassembles.
pub(super) struct Texts {
    capstone: Option<Capstone>,
    syntax: Syntax,
}

impl Texts {
    pub(super) fn new(syntax: Syntax) -> Self {
        Self {
            capstone: disassembler(syntax),
            syntax,
        }
    }

    /// The text of one instruction.
    pub(super) fn of(&self, code: &Code) -> String {
        text(self.capstone.as_ref(), code, self.syntax)
    }
}

/// The distinct instructions of a trace that comes step by step, each with how often it ran.
pub struct Lines {
    texts: Texts,
    lines: Vec<Line>,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines")
            .field("lines", &self.lines.len())
            .finish_non_exhaustive()
    }
}

impl Lines {
    /// None yet.
    #[must_use]
    pub fn new(syntax: Syntax) -> Self {
        Self {
            texts: Texts::new(syntax),
            lines: Vec::new(),
        }
    }

    /// They, in the order of their first run.
    #[must_use]
    pub fn finish(self) -> Vec<Line> {
        self.lines
    }
}

impl Sink for Lines {
    fn code(&mut self, code: &Code, symbol: Option<&Symbol>) {
        self.lines.push(Line {
            addr: code.addr,
            count: 0,
            text: self.texts.of(code),
            symbol: symbol.cloned(),
        });
    }

    fn step(&mut self, _thread: u32, step: &Step) {
        let at = usize::try_from(step.code).unwrap_or(usize::MAX);
        if let Some(line) = self.lines.get_mut(at) {
            line.count += u64::from(step.count);
        }
    }
}

/// The distinct instructions of a trace in the order of their first run.
#[must_use]
pub fn lines(trace: &Trace, symbols: &mut dyn Resolver, syntax: Syntax) -> Vec<Line> {
    let mut lines = Lines::new(syntax);
    for code in &trace.code {
        lines.code(code, symbols.tell(code.addr).as_ref());
    }
    for step in &trace.steps {
        lines.step(0, step);
    }
    lines.finish()
}

fn disassembler(syntax: Syntax) -> Option<Capstone> {
    let syntax = match syntax {
        Syntax::Intel => ArchSyntax::Intel,
        Syntax::Att => ArchSyntax::Att,
    };
    let builder = Capstone::new().x86().mode(ArchMode::Mode64);
    builder.syntax(syntax).build().ok()
}

fn text(capstone: Option<&Capstone>, code: &Code, syntax: Syntax) -> String {
    by_capstone(capstone, code)
        .or_else(|| by_iced(code, syntax))
        .unwrap_or_else(|| {
            let bytes: Vec<_> = code
                .bytes
                .iter()
                .map(|byte| format!("{byte:#04x}"))
                .collect();
            format!(".byte {}", bytes.join(", "))
        })
}

/// `None` where Capstone has no text, takes another length for the instruction than iced, or takes it for another one.
fn by_capstone(capstone: Option<&Capstone>, code: &Code) -> Option<String> {
    let known = flow::decode(code.addr, &code.bytes);
    if known.is_some_and(|instruction| is_mistaken(instruction.mnemonic())) {
        return None;
    }
    let all = capstone?.disasm_count(&code.bytes, code.addr, 1).ok()?;
    let instruction = all
        .first()
        .filter(|i| i.bytes().len() == code.bytes.len())?;
    let mnemonic = instruction.mnemonic().filter(|text| !text.is_empty())?;
    let operands = instruction.op_str().unwrap_or_default();
    Some(format!("{mnemonic} {operands}").trim_end().to_owned())
}

/// Capstone 5 ignores the prefix of these, and shows what they would be without it.
fn is_mistaken(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Clui | Mnemonic::Stui | Mnemonic::Testui | Mnemonic::Uiret
    )
}

fn by_iced(code: &Code, syntax: Syntax) -> Option<String> {
    let instruction = flow::decode(code.addr, &code.bytes)?;
    let mut text = String::new();
    match syntax {
        Syntax::Intel => IntelFormatter::new().format(&instruction, &mut text),
        Syntax::Att => GasFormatter::new().format(&instruction, &mut text),
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], intel: &str, att: &str) {
        let code = Code {
            addr: 0x1000,
            bytes: bytes.to_vec(),
        };
        for (syntax, expect) in [(Syntax::Intel, intel), (Syntax::Att, att)] {
            let text = text(disassembler(syntax).as_ref(), &code, syntax);
            assert_eq!(text, expect, "{bytes:x?}");
        }
    }

    #[test]
    fn both_dialects_are_capstones() {
        check(
            &[0x48, 0x8b, 0x07],
            "mov rax, qword ptr [rdi]",
            "movq (%rdi), %rax",
        );
        check(&[0xeb, 0xfe], "jmp 0x1000", "jmp 0x1000");
    }

    #[test]
    fn what_capstone_lacks_has_text_all_the_same() {
        check(&[0x0f, 0x01, 0xe8], "serialize", "serialize");
        check(
            &[0xc4, 0xe2, 0x75, 0x50, 0xc2],
            "vpdpbusd ymm0,ymm1,ymm2",
            "vpdpbusd %ymm2,%ymm1,%ymm0",
        );
        check(&[0x0f, 0x01, 0xfd], "rdpru", "rdpru");
    }

    #[test]
    fn what_capstone_takes_for_another_has_its_own_name() {
        check(&[0xf3, 0x0f, 0x01, 0xee], "clui", "clui");
        check(&[0x0f, 0x01, 0xee], "rdpkru", "rdpkru");
    }

    #[test]
    fn what_is_no_instruction_is_shown_as_bytes() {
        check(&[0x06], ".byte 0x06", ".byte 0x06");
    }
}
