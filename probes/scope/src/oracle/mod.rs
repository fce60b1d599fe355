//! Whether a trace can be what ran: every transition is explained, or a reason is set.
//! One oracle for all tiers; it knows the steps and the code bytes, and nothing of how they were seen.
use crate::flow::{self, Successors};
use crate::trace::{Form, Link, Reasons, Step, Trace};

/// What the bytes of one distinct instruction say; `None` where they say nothing.
type Decoded = Option<(u64, Successors, bool)>;

/// The reasons that the trace itself gives to doubt it.
#[must_use]
pub fn check(trace: &Trace) -> Reasons {
    let decoded: Vec<Decoded> = trace.code.iter().map(explain).collect();
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
    for pair in trace.steps.windows(2) {
        if let [before, after] = pair
            && let (Some((addr, ..)), Some(code)) = (at(after), at(before))
            && !joined(trace.form, before, code, after, addr)
        {
            reasons = reasons.with(Reasons::UNEXPLAINED);
        }
    }
    let first = trace.steps.first().and_then(at).map(|(addr, ..)| addr);
    if first != trace.begin || trace.steps.last().map(|step| step.next) != trace.end {
        reasons = reasons.with(Reasons::UNEXPLAINED);
    }
    let counted: u64 = trace.steps.iter().map(|step| u64::from(step.count)).sum();
    if counted != trace.counted {
        reasons = reasons.with(Reasons::COUNT);
    }
    reasons
}

fn explain(code: &crate::trace::Code) -> Decoded {
    let instruction = flow::decode(code.addr, &code.bytes)?;
    (instruction.len() == code.bytes.len()).then(|| {
        let repeated = flow::is_repeated(&instruction);
        (code.addr, flow::successors(&instruction), repeated)
    })
}

/// Whether one step is possible by itself.
fn own(step: &Step, (addr, successors, repeated): (u64, Successors, bool)) -> Reasons {
    let count = step.count == 1 || step.count > 1 && repeated;
    let leaves = !repeated || step.next != addr;
    if count && leaves && successors.allow(step.next) {
        Reasons::NONE
    } else {
        Reasons::UNEXPLAINED
    }
}

fn joined(
    form: Form,
    before: &Step,
    (_, successors, _): (u64, Successors, bool),
    after: &Step,
    addr: u64,
) -> bool {
    match after.link {
        Link::Flow => before.next == addr,
        Link::Back => matches!(form, Form::Region { .. }) && !form.shows(before.next),
        // The scope's own code is entered by a call, direct or not.
        Link::Own => successors.fall.is_none(),
    }
}

#[cfg(test)]
mod tests;
