//! The folded call tree: who called whom, how often, and how many instructions each ran itself. It grows step by step, so
//! that a long trace need not be held.
use std::collections::HashMap;

use crate::flow;
use crate::sink::Sink;
use crate::symbol::{Resolver, Symbol};
use crate::trace::{Code, Link, Step, Trace};

/// Lines of the tree that is printed by default.
pub const TREE_LINES: usize = 40;

/// Calls deeper than this, and callers of more callees than this in all, are counted where they come from.
const DEEPEST: usize = 512;
const MOST_NODES: usize = 1 << 20;

/// A function as called from one chain of callers.
#[derive(Debug)]
struct Node {
    name: usize,
    calls: u64,
    own: u64,
    children: Vec<usize>,
}

/// An open call.
#[derive(Debug)]
struct Open {
    node: usize,
    /// Where it returns to; `None` for the outermost.
    returns: Option<u64>,
}

/// What an instruction does to the tree.
#[derive(Clone, Copy, Debug)]
enum Move {
    Stay,
    Call { behind: u64 },
    Return,
}

/// Where a thread stands.
#[derive(Debug, Default)]
struct Cursor {
    stack: Vec<Open>,
    /// Where the call that was just made returns to.
    entered: Option<u64>,
}

/// A tree that grows.
#[derive(Debug, Default)]
pub struct Tree {
    /// The first stands for nobody: its children are the outermost functions.
    nodes: Vec<Node>,
    known: HashMap<(usize, usize), usize>,
    names: Vec<String>,
    by_name: HashMap<String, usize>,
    code: Vec<(usize, Move)>,
    threads: HashMap<u32, Cursor>,
}

/// The tree, in at most `most` lines; what was folded away is counted in the last one.
#[must_use]
pub fn tree(trace: &Trace, symbols: &mut dyn Resolver, most: usize) -> String {
    let mut tree = Tree::default();
    for code in &trace.code {
        tree.code(code, symbols.resolve(code.addr).as_ref());
    }
    for step in &trace.steps {
        tree.step(0, step);
    }
    let head = super::Head::of(trace).text();
    let room = most.saturating_sub(head.lines().count());
    head + &tree.text(room)
}

impl Sink for Tree {
    fn code(&mut self, code: &Code, symbol: Option<&Symbol>) {
        let name = symbol.map_or_else(|| format!("{:#x}", code.addr), |symbol| symbol.name.clone());
        let fresh = self.names.len();
        let at = *self.by_name.entry(name.clone()).or_insert(fresh);
        if at == fresh {
            self.names.push(name);
        }
        self.code.push((at, what(code)));
    }

    fn step(&mut self, thread: u32, step: &Step) {
        let at = usize::try_from(step.code).unwrap_or(usize::MAX);
        let Some((name, moves)) = self.code.get(at).copied() else {
            return;
        };
        let mut cursor = self.threads.remove(&thread).unwrap_or_default();
        self.follow(&mut cursor, step, name, moves);
        self.threads.insert(thread, cursor);
    }
}

impl Tree {
    fn follow(&mut self, cursor: &mut Cursor, step: &Step, name: usize, moves: Move) {
        let Cursor { stack, entered } = cursor;
        if step.link == Link::Gap {
            // Who called what goes on here is not known.
            stack.clear();
            *entered = None;
        }
        if let Some(returns) = entered.take()
            && step.link == Link::Flow
            && stack.len() < DEEPEST
        {
            let parent = stack.last().map_or(0, |open| open.node);
            let node = self.child(parent, name);
            stack.push(Open {
                node,
                returns: Some(returns),
            });
        }
        if stack.is_empty() {
            let node = self.child(0, name);
            stack.push(Open {
                node,
                returns: None,
            });
        }
        if let Some(node) = stack.last().and_then(|open| self.nodes.get_mut(open.node)) {
            node.own += u64::from(step.count);
        }
        match moves {
            Move::Call { behind } => *entered = Some(behind),
            Move::Return => {
                // A return past several frames closes them all; one that nobody waits for closes the outermost only.
                let waits = |open: &Open| open.returns == Some(step.next);
                let to = stack.iter().rposition(waits);
                let outermost = stack.len() == 1 && stack.iter().all(|open| open.returns.is_none());
                let kept = if outermost { 0 } else { stack.len() };
                stack.truncate(to.unwrap_or(kept));
            }
            Move::Stay => {}
        }
    }

    /// The child of that name, made if it is new; a call of it is counted.
    fn child(&mut self, parent: usize, name: usize) -> usize {
        if self.nodes.is_empty() {
            self.add(usize::MAX);
        }
        let at = match self.known.get(&(parent, name)) {
            Some(at) => *at,
            None if self.nodes.len() >= MOST_NODES => return parent,
            None => {
                let at = self.add(name);
                self.known.insert((parent, name), at);
                if let Some(parent) = self.nodes.get_mut(parent) {
                    parent.children.push(at);
                }
                at
            }
        };
        if let Some(node) = self.nodes.get_mut(at) {
            node.calls += 1;
        }
        at
    }

    fn add(&mut self, name: usize) -> usize {
        self.nodes.push(Node {
            name,
            calls: 0,
            own: 0,
            children: Vec::new(),
        });
        self.nodes.len() - 1
    }

    /// The tree in at most `most` lines.
    #[must_use]
    pub fn text(&self, most: usize) -> String {
        let mut rows = Vec::new();
        for outermost in self
            .nodes
            .first()
            .into_iter()
            .flat_map(|node| &node.children)
        {
            self.rows(*outermost, 0, &mut rows);
        }
        let folded = if rows.len() > most {
            rows.len() - most.saturating_sub(1)
        } else {
            0
        };
        let mut out = String::new();
        for row in rows.iter().take(rows.len() - folded) {
            out += row;
            out.push('\n');
        }
        if folded > 0 {
            out += &format!("... and {folded} more\n");
        }
        out
    }

    fn rows(&self, at: usize, depth: usize, rows: &mut Vec<String>) {
        let Some(node) = self.nodes.get(at) else {
            return;
        };
        let times = if node.calls > 1 {
            format!(" x{}", node.calls)
        } else {
            String::new()
        };
        let name = self.names.get(node.name).map_or("", String::as_str);
        let indent = 2 * depth;
        rows.push(format!("{:indent$}{name}{times}  {}", "", node.own));
        for child in &node.children {
            self.rows(*child, depth + 1, rows);
        }
    }
}

fn what(code: &Code) -> Move {
    let Some(instruction) = flow::decode(code.addr, &code.bytes) else {
        return Move::Stay;
    };
    match &instruction {
        i if flow::is_return(i) => Move::Return,
        i if flow::is_call(i) => Move::Call {
            behind: i.next_ip(),
        },
        _ => Move::Stay,
    }
}
