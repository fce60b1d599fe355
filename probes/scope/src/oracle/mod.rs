//! Whether a trace can be what ran: every transition is explained, or a reason is set.
//! One oracle for all tiers; it knows the steps and the code bytes, and nothing of how they were seen.
use crate::flow::{self, Successors};
use crate::trace::{Form, Link, Reasons, Step, Trace};

/// What the bytes of one distinct instruction say.
#[derive(Clone, Copy)]
struct Decoded {
    addr: u64,
    successors: Successors,
    repeated: bool,
    /// Where a call comes back to.
    behind: Option<u64>,
    returns: bool,
}

/// The reasons that the trace itself gives to doubt it.
#[must_use]
pub fn check(trace: &Trace) -> Reasons {
    let decoded: Vec<Option<Decoded>> = trace.code.iter().map(explain).collect();
    let at = |step: &Step| {
        let index = usize::try_from(step.code).ok()?;
        decoded.get(index).copied().flatten()
    };
    let mut reasons = Reasons::NONE;
    for step in &trace.steps {
        reasons = reasons.with(match at(step) {
            None => Reasons::DECODE,
            Some(code) => own(step, code),
        });
    }
    let mut calls = Calls::default();
    for pair in trace.steps.windows(2) {
        if let [before, after] = pair
            && let (Some(to), Some(from)) = (at(after), at(before))
            && !joined(trace, (before, from), (after, to.addr), &mut calls)
        {
            reasons = reasons.with(Reasons::UNEXPLAINED);
        }
    }
    let first = trace.steps.first().and_then(at).map(|code| code.addr);
    if first != trace.begin || trace.steps.last().map(|step| step.next) != trace.end {
        reasons = reasons.with(Reasons::UNEXPLAINED);
    }
    let counted: u64 = trace.steps.iter().map(|step| u64::from(step.count)).sum();
    if counted != trace.counted {
        reasons = reasons.with(Reasons::COUNT);
    }
    reasons
}

fn explain(code: &crate::trace::Code) -> Option<Decoded> {
    let instruction = flow::decode(code.addr, &code.bytes)?;
    (instruction.len() == code.bytes.len()).then(|| Decoded {
        addr: code.addr,
        successors: flow::successors(&instruction),
        repeated: flow::is_repeated(&instruction),
        behind: flow::is_call(&instruction).then(|| instruction.next_ip()),
        returns: flow::is_return(&instruction),
    })
}

/// Whether one step is possible by itself.
fn own(step: &Step, code: Decoded) -> Reasons {
    let count = step.count == 1 || step.count > 1 && code.repeated;
    let leaves = !code.repeated || step.next != code.addr;
    if count && leaves && code.successors.allow(step.next) {
        Reasons::NONE
    } else {
        Reasons::UNEXPLAINED
    }
}

/// Where calls that were followed come back to.
#[derive(Default)]
struct Calls(Vec<u64>);

impl Calls {
    fn follow(&mut self, step: &Step, code: Decoded) {
        if let Some(behind) = code.behind {
            self.0.push(behind);
        } else if code.returns
            && let Some(place) = self.0.iter().rposition(|behind| *behind == step.next)
        {
            self.0.truncate(place);
        }
    }

    /// A callee that ran at full speed came back to `addr`: behind the call that led to it, or behind the one whose
    /// callee jumped to it.
    fn came_back(&mut self, code: Decoded, addr: u64) -> bool {
        match code.behind {
            Some(behind) => behind == addr,
            None => {
                let place = self.0.iter().rposition(|behind| *behind == addr);
                self.0.truncate(place.unwrap_or(self.0.len()));
                place.is_some()
            }
        }
    }
}

fn joined(
    trace: &Trace,
    (before, code): (&Step, Decoded),
    (after, addr): (&Step, u64),
    calls: &mut Calls,
) -> bool {
    if after.link == Link::Over {
        return calls.came_back(code, addr);
    }
    calls.follow(before, code);
    match after.link {
        Link::Flow => before.next == addr,
        Link::Back => matches!(trace.form, Form::Region { .. }) && !trace.form.shows(before.next),
        // Only what leads out can be followed by a call from outside.
        Link::Again => trace.begin == Some(addr) && code.successors.fall.is_none(),
        // The scope's own code is entered by a call, direct or not.
        Link::Own | Link::Over => code.successors.fall.is_none(),
    }
}

#[cfg(test)]
mod tests;
