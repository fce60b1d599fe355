//! What takes the steps of a trace as they come, so that a long one need not be held: the traces of recordings can be
//! larger than memory.
use crate::symbol::Symbol;
use crate::trace::{Code, Step};

/// Takes a trace.
pub trait Sink {
    /// A distinct instruction: once, before its first step. Its index is how many came before it.
    fn code(&mut self, code: &Code, symbol: Option<&Symbol>);

    /// The next instruction that ran on `thread`.
    fn step(&mut self, thread: u32, step: &Step);

    /// The next instructions that ran on `thread`, one after the other.
    fn steps(&mut self, thread: u32, steps: &[Step]) {
        for step in steps {
            self.step(thread, step);
        }
    }
}

/// Keeps everything.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// The distinct instructions.
    pub code: Vec<Code>,
    /// The steps.
    pub steps: Vec<Step>,
}

impl Sink for Kept {
    fn code(&mut self, code: &Code, _symbol: Option<&Symbol>) {
        self.code.push(code.clone());
    }

    fn step(&mut self, _thread: u32, step: &Step) {
        self.steps.push(*step);
    }

    fn steps(&mut self, _thread: u32, steps: &[Step]) {
        self.steps.extend_from_slice(steps);
    }
}
