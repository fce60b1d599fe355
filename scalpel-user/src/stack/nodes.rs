//! One thread's view of the tree: what it measures in the running window, and which child a call leads to.
//!
//! The hot path: a call that was made before from the same place is found in the parent's own cache line.

use rustc_hash::FxHashMap;

use super::cells::Cells;
use super::contexts::{Contexts, ROOT};
use crate::event::Source;
use crate::tree::{EdgeSource, Metrics};

/// Number of a node within its thread. 0 is the root.
pub(super) type NodeId = u32;

/// A call as its ENTER describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) func: u32,
    pub(super) source: u8,
    /// Return address, or 0 if it is not known.
    pub(super) site: u64,
}

/// Where a call leads from one parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) node: NodeId,
    /// Probed function that the call was truly made from, if that is not the parent; else 0.
    pub(super) caller: u32,
}

#[derive(Clone, Copy, Debug)]
struct Cached {
    call: Call,
    link: Link,
}

const NOTHING: Cached = Cached {
    call: Call {
        func: 0,
        source: 0,
        site: 0,
    },
    link: Link { node: 0, caller: 0 },
};

#[derive(Debug)]
pub(super) struct LocalNode {
    pub(super) metrics: Metrics,
    pub(super) context: u32,
    pub(super) func: u32,
    pub(super) outermost: bool,
    dirty: bool,
    cache: [Cached; 2],
}

#[derive(Debug)]
pub(super) struct Nodes {
    nodes: Vec<LocalNode>,
    by_context: FxHashMap<u32, NodeId>,
    links: FxHashMap<(NodeId, u32, u64), Link>,
    dirty: Vec<NodeId>,
}

impl Nodes {
    pub(super) fn new() -> Self {
        let mut nodes = Self {
            nodes: Vec::new(),
            by_context: FxHashMap::default(),
            links: FxHashMap::default(),
            dirty: Vec::new(),
        };
        nodes.push(ROOT, 0, false);
        nodes
    }

    fn push(&mut self, context: u32, func: u32, outermost: bool) -> NodeId {
        let id = self.nodes.len() as NodeId;
        let metrics = Metrics::default();
        self.nodes.push(LocalNode {
            metrics,
            context,
            func,
            outermost,
            dirty: false,
            cache: [NOTHING; 2],
        });
        self.by_context.insert(context, id);
        id
    }

    pub(super) fn get(&self, node: NodeId) -> &LocalNode {
        #[expect(
            clippy::indexing_slicing,
            reason = "nodes are numbered by this table only, and it never shrinks"
        )]
        &self.nodes[node as usize]
    }

    /// The node's measurements in the running window, to be added to.
    pub(super) fn measure(&mut self, node: NodeId) -> &mut Metrics {
        #[expect(
            clippy::indexing_slicing,
            reason = "nodes are numbered by this table only, and it never shrinks"
        )]
        let local = &mut self.nodes[node as usize];
        if !local.dirty {
            local.dirty = true;
            self.dirty.push(node);
        }
        &mut local.metrics
    }

    /// Moves what was measured since the window's begin into the cells.
    pub(super) fn flush(&mut self, begin: u64, thread: u32, cells: &mut Cells) {
        for node in self.dirty.drain(..) {
            if let Some(local) = self.nodes.get_mut(node as usize) {
                local.dirty = false;
                cells.add(
                    begin,
                    thread,
                    local.context,
                    std::mem::take(&mut local.metrics),
                );
            }
        }
    }

    /// Where `call` leads from `parent`, if it was made before.
    pub(super) fn known_link(&mut self, parent: NodeId, call: Call) -> Option<Link> {
        let local = self.nodes.get_mut(parent as usize)?;
        let [first, second] = &mut local.cache;
        if first.call == call {
            return Some(first.link);
        }
        std::mem::swap(first, second);
        if first.call == call {
            return Some(first.link);
        }
        let link = *self.links.get(&(parent, call.func, call.site))?;
        *first = Cached { call, link };
        Some(link)
    }

    /// Remembers where `call` leads from `parent`: to `context`.
    pub(super) fn link(
        &mut self,
        parent: NodeId,
        call: Call,
        context: u32,
        caller: u32,
        contexts: &Contexts,
    ) -> Link {
        let node = match self.by_context.get(&context) {
            Some(&node) => node,
            None => {
                let global = contexts.get(context);
                self.push(context, global.func, global.outermost)
            }
        };
        let link = Link { node, caller };
        self.links.insert((parent, call.func, call.site), link);
        link
    }

    /// The child of `parent` for something that is no call of its own (a count, a resumed task).
    pub(super) fn child(&mut self, parent: NodeId, func: u32, contexts: &mut Contexts) -> NodeId {
        let call = Call {
            func,
            source: Source::Sched as u8,
            site: 0,
        };
        if let Some(link) = self.known_link(parent, call) {
            return link.node;
        }
        let context = contexts.child(self.get(parent).context, func, EdgeSource::Exact);
        self.link(parent, call, context, 0, contexts).node
    }
}
