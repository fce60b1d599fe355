//! What was seen of one call, as it is seen: steps in order, each distinct instruction once; and the trace of it at the end.
use std::collections::HashMap;

use crate::oracle;
use crate::trace::{CallOuts, Child, Code, Fact, Form, Link, Reasons, Step, Tier, Trace};

/// Children that are named one by one.
const MOST_CHILDREN: usize = 64;

/// The trace of one call in the making.
#[derive(Debug, Default)]
pub(super) struct Log {
    known: HashMap<(u64, Vec<u8>), u32>,
    code: Vec<Code>,
    steps: Vec<Step>,
    counted: u64,
    reasons: Reasons,
    link: Option<Link>,
    facts: Vec<Fact>,
    unforetold: bool,
    started: u64,
    children: Vec<Child>,
    pub(super) call_outs: u64,
    pub(super) traps: u64,
}

impl Log {
    /// An instruction that ran or is about to run, `count` times in a row.
    pub(super) fn push(&mut self, addr: u64, bytes: &[u8], next: u64, count: u32) {
        let code = match self.known.get(&(addr, bytes.to_vec())) {
            Some(code) => *code,
            None => {
                let code = u32::try_from(self.code.len()).unwrap_or(u32::MAX);
                self.known.insert((addr, bytes.to_vec()), code);
                self.code.push(Code {
                    addr,
                    bytes: bytes.to_vec(),
                });
                code
            }
        };
        self.counted += u64::from(count);
        let link = self.link.take().unwrap_or(Link::Flow);
        self.steps.push(Step {
            code,
            count,
            next,
            link,
        });
    }

    /// The next instruction is joined to the last one in this way.
    pub(super) fn join(&mut self, link: Link) {
        self.link = Some(link);
    }

    /// The last instruction led here.
    pub(super) fn arrived(&mut self, next: u64, foretold: bool) {
        if let Some(last) = self.steps.last_mut() {
            last.next = next;
        }
        self.unforetold |= !foretold;
    }

    /// The last instruction ran so many times in a row.
    pub(super) fn repeated(&mut self, count: u32) {
        if let Some(last) = self.steps.last_mut() {
            self.counted += u64::from(count) - u64::from(last.count);
            last.count = count;
        }
    }

    /// Something is missing.
    pub(super) fn blame(&mut self, reasons: Reasons) {
        self.reasons = self.reasons.with(reasons);
    }

    /// Something is known beside the steps.
    pub(super) fn note(&mut self, fact: Fact) {
        if !self.facts.contains(&fact) {
            self.facts.push(fact);
        }
    }

    /// A thread or process was started.
    pub(super) fn started(&mut self, tid: u32, thread: bool) {
        self.started += 1;
        if self.children.len() < MOST_CHILDREN {
            self.children.push(Child { tid, thread });
        }
        self.note(Fact::ChildrenNotFollowed);
    }

    /// The trace, judged.
    pub(super) fn finish(self, begin: u64) -> Trace {
        let (mut verified, mut assumed) = (Vec::new(), Vec::new());
        for fact in self.facts {
            match fact {
                Fact::CallOutsReturned if self.reasons.contains(Reasons::CALL_OUT) => {}
                Fact::CallOutsReturned | Fact::Returned => verified.push(fact),
                _ => assumed.push(fact),
            }
        }
        assumed.push(Fact::SignalHandlersExcluded);
        assumed.push(Fact::CodeNotRacing);
        let end = self.steps.last().map(|step| step.next);
        let mut trace = Trace {
            tier: Tier::Ptrace,
            skip_reason: None,
            call_outs: CallOuts {
                calls: self.call_outs,
                ..CallOuts::default()
            },
            begin: Some(begin),
            end,
            steps: self.steps,
            code: self.code,
            counted: self.counted,
            traps: self.traps,
            started: self.started,
            not_followed: self.children,
            reasons: self.reasons,
            verified,
            assumed,
            ..Trace::skipped(Form::Call, "")
        };
        // Where it was cut, the last instruction may not have run.
        if trace.reasons.is_empty() {
            trace.reasons = oracle::check(&trace);
        }
        if !self.unforetold && !trace.reasons.contains(Reasons::UNEXPLAINED) {
            trace.verified.push(Fact::SuccessorsForetold);
        }
        trace
    }
}
