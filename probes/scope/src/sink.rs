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

/// Keeps the first steps.
#[derive(Clone, Debug)]
pub(crate) struct Limited {
    kept: Kept,
    most: usize,
    cut: bool,
}

impl Limited {
    /// Keeps at most so many steps.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            kept: Kept::default(),
            most,
            cut: false,
        }
    }

    /// What was kept, and whether there were more.
    pub(crate) fn finish(self) -> (Kept, bool) {
        (self.kept, self.cut)
    }
}

impl Sink for Limited {
    fn code(&mut self, code: &Code, symbol: Option<&Symbol>) {
        // Indexes of later instructions are not asked for any more.
        if !self.cut {
            self.kept.code(code, symbol);
        }
    }

    fn step(&mut self, thread: u32, step: &Step) {
        self.cut |= self.kept.steps.len() >= self.most;
        if !self.cut {
            self.kept.step(thread, step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Link;

    #[test]
    fn more_steps_than_are_kept_are_told() {
        let step = Step {
            code: 0,
            count: 1,
            next: 0,
            link: Link::Flow,
        };
        for (ran, cut) in [(2, false), (3, false), (4, true)] {
            let mut limited = Limited::new(3);
            limited.steps(0, &vec![step; ran]);
            let (kept, was_cut) = limited.finish();
            assert_eq!((kept.steps.len(), was_cut), (ran.min(3), cut));
        }
    }
}
