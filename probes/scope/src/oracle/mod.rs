//! Whether a trace can be what ran: every transition is explained, or a reason is set.
//! One oracle for all tiers; it knows the steps and the code bytes, and nothing of how they were seen.
use crate::flow::{self, Successors};
use crate::trace::{Code, Form, Link, Reasons, Step, Trace};

/// What the bytes of one distinct instruction say.
#[derive(Clone, Copy, Debug)]
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
    let mut meanings = Meanings::default();
    for code in &trace.code {
        meanings.learn(code);
    }
    let mut judge = Judge::new(trace.form);
    for step in &trace.steps {
        judge.step(&meanings, step);
    }
    let reasons = judge.verdict(trace.begin, trace.end, trace.counted);
    if trace.seal.is_some_and(|seal| seal != judge.seal()) {
        return reasons.with(Reasons::COUNT);
    }
    reasons
}

/// A sum over what ran, in its order: kept while it runs, it shows what no successor rule can, such as two visits of a
/// region in each other's place. One step is added to `sum`; a string instruction once, however often it repeats.
#[must_use]
pub fn seal(sum: u64, addr: u64, bytes: &[u8]) -> u64 {
    mixed(sum, folded(addr, bytes))
}

/// The sum as it was before this step was added.
#[must_use]
pub fn unseal(sum: u64, addr: u64, bytes: &[u8]) -> u64 {
    (sum.wrapping_mul(GATHER) ^ folded(addr, bytes)).rotate_right(23)
}

const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Undoes a multiplication by [`SPREAD`].
const GATHER: u64 = 0xf1de_83e1_9937_733d;
const _: () = assert!(
    SPREAD.wrapping_mul(GATHER) == 1,
    "each is the other's inverse"
);

fn mixed(sum: u64, code: u64) -> u64 {
    (sum.rotate_left(23) ^ code).wrapping_mul(SPREAD)
}

fn folded(addr: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(addr, |code, byte| {
        code.rotate_left(8).wrapping_add(u64::from(*byte))
    })
}

/// The sum over the steps of a trace.
#[must_use]
pub fn sealed(trace: &Trace) -> u64 {
    let codes = trace.steps.iter().filter_map(|step| trace.code_of(step));
    codes.fold(0, |sum, code| seal(sum, code.addr, &code.bytes))
}

/// One distinct instruction.
#[derive(Clone, Debug)]
struct Meaning {
    /// What it adds to a seal.
    folded: u64,
    decoded: Option<Decoded>,
}

/// What the bytes of the distinct instructions say, by index.
#[derive(Clone, Debug, Default)]
pub struct Meanings(Vec<Meaning>);

impl Meanings {
    /// Learns the next distinct instruction.
    pub fn learn(&mut self, code: &Code) {
        self.0.push(Meaning {
            folded: folded(code.addr, &code.bytes),
            decoded: explain(code),
        });
    }

    fn all_of(&self, step: &Step) -> Option<&Meaning> {
        self.0.get(usize::try_from(step.code).ok()?)
    }

    fn of(&self, step: &Step) -> Option<&Decoded> {
        self.all_of(step)?.decoded.as_ref()
    }
}

/// What is known of steps that follow each other wherever they run: they are judged once, and from then on only where
/// they are joined to others.
#[derive(Clone, Debug)]
pub struct Proof {
    reasons: Reasons,
    counted: u64,
    begin: Option<u64>,
    last: Option<Step>,
    /// Calls and returns among all but the last, in their order.
    calls: Vec<Step>,
    /// What each adds to the seal.
    folded: Vec<u64>,
}

impl Proof {
    /// Judges steps that are joined by flow alone.
    #[must_use]
    pub fn of(meanings: &Meanings, steps: &[Step]) -> Self {
        let mut judge = Judge::new(Form::Window);
        let mut calls = Vec::new();
        for step in steps {
            judge.step(meanings, step);
            if step.link != Link::Flow {
                judge.add(Reasons::UNEXPLAINED);
            }
        }
        for step in steps.iter().rev().skip(1).rev() {
            let meaning = meanings.of(step);
            if meaning.is_some_and(|code| code.returns || code.behind.is_some()) {
                calls.push(*step);
            }
        }
        Self {
            reasons: judge.reasons,
            counted: judge.counted,
            begin: judge.begin.flatten(),
            last: judge.last,
            calls,
            folded: steps
                .iter()
                .filter_map(|step| Some(meanings.all_of(step)?.folded))
                .collect(),
        }
    }
}

/// Judges the steps of one flow as they come.
#[derive(Clone, Debug)]
pub struct Judge {
    form: Form,
    begin: Option<Option<u64>>,
    last: Option<Step>,
    calls: Calls,
    counted: u64,
    seal: u64,
    reasons: Reasons,
}

impl Judge {
    /// Before the first step.
    #[must_use]
    pub fn new(form: Form) -> Self {
        Self {
            form,
            begin: None,
            last: None,
            calls: Calls::default(),
            counted: 0,
            seal: 0,
            reasons: Reasons::NONE,
        }
    }

    /// The next step.
    pub fn step(&mut self, meanings: &Meanings, step: &Step) {
        let meaning = meanings.all_of(step);
        if let Some(meaning) = meaning {
            self.seal = mixed(self.seal, meaning.folded);
        }
        let code = meaning.and_then(|meaning| meaning.decoded.as_ref());
        self.add(code.map_or(Reasons::DECODE, |code| own(step, code)));
        self.join(meanings, step.link, code.map(|code| code.addr));
        self.counted += u64::from(step.count);
        self.last = Some(*step);
    }

    /// The next steps, which have been judged among themselves.
    pub fn proven(&mut self, meanings: &Meanings, proof: &Proof) {
        let Some(last) = proof.last else {
            return;
        };
        self.join(meanings, Link::Flow, proof.begin);
        for step in &proof.calls {
            if let Some(code) = meanings.of(step) {
                self.calls.follow(step, code);
            }
        }
        self.seal = proof.folded.iter().copied().fold(self.seal, mixed);
        self.add(proof.reasons);
        self.counted += proof.counted;
        self.last = Some(last);
    }

    /// Whether what stands at `addr` can follow the last step.
    fn join(&mut self, meanings: &Meanings, link: Link, addr: Option<u64>) {
        if let (Some(before), Some(addr)) = (&self.last, addr)
            && let Some(from) = meanings.of(before)
            && !joined(
                (self.form, self.begin.flatten()),
                (before, from),
                (link, addr),
                &mut self.calls,
            )
        {
            self.add(Reasons::UNEXPLAINED);
        }
        if link == Link::Gap {
            self.add(Reasons::GAP);
        }
        self.begin.get_or_insert(addr);
    }

    /// The reasons to doubt the flow: it has to begin and end where it is known to, and to be as long as was counted.
    #[must_use]
    pub fn verdict(&self, begin: Option<u64>, end: Option<u64>, counted: u64) -> Reasons {
        let mut reasons = self.reasons;
        let last = self.last.as_ref().map(|step| step.next);
        if self.begin.flatten() != begin || last != end {
            reasons = reasons.with(Reasons::UNEXPLAINED);
        }
        if self.counted != counted {
            reasons = reasons.with(Reasons::COUNT);
        }
        reasons
    }

    /// The reasons so far.
    #[must_use]
    pub fn doubts(&self) -> Reasons {
        self.reasons
    }

    /// The sum over the steps so far, in their order.
    #[must_use]
    pub fn seal(&self) -> u64 {
        self.seal
    }

    /// How many returns led elsewhere than the calls before them say.
    #[must_use]
    pub fn returns_elsewhere(&self) -> u64 {
        self.calls.elsewhere
    }

    fn add(&mut self, reasons: Reasons) {
        self.reasons = self.reasons.with(reasons);
    }
}

fn explain(code: &Code) -> Option<Decoded> {
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
fn own(step: &Step, code: &Decoded) -> Reasons {
    let count = step.count == 1 || step.count > 1 && code.repeated;
    let leaves = !code.repeated || step.next != code.addr;
    if count && leaves && code.successors.allow(step.next) {
        Reasons::NONE
    } else {
        Reasons::UNEXPLAINED
    }
}

/// Most calls that are remembered: those of a recursion that never ends are forgotten from the outermost on.
const DEEPEST: usize = 1 << 12;

/// Where calls that were followed come back to.
#[derive(Clone, Debug, Default)]
struct Calls {
    open: std::collections::VecDeque<u64>,
    elsewhere: u64,
}

impl Calls {
    fn follow(&mut self, step: &Step, code: &Decoded) {
        if let Some(behind) = code.behind {
            if self.open.len() == DEEPEST {
                self.open.pop_front();
            }
            self.open.push_back(behind);
        } else if code.returns && !self.open.is_empty() {
            match self.place(step.next) {
                Some(place) => self.open.truncate(place),
                None => self.elsewhere += 1,
            }
        }
    }

    fn place(&self, addr: u64) -> Option<usize> {
        self.open.iter().rposition(|behind| *behind == addr)
    }

    /// A callee that ran at full speed came back to `addr`: behind the call that led to it, or behind the one whose
    /// callee jumped to it.
    fn came_back(&mut self, code: &Decoded, addr: u64) -> bool {
        match code.behind {
            Some(behind) => behind == addr,
            None => {
                let place = self.place(addr);
                self.open.truncate(place.unwrap_or(self.open.len()));
                place.is_some()
            }
        }
    }
}

fn joined(
    (form, begin): (Form, Option<u64>),
    (before, code): (&Step, &Decoded),
    (link, addr): (Link, u64),
    calls: &mut Calls,
) -> bool {
    if link == Link::Over {
        return calls.came_back(code, addr);
    }
    calls.follow(before, code);
    match link {
        Link::Flow => before.next == addr,
        Link::Back => matches!(form, Form::Region { .. }) && !form.shows(before.next),
        // Only what leads out can be followed by a call from outside.
        Link::Again => begin == Some(addr) && code.successors.fall.is_none(),
        // The scope's own code is entered by a call, direct or not.
        Link::Own | Link::Over => code.successors.fall.is_none(),
        // Told by the trace; a gap is a reason of its own.
        Link::Interrupt | Link::Gap => true,
    }
}

#[cfg(test)]
mod tests;
