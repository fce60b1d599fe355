//! Blocks and events become the steps of threads: each block is joined to what came before, and judged by the oracle. It
//! knows the code by images, and nothing of packets.
use std::collections::HashMap;
use std::rc::Rc;

use super::blocks::{Blocks, Last};
use super::decoder::{Block, Event};
use super::image::Image;
use crate::distinct::Distinct;
use crate::oracle::Judge;
use crate::sink::Sink;
use crate::symbol::Resolver;
use crate::trace::{Fact, Form, Link, Reasons, Step};

/// One thread's flow.
#[derive(Debug)]
struct Flow {
    judge: Judge,
    begin: Option<u64>,
    /// The last instruction, as long as it is not known where it went.
    waiting: Option<(Last, Link)>,
    /// Where it would go on.
    resume: Option<u64>,
    on: bool,
    link: Link,
    counted: u64,
}

impl Flow {
    fn new() -> Self {
        Self {
            judge: Judge::new(Form::Window),
            begin: None,
            waiting: None,
            resume: None,
            on: false,
            link: Link::Flow,
            counted: 0,
        }
    }
}

/// The code and the names of one address space.
pub struct Space<'a> {
    /// A number of its own.
    pub id: u32,
    /// Its code.
    pub image: &'a Rc<Image>,
    /// Its names.
    pub names: &'a mut dyn Resolver,
}

/// What came out in the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Instructions, of all threads.
    pub instructions: u64,
    /// Distinct ones.
    pub distinct: usize,
    /// Threads that ran any.
    pub threads: usize,
    /// What is missing.
    pub reasons: Reasons,
    /// What was checked.
    pub verified: Vec<Fact>,
    /// What was not, and is taken for granted.
    pub assumed: Vec<Fact>,
    /// Where the flow began and would have gone on, if it is of one thread.
    pub ends: Option<(u64, u64)>,
    /// The sum over its steps, if it is of one thread.
    pub seal: Option<u64>,
    /// The first address that ran and has no bytes.
    pub no_code: Option<u64>,
}

/// Puts flows together.
pub struct Flows<'s> {
    sink: &'s mut dyn Sink,
    distinct: Distinct,
    blocks: Blocks,
    /// Of the threads that do not run now.
    flows: HashMap<u32, Flow>,
    flow: Flow,
    thread: u32,
    muted: bool,
    reasons: Reasons,
    no_code: Option<u64>,
}

impl std::fmt::Debug for Flows<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flows")
            .field("flows", &self.flows)
            .finish_non_exhaustive()
    }
}

impl<'s> Flows<'s> {
    /// Gives the steps to `sink`.
    pub fn new(sink: &'s mut dyn Sink) -> Self {
        Self {
            sink,
            distinct: Distinct::default(),
            blocks: Blocks::default(),
            flows: HashMap::new(),
            flow: Flow::new(),
            thread: 0,
            muted: false,
            reasons: Reasons::NONE,
            no_code: None,
        }
    }

    /// What follows is of this thread.
    pub fn switch(&mut self, thread: u32) {
        if thread == self.thread {
            return;
        }
        let flow = self.flows.remove(&thread).unwrap_or_else(Flow::new);
        let before = std::mem::replace(&mut self.flow, flow);
        self.flows.insert(self.thread, before);
        self.thread = thread;
    }

    /// Whether what follows is of no interest: it is left out.
    pub fn mute(&mut self, muted: bool) {
        self.muted = muted;
    }

    /// Something is missing that is not between two steps.
    pub fn doubt(&mut self, reasons: Reasons) {
        self.reasons = self.reasons.with(reasons);
    }

    /// The next block.
    pub fn block(&mut self, space: &mut Space<'_>, block: &Block) {
        if self.muted {
            return;
        }
        let read = self
            .blocks
            .read(space, block, &mut self.distinct, self.sink);
        if !read.agrees {
            self.doubt(Reasons::DECODE);
        }
        let Some(last) = read.last else {
            return;
        };
        self.arrive(block.ip);
        self.flow.on = true;
        let mut link = std::mem::replace(&mut self.flow.link, Link::Flow);
        if link == Link::Flow {
            let meanings = self.distinct.meanings();
            self.flow.judge.proven(meanings, &read.proof);
            self.flow.counted += read.line.len() as u64;
            self.sink.steps(self.thread, &read.line);
        } else {
            for step in &read.line {
                self.step(&Step { link, ..*step });
                link = Link::Flow;
            }
        }
        self.flow.waiting = Some((last, link));
        if block.speculative {
            self.doubt(Reasons::UNEXPLAINED);
        }
    }

    /// The next event.
    pub fn event(&mut self, event: Event) {
        match event {
            // Packets of any thread may have been dropped.
            Event::Overflow if self.muted => self.doubt(Reasons::OVERFLOW),
            _ if self.muted => {}
            Event::Enabled { ip, status } => self.enabled(ip, status),
            Event::Disabled { to } => {
                self.leave(to);
                self.flow.on = false;
            }
            Event::Interrupted { at } => {
                self.leave(Some(at));
                self.flow.on = false;
                self.flow.resume = Some(at);
            }
            Event::Branched { from, .. } => {
                self.leave(Some(from));
                self.flow.link = Link::Interrupt;
            }
            Event::Overflow => self.gap(Reasons::OVERFLOW),
            Event::Aborted => self.doubt(Reasons::UNEXPLAINED),
            Event::Other => {}
        }
    }

    /// The flow cannot be followed further, or was not recorded.
    pub fn gap(&mut self, reasons: Reasons) {
        self.doubt(reasons);
        if self.muted {
            return;
        }
        self.leave(None);
        self.flow.on = false;
        if self.flow.begin.is_some() {
            self.flow.link = Link::Gap;
        }
    }

    /// There were no bytes behind the last block.
    pub fn no_code(&mut self) {
        if self.muted {
            // What is skipped now may hold the beginning of what is wanted.
            return self.doubt(Reasons::NO_SYNC);
        }
        if self.no_code.is_none() {
            // Where an indirect branch went stands in packets that were used up.
            self.no_code = match self.flow.waiting {
                Some((last, _)) => last.straight,
                None => self.flow.resume,
            };
        }
        self.gap(Reasons::NO_CODE);
    }

    /// Ends all flows.
    #[must_use]
    pub fn finish(mut self) -> Summary {
        let mut threads: Vec<u32> = self.flows.keys().copied().collect();
        threads.push(self.thread);
        threads.sort_unstable();
        let mut summary = Summary {
            distinct: self.distinct.len(),
            no_code: self.no_code,
            ..Summary::default()
        };
        let mut elsewhere = 0;
        for thread in threads {
            self.switch(thread);
            if self.flow.on {
                self.doubt(Reasons::OPEN_END);
            }
            self.leave(None);
            let flow = &self.flow;
            let (begin, end, counted) = (flow.begin, flow.resume, flow.counted);
            if counted == 0 {
                continue;
            }
            let verdict = flow.judge.verdict(begin, end, counted);
            let seal = flow.judge.seal();
            elsewhere += flow.judge.returns_elsewhere();
            self.doubt(verdict);
            summary.threads += 1;
            summary.instructions += counted;
            summary.ends = begin.zip(end).filter(|_| summary.threads == 1);
            summary.seal = Some(seal).filter(|_| summary.threads == 1);
        }
        summary.reasons = self.reasons;
        if !self.reasons.contains(Reasons::UNEXPLAINED) {
            summary.verified.push(Fact::SuccessorsAllowed);
        }
        if !self.reasons.contains(Reasons::DECODE) {
            summary.verified.push(Fact::BlocksAgree);
        }
        if elsewhere == 0 {
            summary.verified.push(Fact::ReturnsAnswerCalls);
        } else {
            summary.assumed.push(Fact::ReturnsElsewhere);
        }
        summary
            .assumed
            .extend([Fact::SignalHandlersExcluded, Fact::CodeAsGiven]);
        summary
    }

    fn enabled(&mut self, ip: u64, status: bool) {
        let flow = &mut self.flow;
        if flow.begin.is_none() {
            flow.begin = Some(ip);
            flow.resume = Some(ip);
            if status {
                self.doubt(Reasons::OPEN_END);
            }
        } else if status && !flow.on && flow.link == Link::Flow {
            // Tracing had begun again, and the packet that says so is not there.
            self.gap(Reasons::NO_SYNC);
        }
        self.flow.on = true;
    }

    /// The instruction that waits went to `addr`.
    fn arrive(&mut self, addr: u64) {
        self.flow.begin.get_or_insert(addr);
        self.leave(Some(addr));
    }

    /// The instruction that waits went to `to`; where that is not told, to where it can go.
    fn leave(&mut self, to: Option<u64>) {
        if let Some((last, link)) = self.flow.waiting.take() {
            let next = to.or(last.straight);
            if next.is_none() {
                self.doubt(Reasons::OPEN_END);
            }
            let step = last.to(next.unwrap_or_default(), link);
            self.step(&step);
            self.flow.resume = Some(step.next);
        }
    }

    fn step(&mut self, step: &Step) {
        self.flow.judge.step(self.distinct.meanings(), step);
        self.flow.counted += 1;
        self.sink.step(self.thread, step);
    }
}
