//! Scopes as JSON: one object, the instructions of all calls in the order they ran, and beside them which call each is of.

use serde::Serialize;

use scalpel_scope::Reasons;
use scalpel_scope::render::{Syntax, lines};
use scalpel_scope::trace::{Fact, Tier};

use super::names::Names;
use super::show::Shown;

#[derive(Serialize)]
struct Document {
    status: &'static str,
    reasons: Vec<&'static str>,
    tier: &'static str,
    skip_reason: Option<String>,
    instructions: u64,
    function: Option<Function>,
    calls: Vec<CallRow>,
    trace: Vec<Row>,
}

/// Which function, as a genome names it too.
#[derive(Serialize)]
struct Function {
    key: String,
    name: String,
    module: String,
    build_id: String,
    file_offset: u64,
}

#[derive(Serialize)]
struct CallRow {
    pid: u32,
    tid: u32,
    start_ns: u64,
    end_ns: u64,
    status: &'static str,
    reasons: Vec<&'static str>,
    instructions: u64,
    /// Its rows of `trace`: the first, and how many.
    first: usize,
    rows: usize,
    traps: u64,
    call_outs: u64,
    verified: Vec<&'static str>,
    assumed: Vec<&'static str>,
}

#[derive(Serialize)]
struct Row {
    addr: String,
    bytes: String,
    text: String,
    symbol: Option<String>,
    line: Option<String>,
    count: u32,
}

const NOT_CALLED: &str = "not called";

fn status(reasons: &[&'static str]) -> &'static str {
    if reasons.is_empty() {
        "complete"
    } else {
        "truncated"
    }
}

/// A document of a scope that records nothing.
pub(super) fn skipped(why: &str) -> serde_json::Result<String> {
    let document = Document {
        status: "truncated",
        reasons: vec!["skipped"],
        tier: "none",
        skip_reason: Some(why.to_owned()),
        instructions: 0,
        function: None,
        calls: Vec::new(),
        trace: Vec::new(),
    };
    Ok(serde_json::to_string(&document)? + "\n")
}

/// The document of a finished scope.
pub(super) fn document(shown: &Shown<'_>, names: &mut Names) -> serde_json::Result<String> {
    let mut trace = Vec::new();
    let mut calls = Vec::new();
    let mut all = Reasons::NONE;
    for call in &shown.recorded.calls {
        let first = trace.len();
        trace.extend(rows(call, names, shown.syntax()));
        all = all.with(call.trace.reasons);
        let reasons: Vec<_> = call.trace.reasons.words().collect();
        calls.push(CallRow {
            pid: shown.pid.0,
            tid: call.tid,
            start_ns: call.begin_ns,
            end_ns: call.end_ns,
            status: status(&reasons),
            reasons,
            instructions: call.trace.counted,
            first,
            rows: trace.len() - first,
            traps: call.trace.traps,
            call_outs: call.trace.call_outs.calls,
            verified: sentences(&call.trace.verified),
            assumed: sentences(&call.trace.assumed),
        });
    }
    let mut reasons: Vec<_> = all.words().collect();
    if (calls.len() as u64) < shown.plan.calls {
        reasons.push(NOT_CALLED);
    }
    let last = shown.recorded.calls.last();
    let tier = last.map_or(Tier::None, |call| call.trace.tier);
    let document = Document {
        status: status(&reasons),
        reasons,
        tier: tier.word(),
        skip_reason: shown
            .recorded
            .calls
            .iter()
            .find_map(|call| call.trace.skip_reason.as_deref().map(str::to_owned)),
        instructions: calls.iter().map(|call| call.instructions).sum(),
        function: shown.located.map(|located| Function {
            key: located.info.key(),
            name: located.info.name.clone(),
            module: located.info.module.clone(),
            build_id: located.info.build_id.clone(),
            file_offset: located.info.file_offset,
        }),
        calls,
        trace,
    };
    Ok(serde_json::to_string(&document)? + "\n")
}

fn sentences(facts: &[Fact]) -> Vec<&'static str> {
    facts.iter().map(|fact| fact.sentence()).collect()
}

fn rows(
    call: &scalpel_scope::outside::message::Call,
    names: &mut Names,
    syntax: Syntax,
) -> Vec<Row> {
    let lines = lines(&call.trace, names, syntax);
    let row = |step: &scalpel_scope::trace::Step| {
        let at = usize::try_from(step.code).ok()?;
        let (line, code) = (lines.get(at)?, call.trace.code.get(at)?);
        let symbol = line.symbol.as_ref();
        Some(Row {
            addr: format!("{:#x}", line.addr),
            bytes: code
                .bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            text: line.text.clone(),
            symbol: symbol.map(|symbol| symbol.name.clone()),
            line: symbol.and_then(|symbol| symbol.line.clone()),
            count: step.count,
        })
    };
    call.trace.steps.iter().filter_map(row).collect()
}
