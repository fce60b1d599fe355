//! The trace as other programs read it: one object, addresses as strings, because JavaScript would round them.
use serde::Serialize;

use super::text::{Syntax, lines};
use crate::symbol::Resolver;
use crate::trace::{Fact, Trace};

#[derive(Serialize)]
struct Document<'a> {
    status: &'static str,
    reasons: Vec<&'static str>,
    tier: &'static str,
    skip_reason: Option<&'a str>,
    instructions: u64,
    verified: Vec<&'static str>,
    assumed: Vec<&'static str>,
    trace: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    addr: &'a str,
    bytes: &'a str,
    text: &'a str,
    symbol: Option<&'a str>,
    line: Option<&'a str>,
    count: u32,
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
    let lines = lines(trace, symbols, syntax);
    let addresses: Vec<_> = lines
        .iter()
        .map(|line| format!("{:#x}", line.addr))
        .collect();
    let bytes: Vec<String> = trace.code.iter().map(|code| hex(&code.bytes)).collect();
    let rows = trace.steps.iter().filter_map(|step| {
        let at = usize::try_from(step.code).ok()?;
        let line = lines.get(at)?;
        let symbol = line.symbol.as_ref();
        Some(Row {
            addr: addresses.get(at)?,
            bytes: bytes.get(at)?,
            text: &line.text,
            symbol: symbol.map(|symbol| symbol.name.as_str()),
            line: symbol.and_then(|symbol| symbol.line.as_deref()),
            count: step.count,
        })
    });
    let sentences = |facts: &[Fact]| facts.iter().map(|fact| fact.sentence()).collect();
    serde_json::to_string(&Document {
        status: if trace.reasons.is_empty() {
            "complete"
        } else {
            "truncated"
        },
        reasons: trace.reasons.words().collect(),
        tier: trace.tier.word(),
        skip_reason: trace.skip_reason.as_deref(),
        instructions: trace.counted,
        verified: sentences(&trace.verified),
        assumed: sentences(&trace.assumed),
        trace: rows.collect(),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
