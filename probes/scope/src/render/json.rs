//! The trace as other programs read it: one object, addresses as strings, because JavaScript would round them. Steps are
//! written as they come, and what is known of the whole behind them.
use std::io::{self, Write};

use serde::Serialize;

use super::Head;
use super::text::{Syntax, Texts};
use crate::sink::Sink;
use crate::symbol::{Resolver, Symbol};
use crate::trace::{Child, Code, Fact, Step, Trace};

#[derive(Serialize)]
struct Whole<'a> {
    status: &'static str,
    reasons: Vec<&'static str>,
    tier: &'static str,
    skip_reason: Option<&'a str>,
    instructions: u64,
    verified: Vec<&'static str>,
    assumed: Vec<&'static str>,
    /// How many threads and processes were started within, and the first of them.
    started: u64,
    not_followed: &'a [Child],
}

#[derive(Serialize)]
struct Row<'a> {
    addr: String,
    bytes: String,
    text: String,
    symbol: Option<&'a str>,
    line: Option<&'a str>,
    count: u32,
}

/// Writes a trace while it comes.
pub struct JsonWriter<W> {
    out: W,
    texts: Texts,
    /// Each distinct instruction's row up to its count.
    rows: Vec<String>,
    any: bool,
    failed: Option<io::Error>,
}

impl<W> std::fmt::Debug for JsonWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JsonWriter")
            .field("rows", &self.rows.len())
            .finish_non_exhaustive()
    }
}

impl<W: Write> JsonWriter<W> {
    /// Nothing is written before the first step, so that what is refused before it leaves no half of an object.
    pub fn new(out: W, syntax: Syntax) -> Self {
        Self {
            out,
            texts: Texts::new(syntax),
            rows: Vec::new(),
            any: false,
            failed: None,
        }
    }

    /// Writes what is known of the whole, and ends the object.
    ///
    /// # Errors
    /// Something could not be written.
    pub fn finish(mut self, head: &Head<'_>) -> io::Result<W> {
        let sentences = |facts: &[Fact]| facts.iter().map(|fact| fact.sentence()).collect();
        let whole = serde_json::to_string(&Whole {
            status: if head.reasons.is_empty() && head.skip_reason.is_none() {
                "complete"
            } else {
                "truncated"
            },
            reasons: head.reasons.words().collect(),
            tier: head.tier.word(),
            skip_reason: head.skip_reason,
            instructions: head.instructions,
            verified: sentences(head.verified),
            assumed: sentences(head.assumed),
            started: head.started,
            not_followed: head.not_followed,
        })?;
        self.write(if self.any { "]," } else { "{\"trace\":[]," });
        self.write(whole.strip_prefix('{').unwrap_or("}"));
        self.failed.map_or(Ok(self.out), Err)
    }

    fn write(&mut self, text: &str) {
        if self.failed.is_none() {
            self.failed = self.out.write_all(text.as_bytes()).err();
        }
    }
}

impl<W: Write> Sink for JsonWriter<W> {
    fn code(&mut self, code: &Code, symbol: Option<&Symbol>) {
        let row = serde_json::to_string(&Row {
            addr: format!("{:#x}", code.addr),
            bytes: code
                .bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            text: self.texts.of(code),
            symbol: symbol.map(|symbol| symbol.name.as_str()),
            line: symbol.and_then(|symbol| symbol.line.as_deref()),
            count: 0,
        });
        let row = row.unwrap_or_default();
        self.rows
            .push(row.strip_suffix("0}").unwrap_or_default().to_owned());
    }

    fn step(&mut self, _thread: u32, step: &Step) {
        let row = usize::try_from(step.code)
            .ok()
            .and_then(|at| self.rows.get(at));
        if let (Some(row), None) = (row, &self.failed) {
            let any = std::mem::replace(&mut self.any, true);
            let before = if any { "," } else { "{\"trace\":[" };
            self.failed = write!(self.out, "{before}{row}{}}}", step.count).err();
        }
    }
}

/// One JSON object; `line` and `symbol` are null where they are not known.
///
/// # Errors
/// Never in practice: strings and numbers are always JSON.
pub fn json(
    trace: &Trace,
    symbols: &mut dyn Resolver,
    syntax: Syntax,
) -> Result<String, serde_json::Error> {
    let mut writer = JsonWriter::new(Vec::new(), syntax);
    for code in &trace.code {
        writer.code(code, symbols.tell(code.addr).as_ref());
    }
    for step in &trace.steps {
        writer.step(0, step);
    }
    let bytes = writer
        .finish(&Head::of(trace))
        .map_err(serde_json::Error::io)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
