//! Blocks and events become the steps of threads: each block is read again with a second decoder of instructions, joined
//! to what came before, and judged by the oracle. It knows the code by images, and nothing of packets.
use std::collections::HashMap;
use std::rc::Rc;

use super::decoder::{Block, Event};
use super::image::Image;
use crate::distinct::Distinct;
use crate::flow::{self, Successors};
use crate::oracle::Judge;
use crate::sink::Sink;
use crate::symbol::Resolver;
use crate::trace::{Code, Fact, Form, Link, Reasons, Step};

/// Most blocks that are remembered: behind them it begins anew.
const REMEMBERED: usize = 1 << 20;

/// One instruction of a block.
#[derive(Clone, Copy, Debug)]
struct Placed {
    /// Index among the distinct instructions.
    code: u32,
    /// Where the block says that it goes on; of the last one the next block tells it.
    next: Option<u64>,
    successors: Successors,
}

/// A block as the second decoder reads it.
#[derive(Debug)]
struct Read {
    instructions: Vec<Placed>,
    /// It ends where the first decoder says, after as many instructions.
    agrees: bool,
}

type BlockKey = (u32, u64, u64, u64, u16);

/// One thread's flow.
#[derive(Debug)]
struct Flow {
    judge: Judge,
    begin: Option<u64>,
    /// The last instruction, as long as it is not known where it went.
    waiting: Option<(Placed, Link)>,
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
    /// The first address that ran and has no bytes.
    pub no_code: Option<u64>,
}

/// Puts flows together.
pub struct Flows<'s> {
    sink: &'s mut dyn Sink,
    distinct: Distinct,
    blocks: HashMap<BlockKey, Rc<Read>>,
    flows: HashMap<u32, Flow>,
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
            blocks: HashMap::new(),
            flows: HashMap::new(),
            thread: 0,
            muted: false,
            reasons: Reasons::NONE,
            no_code: None,
        }
    }

    /// What follows is of this thread.
    pub fn switch(&mut self, thread: u32) {
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
        let read = self.read(space, block);
        if !read.agrees {
            self.doubt(Reasons::DECODE);
        }
        let Some(first) = read.instructions.first() else {
            return;
        };
        self.arrive(block.ip);
        let flow = self.flows.entry(self.thread).or_insert_with(Flow::new);
        flow.on = true;
        let mut link = std::mem::replace(&mut flow.link, Link::Flow);
        let mut placed = *first;
        for next in read.instructions.iter().skip(1) {
            let went = placed.next.unwrap_or_default();
            self.step(placed, went, link);
            link = Link::Flow;
            placed = *next;
        }
        if let Some(flow) = self.flows.get_mut(&self.thread) {
            flow.waiting = Some((placed, link));
        }
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
                self.flow().on = false;
            }
            Event::Interrupted { at } => {
                self.leave(Some(at));
                let flow = self.flow();
                flow.on = false;
                flow.resume = Some(at);
            }
            Event::Branched { from, .. } => {
                self.leave(Some(from));
                self.flow().link = Link::Interrupt;
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
        let flow = self.flow();
        flow.on = false;
        if flow.begin.is_some() {
            flow.link = Link::Gap;
        }
    }

    /// There were no bytes behind the last block.
    pub fn no_code(&mut self) {
        if self.muted {
            // What is skipped now may hold the beginning of what is wanted.
            return self.doubt(Reasons::NO_SYNC);
        }
        if self.no_code.is_none() {
            let flow = self.flow();
            // Where an indirect branch went stands in packets that were used up.
            self.no_code = match flow.waiting {
                Some((placed, _)) => guess(placed.successors),
                None => flow.resume,
            };
        }
        self.gap(Reasons::NO_CODE);
    }

    /// Ends all flows.
    #[must_use]
    pub fn finish(mut self) -> Summary {
        let mut threads: Vec<u32> = self.flows.keys().copied().collect();
        threads.sort_unstable();
        let mut summary = Summary {
            distinct: self.distinct.len(),
            no_code: self.no_code,
            ..Summary::default()
        };
        let mut elsewhere = 0;
        for thread in threads {
            self.thread = thread;
            if self.flow().on {
                self.doubt(Reasons::OPEN_END);
            }
            self.leave(None);
            let flow = self.flow();
            let (begin, end, counted) = (flow.begin, flow.resume, flow.counted);
            if counted == 0 {
                continue;
            }
            let verdict = flow.judge.verdict(begin, end, counted);
            elsewhere += flow.judge.returns_elsewhere();
            self.doubt(verdict);
            summary.threads += 1;
            summary.instructions += counted;
            summary.ends = begin.zip(end).filter(|_| summary.threads == 1);
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

    fn flow(&mut self) -> &mut Flow {
        self.flows.entry(self.thread).or_insert_with(Flow::new)
    }

    fn enabled(&mut self, ip: u64, status: bool) {
        let flow = self.flow();
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
        self.flow().on = true;
    }

    /// The instruction that waits went to `addr`.
    fn arrive(&mut self, addr: u64) {
        let flow = self.flow();
        flow.begin.get_or_insert(addr);
        if flow.waiting.is_some() {
            self.leave(Some(addr));
        }
    }

    /// The instruction that waits went to `to`; where that is not told, to where it can go.
    fn leave(&mut self, to: Option<u64>) {
        let flow = self.flow();
        if let Some((placed, link)) = flow.waiting.take() {
            let next = to.or_else(|| guess(placed.successors));
            flow.resume = next;
            if next.is_none() {
                self.doubt(Reasons::OPEN_END);
            }
            self.step(placed, next.unwrap_or_default(), link);
            self.flow().resume = Some(next.unwrap_or_default());
        }
    }

    fn step(&mut self, placed: Placed, next: u64, link: Link) {
        let step = Step {
            code: placed.code,
            count: 1,
            next,
            link,
        };
        let flow = self.flows.entry(self.thread).or_insert_with(Flow::new);
        flow.judge.step(self.distinct.meanings(), &step);
        flow.counted += 1;
        self.sink.step(self.thread, &step);
    }

    fn read(&mut self, space: &mut Space<'_>, block: &Block) -> Rc<Read> {
        let key = (
            space.id,
            space.image.changes(),
            block.ip,
            block.end_ip,
            block.instructions,
        );
        if let Some(read) = self.blocks.get(&key) {
            return Rc::clone(read);
        }
        let read = Rc::new(self.decode(space, block));
        if self.blocks.len() >= REMEMBERED {
            self.blocks.clear();
        }
        self.blocks.insert(key, Rc::clone(&read));
        read
    }

    fn decode(&mut self, space: &mut Space<'_>, block: &Block) -> Read {
        let mut read = Read {
            instructions: Vec::new(),
            agrees: false,
        };
        let mut addr = block.ip;
        for left in (0..block.instructions).rev() {
            let mut bytes = space.image.read(addr);
            let Some(instruction) = flow::decode(addr, &bytes) else {
                return read;
            };
            bytes.truncate(instruction.len());
            let successors = flow::successors(&instruction);
            let next = guess(successors).filter(|_| left > 0);
            let code = Code { addr, bytes };
            let code = self.distinct.learn(space.id, code, space.names, self.sink);
            read.instructions.push(Placed {
                code,
                next,
                successors,
            });
            match next {
                Some(next) => addr = next,
                None => {
                    read.agrees = left == 0 && addr == block.end_ip;
                    return read;
                }
            }
        }
        read
    }
}

/// Where a straight line goes on: behind the instruction, or where a direct jump leads.
fn guess(successors: Successors) -> Option<u64> {
    successors.fall.or(successors.target)
}

/// The instructions of a block by address, with whether each needs a packet to go on.
pub(super) fn addresses(image: &Image, block: &Block) -> Vec<(u64, bool)> {
    let mut all = Vec::new();
    let mut addr = block.ip;
    for _ in 0..block.instructions {
        let Some(instruction) = flow::decode(addr, &image.read(addr)) else {
            break;
        };
        let successors = flow::successors(&instruction);
        let straight = !successors.anywhere
            && !flow::is_system_call(&instruction)
            && successors.fall.is_some() != successors.target.is_some();
        all.push((addr, !straight));
        match guess(successors) {
            Some(next) => addr = next,
            None => break,
        }
    }
    all
}
