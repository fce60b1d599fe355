//! One line an instruction, by Capstone; by iced where Capstone does not know it.
use capstone::Capstone;
use capstone::arch::x86::{ArchMode, ArchSyntax};
use capstone::arch::{BuildsCapstone, BuildsCapstoneSyntax};
use iced_x86::{Formatter, GasFormatter, IntelFormatter};

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
        lines.code(code, symbols.resolve(code.addr).as_ref());
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

/// `None` where Capstone has no text, or takes another length for the instruction than iced.
fn by_capstone(capstone: Option<&Capstone>, code: &Code) -> Option<String> {
    let all = capstone?.disasm_count(&code.bytes, code.addr, 1).ok()?;
    let instruction = all
        .first()
        .filter(|i| i.bytes().len() == code.bytes.len())?;
    let mnemonic = instruction.mnemonic().filter(|text| !text.is_empty())?;
    let operands = instruction.op_str().unwrap_or_default();
    Some(format!("{mnemonic} {operands}").trim_end().to_owned())
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
