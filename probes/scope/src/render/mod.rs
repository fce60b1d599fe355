//! A trace as text and JSON: pure functions of the trace and a resolver of names. Each distinct instruction is
//! disassembled once.
mod json;
mod text;
mod tree;

pub use json::json;
pub use text::{Line, Syntax, lines};
pub use tree::{TREE_LINES, tree};

use crate::trace::{Status, Trace};

/// All that ran: each distinct instruction once, with how often it ran, in the order of the first run.
#[must_use]
pub fn full(trace: &Trace, symbols: &mut dyn crate::symbol::Resolver, syntax: Syntax) -> String {
    let mut out = head(trace);
    let mut of = None;
    for line in lines(trace, symbols, syntax) {
        let name = line.symbol.as_ref().map(|symbol| symbol.name.clone());
        if of.as_ref() != Some(&name) {
            let shown = name.as_deref().unwrap_or("(no symbol)");
            out += &format!("{shown}:\n");
            of = Some(name);
        }
        let Line {
            addr, count, text, ..
        } = line;
        let times = if count > 1 {
            format!(" x{count}")
        } else {
            String::new()
        };
        out += &format!("  {addr:016x}  {text}{times}\n");
    }
    out
}

/// The lines above every rendering: how much, and how far it can be believed.
fn head(trace: &Trace) -> String {
    if let Some(why) = &trace.skip_reason {
        return format!("skipped: {why}\n");
    }
    let tier = trace.tier.word();
    let status = match trace.status() {
        Status::Complete => {
            "complete: the interrupted flow of this thread, signal handlers excluded".to_owned()
        }
        Status::Truncated(reasons) => format!("truncated: {reasons}"),
    };
    format!("{} instructions ({tier}), {status}\n", trace.counted)
}
