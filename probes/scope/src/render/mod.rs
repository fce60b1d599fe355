//! A trace as text and JSON: pure functions of the trace and a resolver of names. Each distinct instruction is
//! disassembled once.
mod json;
mod text;
mod tree;

pub use json::{JsonWriter, json};
pub use text::{Line, Lines, Syntax, lines};
pub use tree::{TREE_LINES, Tree, tree};

use crate::trace::{Child, Fact, Reasons, Tier, Trace};

/// What is known of a whole trace.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// How it was seen.
    pub tier: Tier,
    /// Why nothing was recorded, if so.
    pub skip_reason: Option<&'a str>,
    /// How many instructions ran.
    pub instructions: u64,
    /// What may be missing.
    pub reasons: Reasons,
    /// What was checked.
    pub verified: &'a [Fact],
    /// What was not.
    pub assumed: &'a [Fact],
    /// Threads and processes that were started within, and run free.
    pub started: u64,
    /// The first of them.
    pub not_followed: &'a [Child],
}

impl<'a> Head<'a> {
    /// What is known of this trace.
    #[must_use]
    pub fn of(trace: &'a Trace) -> Self {
        Self {
            tier: trace.tier,
            skip_reason: trace.skip_reason.as_deref(),
            instructions: trace.counted,
            reasons: trace.reasons,
            verified: &trace.verified,
            assumed: &trace.assumed,
            started: trace.started,
            not_followed: &trace.not_followed,
        }
    }

    fn children(&self) -> String {
        if self.started == 0 {
            return String::new();
        }
        let kind = |child: &Child| if child.thread { "thread" } else { "process" };
        let listed = self.not_followed.iter();
        let listed: Vec<_> = listed
            .map(|child| format!("{} {}", kind(child), child.tid))
            .collect();
        let more = self.started.saturating_sub(listed.len() as u64);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        format!("not followed: {}{more}\n", listed.join(", "))
    }

    /// The line above every rendering: how much, and how far it can be believed.
    #[must_use]
    pub fn text(&self) -> String {
        if let Some(why) = self.skip_reason {
            return format!("skipped: {why}\n");
        }
        let status = if self.reasons.is_empty() {
            "complete: the interrupted flow of this thread, signal handlers excluded".to_owned()
        } else {
            format!("truncated: {}", self.reasons)
        };
        let tier = self.tier.word();
        let children = self.children();
        format!(
            "{} instructions ({tier}), {status}\n{children}",
            self.instructions
        )
    }
}

/// All that ran: each distinct instruction once, with how often it ran, in the order of the first run, under the names and
/// source lines that it stands in.
#[must_use]
pub fn full(trace: &Trace, symbols: &mut dyn crate::symbol::Resolver, syntax: Syntax) -> String {
    Head::of(trace).text() + &listing(&lines(trace, symbols, syntax))
}

/// Distinct instructions under the names of their functions; source lines stand where they change.
#[must_use]
pub fn listing(lines: &[Line]) -> String {
    let mut out = String::new();
    let mut of = None;
    let mut place = None;
    for line in lines {
        let name = line.symbol.as_ref().map(|symbol| &symbol.name);
        if of != Some(name) {
            let shown = name.map_or("(no symbol)", String::as_str);
            out += &format!("{shown}:\n");
            of = Some(name);
            place = None;
        }
        let source = line.symbol.as_ref().and_then(|symbol| symbol.line.as_ref());
        if let Some(source) = source.filter(|source| place != Some(*source)) {
            out += &format!("  {source}\n");
            place = Some(source);
        }
        let times = if line.count > 1 {
            format!(" x{}", line.count)
        } else {
            String::new()
        };
        out += &format!("  {:016x}  {}{times}\n", line.addr, line.text);
    }
    out
}
