//! Copies of blocks: decoded once, written to an arena with a stub that logs the block, and joined to each other as the
//! thread meets their ends. Runs in the handler: all room was taken before, nothing here allocates.
use super::super::memory as process;
use super::make::Maker;
use super::may::Range;
use super::memory::{Arena, CODE, Memory, slot};
use super::table::Table;
use super::write::{Gap, Writer};

/// Most blocks of one scope.
const BLOCKS: usize = 1 << 14;
const LINES: usize = 1 << 17;
const EXITS: usize = 1 << 15;
/// Most instructions of a block.
pub(super) const LONGEST_BLOCK: usize = 40;
/// Bytes that one block may need at most, stubs and all.
const BLOCK_ROOM: u64 = 2048;

/// One instruction of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) addr: u64,
    pub(super) len: u8,
    pub(super) bytes: [u8; 15],
    /// Where its copy can fault with all registers as they are.
    pub(super) plain: u64,
    /// Where it can fault with rax in its slot.
    pub(super) saved: u64,
}

/// A block of the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) addr: u64,
    pub(super) copy: u64,
    /// The store of its number.
    pub(super) store: u64,
    pub(super) first: usize,
    pub(super) len: usize,
    /// One string instruction: rcx before and behind it follow in the log.
    pub(super) repeated: bool,
}

/// A breakpoint at an end of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exit {
    /// Its breakpoint.
    pub(super) at: u64,
    pub(super) target: u64,
    pub(super) gap: Option<Gap>,
}

/// All copies of one scope.
#[derive(Debug)]
pub(super) struct Blocks {
    pub(super) memory: Memory,
    pub(super) table: Table,
    ranges: Vec<Range>,
    blocks: Vec<Block>,
    lines: Vec<Line>,
    exits: Vec<Exit>,
    /// Nothing is copied any more.
    pub(super) off: bool,
}

impl Blocks {
    pub(super) fn new(ranges: Vec<Range>) -> Option<Self> {
        let mut memory = Memory::near(&ranges)?;
        let table = Table::new()?;
        memory.set(slot::TABLE, table.near());
        for arena in &mut memory.arenas {
            let mut writer = Writer::new(arena);
            writer.dispatcher();
            if !writer.keep() {
                return None;
            }
            arena.fixed = arena.len;
        }
        Some(Self {
            memory,
            table,
            ranges,
            blocks: Vec::with_capacity(BLOCKS),
            lines: Vec::with_capacity(LINES),
            exits: Vec::with_capacity(EXITS),
            off: false,
        })
    }

    /// Forgets all copies: code may have changed since the last scope. `false` if these arenas do not reach the ranges.
    pub(super) fn renew(&mut self, ranges: Vec<Range>) -> bool {
        let near = |range: &Range| self.memory.arenas.iter().any(|arena| arena.is_near(*range));
        if !ranges.iter().all(near) {
            return false;
        }
        for arena in &mut self.memory.arenas {
            arena.len = arena.fixed;
        }
        self.table.clear();
        self.ranges = ranges;
        self.blocks.clear();
        self.lines.clear();
        self.exits.clear();
        self.off = false;
        true
    }

    pub(super) fn get(&self, block: usize) -> Option<&Block> {
        self.blocks.get(block)
    }

    pub(super) fn lines(&self, block: &Block) -> &[Line] {
        let end = block.first + block.len;
        self.lines.get(block.first..end).unwrap_or_default()
    }

    pub(super) fn all(&self) -> &[Block] {
        &self.blocks
    }

    /// Whether the code is still what was copied.
    pub(super) fn are_true(&self) -> bool {
        self.blocks.iter().all(|block| {
            let lines = self.lines(block);
            let mut code = [0; LONGEST_BLOCK * 15];
            let len = lines.iter().map(|line| usize::from(line.len)).sum();
            let code = code.get_mut(..len).unwrap_or_default();
            let whole = process::read(block.addr, code) == len;
            let copied = lines
                .iter()
                .flat_map(|line| line.bytes.iter().take(usize::from(line.len)));
            whole && copied.eq(code.iter())
        })
    }

    /// Whether an address is in a copy.
    pub(super) fn holds(&self, addr: u64) -> bool {
        self.memory.arenas.iter().any(|arena| arena.holds(addr))
    }

    /// Whether a range is of code that may have a copy.
    pub(super) fn touch(&self, start: u64, len: u64) -> bool {
        let end = start.saturating_add(len);
        let touches = |range: &&Range| range.0 < end && start < range.1;
        self.ranges.iter().any(|range| touches(&range))
    }

    /// Where the thread would be without copies, behind the breakpoint at `addr`, and the exit to be joined.
    pub(super) fn left(&self, addr: u64) -> Option<(u64, Option<usize>)> {
        let whole = |arena: &&Arena| arena.holds(addr) && arena.holds(addr.wrapping_add(4));
        let arena = self.memory.arenas.iter().find(whole)?;
        if arena.miss == addr {
            return Some((self.memory.get(slot::TARGET), None));
        }
        let at = arena.write + (addr - arena.run) + 1;
        // SAFETY: four bytes within the arena. Behind each other breakpoint stands the number of its exit, which says where it is.
        let number = unsafe { (at as *const u32).read_unaligned() };
        let number = usize::try_from(number).ok()?;
        let exit = self.exits.get(number).filter(|exit| exit.at == addr)?;
        Some((exit.target, Some(number)))
    }

    /// Lets the exit lead to a copy from now on; a target of indirect branches is found by them.
    pub(super) fn join(&self, exit: Option<usize>, addr: u64, copy: u64) {
        match exit.and_then(|exit| self.exits.get(exit)) {
            Some(Exit { gap: Some(gap), .. }) => {
                gap.lead_to(copy);
            }
            Some(_) => {}
            None => self.table.lead(addr, copy),
        }
    }

    /// The copy of the block at `addr`, made if there is none. `confined`: calls that leave this range are stepped.
    pub(super) fn copy(&mut self, addr: u64, confined: Option<Range>) -> Option<u64> {
        if self.off {
            return None;
        }
        if let Some(block) = self.table.find(addr) {
            return self.blocks.get(block).map(|block| block.copy);
        }
        if confined.is_some_and(|(start, end)| !(start..end).contains(&addr)) {
            return None;
        }
        self.make(addr, confined)
    }

    fn make(&mut self, addr: u64, confined: Option<Range>) -> Option<u64> {
        let range = self
            .ranges
            .iter()
            .find(|(start, end)| (*start..*end).contains(&addr))?;
        let room = self.blocks.len() < BLOCKS
            && self.lines.len() + LONGEST_BLOCK < LINES
            && self.exits.len() + 4 < EXITS;
        let arena = self
            .memory
            .arenas
            .iter_mut()
            .find(|arena| arena.is_near((addr, addr)) && arena.len + BLOCK_ROOM < CODE);
        let arena = arena.filter(|_| room)?;
        let mut code = [0; 256];
        let most = usize::try_from(range.1 - addr).map_or(code.len(), |len| len.min(code.len()));
        let got = process::read(addr, code.get_mut(..most)?);
        let number = self.blocks.len();
        let (lines, exits) = (self.lines.len(), self.exits.len());
        let mut maker = Maker {
            writer: Writer::new(arena),
            lines: &mut self.lines,
            exits: &mut self.exits,
            known: (&self.table, &self.blocks),
            confined,
            off: &mut self.off,
        };
        let made = maker.block(addr, code.get(..got)?, u32::try_from(number).ok()?);
        let kept = made.filter(|_| maker.writer.keep());
        let Some((copy, store, repeated)) = kept else {
            self.lines.truncate(lines);
            self.exits.truncate(exits);
            return None;
        };
        self.blocks.push(Block {
            addr,
            copy,
            store,
            first: lines,
            len: self.lines.len() - lines,
            repeated,
        });
        self.table.note(addr, number);
        self.table.lead(addr, copy);
        Some(copy)
    }
}
