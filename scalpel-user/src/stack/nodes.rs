//! One thread's view of the tree: what it measures in the running window, and which child a call leads to.
//!
//! The hot path. A node is one cache line; a parent's children are a list, the last used first, so that a call made
//! before is found in the line that has to be touched anyway.

use rustc_hash::FxHashMap;

use super::cells::Cells;
use super::contexts::{Contexts, ROOT};
use crate::tree::{EdgeSource, Metrics};

/// Number of a node within its thread. 0 is the root.
pub(super) type NodeId = u32;

/// Children of one parent that are looked at before the table is asked.
const NEAR_CHILDREN: usize = 4;

/// A call as its ENTER describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Call {
    pub(super) func: u32,
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

/// What nearly every call adds to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hot {
    pub(super) self_wall_ns: u64,
    pub(super) self_cpu_ns: u64,
    pub(super) calls: u64,
    /// Calls whose end was reported, with CPU time.
    pub(super) returned: u64,
}

#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct LocalNode {
    hot: Hot,
    /// The first call that led here.
    site: u64,
    pub(super) func: u32,
    pub(super) context: u32,
    first_child: NodeId,
    next_sibling: NodeId,
    pub(super) outermost: bool,
    dirty: bool,
}

const _: () = assert!(size_of::<LocalNode>() == 64);

#[derive(Clone, Debug)]
pub(super) struct Nodes {
    nodes: Vec<LocalNode>,
    by_context: FxHashMap<u32, NodeId>,
    links: FxHashMap<(NodeId, Call), Link>,
    dirty: Vec<NodeId>,
    /// What few calls add to.
    rare: FxHashMap<NodeId, Metrics>,
}

impl Nodes {
    pub(super) fn new() -> Self {
        let mut nodes = Self {
            nodes: Vec::new(),
            by_context: FxHashMap::default(),
            links: FxHashMap::default(),
            dirty: Vec::new(),
            rare: FxHashMap::default(),
        };
        nodes.push(ROOT, Call { func: 0, site: 0 }, false);
        nodes
    }

    fn push(&mut self, context: u32, call: Call, outermost: bool) -> NodeId {
        let id = self.nodes.len() as NodeId;
        self.nodes.push(LocalNode {
            hot: Hot::default(),
            site: call.site,
            func: call.func,
            context,
            first_child: 0,
            next_sibling: 0,
            outermost,
            dirty: false,
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

    fn get_mut(&mut self, node: NodeId) -> &mut LocalNode {
        #[expect(
            clippy::indexing_slicing,
            reason = "nodes are numbered by this table only, and it never shrinks"
        )]
        &mut self.nodes[node as usize]
    }

    /// The node's measurements in the running window, to be added to.
    pub(super) fn hot(&mut self, node: NodeId) -> &mut Hot {
        #[expect(
            clippy::indexing_slicing,
            reason = "nodes are numbered by this table only, and it never shrinks"
        )]
        let local = &mut self.nodes[node as usize];
        if !local.dirty {
            local.dirty = true;
            self.dirty.push(node);
        }
        &mut local.hot
    }

    /// The same for what happens rarely.
    #[cold]
    pub(super) fn rare(&mut self, node: NodeId) -> &mut Metrics {
        self.hot(node);
        self.rare.entry(node).or_default()
    }

    /// Moves what was measured since the window's begin into the cells.
    pub(super) fn flush(&mut self, begin: u64, thread: u32, cells: &mut Cells) {
        for node in self.dirty.drain(..) {
            let mut metrics = self.rare.remove(&node).unwrap_or_default();
            if let Some(local) = self.nodes.get_mut(node as usize) {
                local.dirty = false;
                metrics.add(&std::mem::take(&mut local.hot).into());
                cells.add(begin, thread, local.context, metrics);
            }
        }
    }

    /// Where `call` leads from `parent`, if it was made before.
    pub(super) fn known_link(&mut self, parent: NodeId, call: Call) -> Option<Link> {
        let (mut before, mut child) = (0, self.get(parent).first_child);
        for _ in 0..NEAR_CHILDREN {
            if child == 0 {
                break;
            }
            let node = self.get(child);
            if node.func == call.func && node.site == call.site {
                if before != 0 {
                    self.move_to_front(parent, before, child);
                }
                return Some(Link {
                    node: child,
                    caller: 0,
                });
            }
            (before, child) = (child, node.next_sibling);
        }
        self.links.get(&(parent, call)).copied()
    }

    fn move_to_front(&mut self, parent: NodeId, before: NodeId, child: NodeId) {
        self.get_mut(before).next_sibling = self.get(child).next_sibling;
        self.get_mut(child).next_sibling = self.get(parent).first_child;
        self.get_mut(parent).first_child = child;
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
                let node = self.push(context, call, global.outermost);
                if caller == 0 && global.parent == self.get(parent).context {
                    self.get_mut(node).next_sibling = self.get(parent).first_child;
                    self.get_mut(parent).first_child = node;
                }
                node
            }
        };
        let link = Link { node, caller };
        self.links.insert((parent, call), link);
        link
    }

    /// The child of `parent` for something that is no call of its own (a count, a resumed task).
    pub(super) fn child(&mut self, parent: NodeId, func: u32, contexts: &mut Contexts) -> NodeId {
        let call = Call { func, site: 0 };
        if let Some(link) = self.known_link(parent, call) {
            return link.node;
        }
        let context = contexts.child(self.get(parent).context, func, EdgeSource::Exact);
        self.link(parent, call, context, 0, contexts).node
    }
}

impl From<Hot> for Metrics {
    fn from(hot: Hot) -> Self {
        Self {
            calls: hot.calls,
            timed: hot.returned,
            cpu_timed: hot.returned,
            self_wall_ns: hot.self_wall_ns,
            self_cpu_ns: hot.self_cpu_ns,
            probe_events: hot.calls.saturating_add(hot.returned),
            ..Self::default()
        }
    }
}
