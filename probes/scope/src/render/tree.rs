//! The folded call tree: who called whom, how often, and how many instructions each ran itself.
use super::head;
use crate::flow;
use crate::symbol::Resolver;
use crate::trace::{Link, Trace};

/// Lines of the tree that is printed by default.
pub const TREE_LINES: usize = 40;

/// A function as called from one chain of callers.
#[derive(Debug)]
struct Node {
    name: String,
    calls: u64,
    own: u64,
    children: Vec<usize>,
}

/// An open call.
struct Open {
    node: usize,
    /// Where it returns to; `None` for the outermost.
    returns: Option<u64>,
}

/// What an instruction does to the tree.
#[derive(Clone, Copy)]
enum Move {
    Stay,
    Call { behind: u64 },
    Return,
}

/// The tree, in at most `most` lines; what was folded away is counted in the last one.
#[must_use]
pub fn tree(trace: &Trace, symbols: &mut dyn Resolver, most: usize) -> String {
    let nodes = build(trace, symbols);
    let mut rows = Vec::new();
    if !trace.steps.is_empty() {
        rows_of(&nodes, 0, 0, &mut rows);
    }
    let mut out = head(trace);
    let room = most.saturating_sub(1);
    let folded = if rows.len() > room {
        rows.len() - room.saturating_sub(1)
    } else {
        0
    };
    for row in rows.iter().take(rows.len() - folded) {
        out += row;
        out.push('\n');
    }
    if folded > 0 {
        out += &format!("... and {folded} more\n");
    }
    out
}

fn rows_of(nodes: &[Node], at: usize, depth: usize, rows: &mut Vec<String>) {
    let Some(node) = nodes.get(at) else {
        return;
    };
    let times = if node.calls > 1 {
        format!(" x{}", node.calls)
    } else {
        String::new()
    };
    rows.push(format!(
        "{:indent$}{}{times}  {}",
        "",
        node.name,
        node.own,
        indent = 2 * depth
    ));
    for &child in &node.children {
        rows_of(nodes, child, depth + 1, rows);
    }
}

fn build(trace: &Trace, symbols: &mut dyn Resolver) -> Vec<Node> {
    let moves: Vec<Move> = trace.code.iter().map(what).collect();
    let names: Vec<String> = trace
        .code
        .iter()
        .map(|code| {
            let symbol = symbols.resolve(code.addr);
            symbol.map_or_else(|| format!("{:#x}", code.addr), |symbol| symbol.name)
        })
        .collect();
    let mut nodes: Vec<Node> = Vec::new();
    let mut stack: Vec<Open> = Vec::new();
    let mut entered = None;
    for step in &trace.steps {
        let Ok(at) = usize::try_from(step.code) else {
            continue;
        };
        let name = names.get(at).map_or("", String::as_str);
        if let Some(returns) = std::mem::take(&mut entered)
            && step.link == Link::Flow
        {
            let node = child(&mut nodes, stack.last().map(|open| open.node), name);
            stack.push(Open {
                node,
                returns: Some(returns),
            });
        }
        if stack.is_empty() {
            let node = child(&mut nodes, None, name);
            stack.push(Open {
                node,
                returns: None,
            });
        }
        if let Some(node) = stack.last().and_then(|open| nodes.get_mut(open.node)) {
            node.own += u64::from(step.count);
        }
        match moves.get(at) {
            Some(Move::Call { behind }) => entered = Some(*behind),
            Some(Move::Return) => {
                // A return past several frames closes them all; one that nobody waits for closes none.
                let to = stack
                    .iter()
                    .rposition(|open| open.returns == Some(step.next));
                stack.truncate(to.unwrap_or(stack.len()));
            }
            Some(Move::Stay) | None => {}
        }
    }
    nodes
}

fn what(code: &crate::trace::Code) -> Move {
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

/// The child of that name, made if it is new.
fn child(nodes: &mut Vec<Node>, parent: Option<usize>, name: &str) -> usize {
    let children = parent
        .and_then(|parent| nodes.get(parent))
        .map(|node| node.children.clone());
    let known = children
        .into_iter()
        .flatten()
        .find(|at| nodes.get(*at).is_some_and(|node| node.name == name));
    let at = known.unwrap_or(nodes.len());
    if known.is_none() {
        nodes.push(Node {
            name: name.to_owned(),
            calls: 0,
            own: 0,
            children: Vec::new(),
        });
        if let Some(parent) = parent.and_then(|parent| nodes.get_mut(parent)) {
            parent.children.push(at);
        }
    }
    if let Some(node) = nodes.get_mut(at) {
        node.calls += 1;
    }
    at
}
