//! Last branch records: a processor's memory of the last taken branches, sampled. Between two of them the code ran in a
//! straight line, so that each sample is a short run of real instructions; what ran between samples is not known, and
//! runs are never joined. It knows nothing of files or of perf.
pub mod live;

use crate::distinct::Distinct;
use crate::flow;
use crate::oracle::Judge;
use crate::pt::{Space, Summary};
use crate::sink::Sink;
use crate::trace::{Code, Fact, Form, Link, Reasons, Step};

/// Longest straight line between two branches, in instructions: what claims more is wrong.
const LONGEST_LINE: usize = 1 << 14;

/// Whether the processor knows that a branch was really taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speculation {
    /// It does not tell.
    #[default]
    Unknown,
    /// Taken in vain: it did not happen.
    WrongPath,
    /// Not taken ahead of time, and right.
    NotSpeculated,
    /// Taken ahead of time, and right.
    RightPath,
}

/// One taken branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Branch {
    /// The branch.
    pub from: u64,
    /// Where it went.
    pub to: u64,
    /// As the kernel packs them: predictions, transactions, cycles, type, speculation.
    pub flags: u64,
}

impl Branch {
    /// Whether the record was never written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.from == 0 && self.to == 0
    }

    /// What the processor knows of it.
    #[must_use]
    pub fn speculation(&self) -> Speculation {
        match self.flags >> 24 & 3 {
            1 => Speculation::WrongPath,
            2 => Speculation::NotSpeculated,
            3 => Speculation::RightPath,
            _ => Speculation::Unknown,
        }
    }

    /// Whether it is the abort of a transaction.
    #[must_use]
    pub fn aborts(&self) -> bool {
        self.flags & 1 << 3 != 0
    }
}

/// What a survey comes to beside its steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Samples.
    pub samples: u64,
    /// Branches of them that were written.
    pub branches: u64,
    /// Records that were never written.
    pub empty: u64,
    /// Branches that did not happen.
    pub wrong_path: u64,
}

/// Makes runs of samples.
pub struct Runs<'s> {
    sink: &'s mut dyn Sink,
    distinct: Distinct,
    judge: Option<Judge>,
    counts: Counts,
    counted: u64,
    reasons: Reasons,
    no_code: Option<u64>,
}

impl std::fmt::Debug for Runs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runs")
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl<'s> Runs<'s> {
    /// Gives the steps to `sink`.
    pub fn new(sink: &'s mut dyn Sink) -> Self {
        Self {
            sink,
            distinct: Distinct::default(),
            judge: None,
            counts: Counts::default(),
            counted: 0,
            reasons: Reasons::SAMPLED,
            no_code: None,
        }
    }

    /// The branches of one sample, the newest first, as the kernel gives them.
    pub fn sample(&mut self, thread: u32, space: &mut Space<'_>, stack: &[Branch]) {
        self.counts.samples += 1;
        self.judge = None;
        let mut reached: Option<u64> = None;
        for branch in stack.iter().rev() {
            if branch.is_empty() {
                self.counts.empty += 1;
                reached = None;
                continue;
            }
            self.counts.branches += 1;
            if branch.speculation() == Speculation::WrongPath {
                self.counts.wrong_path += 1;
                continue;
            }
            let start = reached.unwrap_or(branch.from);
            let whole = self.line(thread, space, start, branch);
            reached = (whole && !branch.aborts()).then_some(branch.to);
        }
    }

    /// The straight line from `start` to the branch; whether it is whole.
    fn line(&mut self, thread: u32, space: &mut Space<'_>, start: u64, branch: &Branch) -> bool {
        let mut line = Vec::new();
        let mut addr = start;
        loop {
            let mut bytes = space.image.read(addr);
            let Some(instruction) = flow::decode(addr, &bytes) else {
                self.no_code.get_or_insert(addr);
                self.reasons = self.reasons.with(Reasons::NO_CODE);
                break;
            };
            bytes.truncate(instruction.len());
            let code = Code { addr, bytes };
            let code = self.distinct.learn(space.id, code, space.names, self.sink);
            if addr == branch.from {
                line.push((code, branch.to));
                self.emit(thread, &line);
                return true;
            }
            let falls = flow::successors(&instruction).fall;
            let Some(next) = falls.filter(|_| line.len() < LONGEST_LINE) else {
                // A jump stands in the way: this branch does not belong behind the one before it.
                self.reasons = self.reasons.with(Reasons::UNEXPLAINED);
                break;
            };
            line.push((code, next));
            addr = next;
        }
        self.judge = None;
        false
    }

    fn emit(&mut self, thread: u32, line: &[(u32, u64)]) {
        for (code, next) in line {
            let fresh = self.judge.is_none();
            let judge = self.judge.get_or_insert_with(|| Judge::new(Form::Window));
            let step = Step {
                code: *code,
                count: 1,
                next: *next,
                link: if fresh { Link::Gap } else { Link::Flow },
            };
            judge.step(self.distinct.meanings(), &step);
            self.counted += 1;
            self.sink.step(thread, &step);
        }
        if let Some(judge) = &self.judge {
            self.reasons = self.reasons.with(judge.doubts());
        }
    }

    /// Something is missing that is not in a sample.
    pub fn doubt(&mut self, reasons: Reasons) {
        self.reasons = self.reasons.with(reasons);
    }

    /// How many samples and branches there were.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Ends the survey.
    #[must_use]
    pub fn finish(self) -> Summary {
        Summary {
            instructions: self.counted,
            distinct: self.distinct.len(),
            threads: usize::from(self.counted > 0),
            reasons: self.reasons,
            verified: vec![Fact::SuccessorsAllowed],
            assumed: vec![Fact::SignalHandlersExcluded, Fact::CodeAsGiven],
            ends: None,
            seal: None,
            no_code: self.no_code,
        }
    }
}
