//! The blocks of a trace, each read once with a second decoder of instructions and judged once by the oracle, however often
//! it runs. It knows the code by images, and no flow.
use std::collections::HashMap;
use std::rc::Rc;

use super::decoder::Block;
use super::flows::Space;
use super::image::Image;
use crate::distinct::Distinct;
use crate::flow::{self, Successors};
use crate::oracle::Proof;
use crate::sink::Sink;
use crate::trace::{Code, Link, Step};

/// Most blocks that are remembered: behind them it begins anew.
const REMEMBERED: usize = 1 << 20;
/// Most instructions of theirs: a long block has very many.
const MOST_HELD: usize = 1 << 21;
/// Blocks of which the latest are found without a search.
const RECENT: usize = 1 << 12;

/// The last instruction of a block: where it went is not in the block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Last {
    /// Index among the distinct instructions.
    pub(super) code: u32,
    /// Where it goes, if it does not go where a packet says.
    pub(super) straight: Option<u64>,
}

/// A block as the second decoder reads it.
#[derive(Debug)]
pub(super) struct Read {
    /// All but the last.
    pub(super) line: Vec<Step>,
    /// Judged once.
    pub(super) proof: Proof,
    /// `None` if there is none at all.
    pub(super) last: Option<Last>,
    /// It ends where the first decoder says, after as many instructions.
    pub(super) agrees: bool,
}

type BlockKey = (u32, u64, u64, u64, u16);

/// The blocks that were read.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    all: HashMap<BlockKey, Rc<Read>>,
    /// Instructions of all of them.
    held: usize,
    recent: Vec<Option<(BlockKey, Rc<Read>)>>,
}

impl Blocks {
    /// The block, read once.
    pub(super) fn read(
        &mut self,
        space: &mut Space<'_>,
        block: &Block,
        distinct: &mut Distinct,
        sink: &mut dyn Sink,
    ) -> Rc<Read> {
        let key = (
            space.id,
            space.image.changes(),
            block.ip,
            block.end_ip,
            block.instructions,
        );
        if let Some(read) = self.get(&key) {
            return read;
        }
        let (line, last, agrees) = decode(space, block, distinct, sink);
        let read = Rc::new(Read {
            proof: Proof::of(distinct.meanings(), &line),
            line,
            last,
            agrees,
        });
        self.insert(key, &read);
        read
    }

    fn place(key: &BlockKey) -> usize {
        let (_, _, ip, end, _) = key;
        usize::try_from((ip ^ end.rotate_left(5)) % RECENT as u64).unwrap_or(0)
    }

    fn get(&mut self, key: &BlockKey) -> Option<Rc<Read>> {
        let place = Self::place(key);
        if let Some(Some((known, read))) = self.recent.get(place)
            && known == key
        {
            return Some(Rc::clone(read));
        }
        let read = Rc::clone(self.all.get(key)?);
        self.remember(*key, &read);
        Some(read)
    }

    fn insert(&mut self, key: BlockKey, read: &Rc<Read>) {
        if self.all.len() >= REMEMBERED || self.held >= MOST_HELD {
            self.all.clear();
            self.recent.clear();
            self.held = 0;
        }
        self.held += read.line.len();
        self.all.insert(key, Rc::clone(read));
        self.remember(key, read);
    }

    fn remember(&mut self, key: BlockKey, read: &Rc<Read>) {
        self.recent.resize(RECENT, None);
        if let Some(place) = self.recent.get_mut(Self::place(&key)) {
            *place = Some((key, Rc::clone(read)));
        }
    }
}

/// All instructions but the last, the last, and whether the two decoders agree.
fn decode(
    space: &mut Space<'_>,
    block: &Block,
    distinct: &mut Distinct,
    sink: &mut dyn Sink,
) -> (Vec<Step>, Option<Last>, bool) {
    let mut line = Vec::new();
    let mut last: Option<Last> = None;
    let mut addr = block.ip;
    for left in (0..block.instructions).rev() {
        let mut bytes = space.image.read(addr);
        let Some(instruction) = flow::decode(addr, &bytes) else {
            return (line, last, false);
        };
        bytes.truncate(instruction.len());
        let straight = guess(flow::successors(&instruction));
        let code = Code { addr, bytes };
        let code = distinct.learn(space.id, code, space.names, sink);
        let before = last.replace(Last { code, straight });
        line.extend(before.map(|before| before.to(addr, Link::Flow)));
        match straight.filter(|_| left > 0) {
            Some(next) => addr = next,
            None => return (line, last, left == 0 && addr == block.end_ip),
        }
    }
    (line, last, false)
}

impl Last {
    /// The step to where it went.
    pub(super) fn to(self, next: u64, link: Link) -> Step {
        Step {
            code: self.code,
            count: 1,
            next,
            link,
        }
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
