//! What is shown of the recorded calls: a folded call tree, the full assembly, JSON; and the files beside it.

use anyhow::Result;

use scalpel_scope::outside::message::{Call, End};
use scalpel_scope::render::{self, Syntax};
use scalpel_scope::trace::Tier;

use super::names::Names;
use super::{Located, Recorded, chrome, json};
use crate::cli::SyntaxArg;
use crate::event::Pid;
use crate::output::{Output, write_private};
use crate::plan::{LivePlan, TraceView};

/// Everything that is shown.
pub(super) struct Shown<'a> {
    pub(super) plan: &'a LivePlan,
    pub(super) located: Option<&'a Located>,
    pub(super) pid: Pid,
    pub(super) command: &'a str,
    pub(super) recorded: &'a Recorded,
}

impl Shown<'_> {
    pub(super) fn syntax(&self) -> Syntax {
        match self.plan.syntax {
            SyntaxArg::Intel => Syntax::Intel,
            SyntaxArg::Att => Syntax::Att,
        }
    }

    /// Writes it all.
    pub(super) fn all(&self, names: &mut Names, output: &Output) -> Result<()> {
        let text = match self.plan.view {
            TraceView::Json => json::document(self, names)?,
            TraceView::Full => self.full(names),
            TraceView::Tree => self.each(names, |call, names| {
                render::tree(&call.trace, names, render::TREE_LINES)
            }),
        };
        if let Some(path) = &self.plan.output {
            write_private(path, self.full(names).as_bytes())?;
        }
        if let Some(path) = &self.plan.chrome {
            write_private(path, chrome::document(self, names).as_bytes())?;
        }
        output.data(text)?;
        self.tell(output);
        Ok(())
    }

    fn full(&self, names: &mut Names) -> String {
        let syntax = self.syntax();
        self.each(names, |call, names| {
            render::full(&call.trace, names, syntax)
        })
    }

    fn each(&self, names: &mut Names, mut show: impl FnMut(&Call, &mut Names) -> String) -> String {
        let mut text = String::new();
        for (number, call) in self.recorded.calls.iter().enumerate() {
            if number > 0 {
                text.push('\n');
            }
            text += &self.heading(number + 1, call);
            text += &show(call, names);
        }
        text
    }

    fn heading(&self, number: usize, call: &Call) -> String {
        let name = self.located.map_or("", |located| &located.info.name);
        let seconds = |ns: u64| format!("{}.{:06}", ns / 1_000_000_000, ns / 1_000 % 1_000_000);
        let how = match call.trace.tier {
            Tier::Ptrace => "stepped",
            _ => "recorded",
        };
        format!(
            "call {number} of {name}: thread {} of {} (pid {}), at {} s, {how} for {} s\n",
            call.tid,
            self.command,
            self.pid,
            seconds(call.begin_ns),
            seconds(call.end_ns.saturating_sub(call.begin_ns)),
        )
    }

    fn tell(&self, output: &Output) {
        let got = self.recorded.calls.len() as u64;
        if got < self.plan.calls {
            let why = match self.recorded.end {
                Some(End::Exited) => "the process ended",
                Some(End::Replaced) => "the process executed another program",
                _ => "it was stopped",
            };
            output.warn(&format!(
                "{why} after {} of {}",
                got,
                count(self.plan.calls, "call")
            ));
        }
        if self.recorded.late > 0 {
            output.warn(&format!(
                "{} not recorded: the first instruction was missed",
                count(self.recorded.late, "call")
            ));
        }
        if self.recorded.passed > 0 {
            output.detail(&format!(
                "{} on other threads passed meanwhile, not recorded",
                count(self.recorded.passed, "call")
            ));
        }
    }
}

/// `1 call`, `2 calls`.
pub(super) fn count(number: u64, what: &str) -> String {
    if number == 1 {
        format!("1 {what}")
    } else {
        format!("{number} {what}s")
    }
}
