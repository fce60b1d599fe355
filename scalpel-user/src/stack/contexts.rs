//! Contexts while recording: interned paths, told apart by call site where the direct caller is not probed.
//!
//! Two rules keep the tree small, and both look at one path only, so that trees of several runs merge exactly:
//! a (caller, callee) pair that already stands [`MAX_REPEATS`] times on the path folds onto its last occurrence, and
//! at most [`MAX_SPLITS`] nodes of a path are told apart by call site. The cap on nodes is the last resort: what would
//! exceed it is counted per function under the node `[folded]`.

use rustc_hash::FxHashMap;

use crate::tree::EdgeSource;

/// How often one (caller, callee) pair may stand on a path: recursion deeper than this folds.
pub(super) const MAX_REPEATS: usize = 2;

/// How many nodes of a path may be told apart by call site.
const MAX_SPLITS: u8 = 6;

/// How many call sites of one parent and function are told apart.
const MAX_SITES: u8 = 32;

/// The root, before everything.
pub(super) const ROOT: u32 = 0;

/// A return address, numbered from 1; 0 = the caller is the parent, or not known.
pub(super) type SiteId = u32;

#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) parent: u32,
    /// 0 for the root and `[folded]`.
    pub(super) func: u32,
    pub(super) site: SiteId,
    pub(super) source: EdgeSource,
    /// No node above has this function.
    pub(super) outermost: bool,
    splits: u8,
}

#[derive(Clone, Debug)]
pub(super) struct Contexts {
    nodes: Vec<Node>,
    children: FxHashMap<(u32, u32, SiteId), u32>,
    site_counts: FxHashMap<(u32, u32), u8>,
    sites: Vec<(u32, u64)>,
    site_ids: FxHashMap<(u32, u64), SiteId>,
    folded: Option<u32>,
    cap: usize,
}

impl Contexts {
    pub(super) fn new(cap: usize) -> Self {
        let root = Node {
            parent: ROOT,
            func: 0,
            site: 0,
            source: EdgeSource::Exact,
            outermost: false,
            splits: 0,
        };
        Self {
            nodes: vec![root],
            children: FxHashMap::default(),
            site_counts: FxHashMap::default(),
            sites: Vec::new(),
            site_ids: FxHashMap::default(),
            folded: None,
            cap,
        }
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(super) fn get(&self, context: u32) -> Node {
        #[expect(
            clippy::indexing_slicing,
            reason = "contexts are numbered by this table only, and it never shrinks"
        )]
        self.nodes[context as usize]
    }

    /// Address space and return address of every call site, in order of id from 1.
    pub(super) fn sites(&self) -> &[(u32, u64)] {
        &self.sites
    }

    pub(super) fn site(&self, site: SiteId) -> Option<(u32, u64)> {
        self.sites.get((site as usize).checked_sub(1)?).copied()
    }

    /// The child of `parent` for calls of `func` from the parent itself.
    pub(super) fn child(&mut self, parent: u32, func: u32, source: EdgeSource) -> u32 {
        self.child_at(parent, func, 0, source)
    }

    /// The child of `parent` for calls of `func` that return to `address`, code of a function that is not probed.
    pub(super) fn child_from(&mut self, parent: u32, func: u32, space: u32, address: u64) -> u32 {
        let site = self.site_id(space, address);
        if let Some(&known) = self.children.get(&(parent, func, site)) {
            return known;
        }
        let splits = self.get(parent).splits;
        let count = self.site_counts.entry((parent, func)).or_default();
        if *count >= MAX_SITES || splits >= MAX_SPLITS {
            return self.child_at(parent, func, 0, EdgeSource::Exact);
        }
        *count += 1;
        self.child_at(parent, func, site, EdgeSource::Exact)
    }

    /// The child of the root for counted calls of `func` that return to `address`, code of a function that is not probed.
    /// Counted sites are not capped here: the kernel's table has bounded them.
    pub(super) fn counted_from(&mut self, func: u32, space: u32, address: u64) -> u32 {
        let site = self.site_id(space, address);
        self.child_at(ROOT, func, site, EdgeSource::Exact)
    }

    fn site_id(&mut self, space: u32, address: u64) -> SiteId {
        *self.site_ids.entry((space, address)).or_insert_with(|| {
            self.sites.push((space, address));
            self.sites.len() as SiteId
        })
    }

    fn child_at(&mut self, parent: u32, func: u32, site: SiteId, source: EdgeSource) -> u32 {
        if let Some(&known) = self.children.get(&(parent, func, site)) {
            self.see(known, source);
            return known;
        }
        let child = match self.last_repeat(parent, func) {
            Some(earlier) => earlier,
            None if self.nodes.len() >= self.cap || self.is_folded(parent) => {
                self.child_of_folded(func)
            }
            None => self.push(parent, func, site, source),
        };
        self.children.insert((parent, func, site), child);
        child
    }

    /// A context seen both by entry events and otherwise is exact.
    fn see(&mut self, context: u32, source: EdgeSource) {
        if let Some(node) = self.nodes.get_mut(context as usize) {
            node.source = node.source.max(source);
        }
    }

    fn push(&mut self, parent: u32, func: u32, site: SiteId, source: EdgeSource) -> u32 {
        let above = self.get(parent);
        let outermost = func != 0 && !self.path(parent).any(|node| node.func == func);
        let splits = above.splits + u8::from(site != 0);
        self.nodes.push(Node {
            parent,
            func,
            site,
            source,
            outermost,
            splits,
        });
        self.nodes.len() as u32 - 1
    }

    /// From `context` up to below the root.
    fn path(&self, context: u32) -> impl Iterator<Item = Node> {
        let mut next = context;
        std::iter::from_fn(move || {
            let node = self.get(next);
            (next != ROOT).then(|| next = node.parent)?;
            Some(node)
        })
    }

    /// The deepest node above where the pair (function of `parent`, `func`) stands, if it stands too often already.
    fn last_repeat(&self, parent: u32, func: u32) -> Option<u32> {
        let caller = self.get(parent).func;
        let (mut at, mut last, mut repeats) = (parent, None, 0);
        while at != ROOT {
            let node = self.get(at);
            if node.func == func && self.get(node.parent).func == caller {
                last = last.or(Some(at));
                repeats += 1;
            }
            at = node.parent;
        }
        last.filter(|_| repeats >= MAX_REPEATS)
    }

    fn is_folded(&self, context: u32) -> bool {
        self.folded
            .is_some_and(|folded| context == folded || self.get(context).parent == folded)
    }

    fn child_of_folded(&mut self, func: u32) -> u32 {
        let folded = match self.folded {
            Some(folded) => folded,
            None => {
                let folded = self.push(ROOT, 0, 0, EdgeSource::Exact);
                *self.folded.insert(folded)
            }
        };
        match self.children.get(&(folded, func, 0)) {
            Some(&known) => known,
            None => {
                let child = self.push(folded, func, 0, EdgeSource::Exact);
                self.children.insert((folded, func, 0), child);
                child
            }
        }
    }
}
