//! Go's trees of inlined calls: which instructions of a function are a copy of which other.

use rustc_hash::FxHashMap;

use super::super::elf::ElfFile;
use super::values::Stretch;
use super::{Declared, GoTable, Raw, Texts, signed, word};

/// Deepest nesting of copies that is believed.
const MAX_DEPTH: usize = 128;

/// Numbers of tables.
pub(super) const TREE_INDEX: u32 = 2;
const TREE: u32 = 3;

/// A stretch of code that is a copy of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlinedCopy {
    /// Name of the function that was copied.
    pub name: String,
    /// Where that stands in its source, if the table tells.
    pub declared: Option<Declared>,
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
}

/// One copy, as its tree has it.
#[derive(Clone, Copy, Debug)]
struct Node {
    name: u32,
    /// Distance from the function's start of an instruction at the place of the call.
    called_at: u64,
    line: Option<u32>,
}

/// All copies in all functions, those of a function by rising address, outer ones first.
pub(super) fn copies(table: &GoTable<'_>, elf: &ElfFile<'_>) -> Vec<InlinedCopy> {
    let mut copies = Copies {
        found: Vec::new(),
        texts: Texts::of(elf),
        // Eight bytes of a file for each: real ones have several times as many.
        left: elf.data.len() / 8,
    };
    for raw in &table.functions {
        if let Some(tree) = Tree::of(table, elf, raw) {
            tree.copies(&mut copies);
        }
    }
    copies.found
}

struct Copies {
    found: Vec<InlinedCopy>,
    texts: Texts,
    /// Steps that may still be taken.
    left: usize,
}

struct Tree<'a, 'd> {
    table: &'a GoTable<'d>,
    raw: &'a Raw,
    nodes: &'a [u8],
    /// Which node each instruction belongs to, the innermost one.
    innermost: Vec<Stretch>,
    files: Vec<Stretch>,
}

impl<'a, 'd> Tree<'a, 'd> {
    fn of(table: &'a GoTable<'d>, elf: &ElfFile<'a>, raw: &'a Raw) -> Option<Self> {
        let innermost = table.value_table(raw, TREE_INDEX)?;
        let nodes = table
            .function_data?
            .checked_add(table.function_datum(raw, TREE)?.into())?;
        Some(Self {
            table,
            raw,
            nodes: elf.bytes_from(nodes)?,
            innermost: table.stretches(raw, innermost).collect(),
            files: table.stretches(raw, raw.files).collect(),
        })
    }

    fn copies(&self, copies: &mut Copies) {
        // By node: its last stretch, and where an instruction of its own stands.
        let mut open: FxHashMap<u32, usize> = FxHashMap::default();
        let mut own: FxHashMap<u32, u64> = FxHashMap::default();
        for stretch in &self.innermost {
            if let Ok(index) = u32::try_from(stretch.value) {
                own.entry(index).or_insert(stretch.start);
            }
        }
        for stretch in &self.innermost {
            let path = self.path(stretch);
            let (start, end) = self.addresses(stretch);
            for (index, node) in path.into_iter().rev() {
                let Some(left) = copies.left.checked_sub(1) else {
                    return;
                };
                copies.left = left;
                let last = open.get(&index).and_then(|at| copies.found.get_mut(*at));
                if let Some(copy) = last.filter(|copy| copy.end == start) {
                    copy.end = end;
                } else if let Some(copy) = self.copy(node, own.get(&index), &mut copies.texts) {
                    open.insert(index, copies.found.len());
                    copies.found.push(InlinedCopy { start, end, ..copy });
                }
            }
        }
    }

    /// The copies that a stretch lies in, the innermost first.
    fn path(&self, stretch: &Stretch) -> Vec<(u32, Node)> {
        let mut path = Vec::new();
        let mut next = u32::try_from(stretch.value).ok();
        while let Some(index) = next.filter(|_| path.len() < MAX_DEPTH) {
            let Some(node) = self.node(index) else { break };
            path.push((index, node));
            next = at(&self.innermost, node.called_at);
        }
        path
    }

    fn copy(&self, node: Node, own: Option<&u64>, texts: &mut Texts) -> Option<InlinedCopy> {
        let name = self.table.name(node.name, texts)?;
        // A copy without an instruction of its own does not tell its file.
        let declared = node.line.zip(own).and_then(|(line, own)| {
            let number = at(&self.files, *own)?;
            let file = self.table.file(self.raw, number, texts)?;
            Some(Declared { file, line })
        });
        Some(InlinedCopy {
            name: name.to_owned(),
            declared,
            start: 0,
            end: 0,
        })
    }

    fn addresses(&self, stretch: &Stretch) -> (u64, u64) {
        let of = |distance: u64| self.raw.start.saturating_add(distance).min(self.raw.end);
        (of(stretch.start), of(stretch.end))
    }

    /// 1.18: two numbers, kind, file, line, name, place of the call. 1.20: kind, name, place of the call, line of the start.
    fn node(&self, index: u32) -> Option<Node> {
        let size = if self.table.is_old { 20 } else { 16 };
        let at = usize::try_from(index).ok()?.checked_mul(size)?;
        let bytes = self.nodes.get(at..at.checked_add(size)?)?;
        let distance = |at| u64::try_from(signed(bytes, at)?).ok();
        Some(if self.table.is_old {
            Node {
                name: word(bytes, 12)?,
                called_at: distance(16)?,
                line: None,
            }
        } else {
            Node {
                name: word(bytes, 4)?,
                called_at: distance(8)?,
                line: word(bytes, 12).filter(|&line| line > 0),
            }
        })
    }
}

/// The value at a distance from the function's start, if there is one that is not negative.
fn at(stretches: &[Stretch], distance: u64) -> Option<u32> {
    let index = stretches.partition_point(|it| it.end <= distance);
    let stretch = stretches.get(index)?;
    u32::try_from(stretch.value)
        .ok()
        .filter(|_| stretch.start <= distance)
}
