//! One line an instruction, by Capstone; by iced where Capstone does not know it.
use capstone::Capstone;
use capstone::arch::x86::{ArchMode, ArchSyntax};
use capstone::arch::{BuildsCapstone, BuildsCapstoneSyntax};
use iced_x86::{Formatter, GasFormatter, IntelFormatter};

use crate::flow;
use crate::symbol::{Resolver, Symbol};
use crate::trace::{Code, Trace};

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

/// The distinct instructions of a trace in the order of their first run.
#[must_use]
pub fn lines(trace: &Trace, symbols: &mut dyn Resolver, syntax: Syntax) -> Vec<Line> {
    let mut counts = vec![0_u64; trace.code.len()];
    for step in &trace.steps {
        if let Some(count) = usize::try_from(step.code)
            .ok()
            .and_then(|at| counts.get_mut(at))
        {
            *count += u64::from(step.count);
        }
    }
    let capstone = disassembler(syntax);
    let line = |(code, count): (&Code, u64)| Line {
        addr: code.addr,
        count,
        text: text(capstone.as_ref(), code, syntax),
        symbol: symbols.resolve(code.addr),
    };
    trace.code.iter().zip(counts).map(line).collect()
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
