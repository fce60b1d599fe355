//! Depth-first walk over the contexts of a tree, without recursion: trees are as deep as the traced stacks.

use crate::tree::{Context, ContextId, Tree};

/// One step of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The context is entered; its callees follow.
    Enter(ContextId),
    /// All callees of the context were walked.
    Leave(ContextId),
}

/// The children of every context, as links: the first child, and the next of the same parent.
#[derive(Debug)]
pub(crate) struct Children {
    links: Vec<[u32; 2]>,
}

const NONE: u32 = u32::MAX;

impl Children {
    /// Links `tree`'s contexts. A context that names no earlier context as its parent is left out.
    pub(crate) fn of(tree: &Tree) -> Self {
        Self::of_contexts(&tree.contexts)
    }

    /// The same of contexts alone.
    pub(crate) fn of_contexts(contexts: &[Context]) -> Self {
        let mut links = vec![[NONE; 2]; contexts.len()];
        // Backwards, so that children come out in order of their ids.
        for (at, context) in contexts.iter().enumerate().skip(1).rev() {
            let (parent, id) = (context.parent.0 as usize, at as u32);
            if parent < at
                && let Some([first, _]) = links.get_mut(parent)
            {
                let next = std::mem::replace(first, id);
                if let Some(link) = links.get_mut(at) {
                    link[1] = next;
                }
            }
        }
        Self { links }
    }

    fn first(&self, id: u32) -> u32 {
        self.links.get(id as usize).map_or(NONE, |link| link[0])
    }

    fn next(&self, id: u32) -> u32 {
        self.links.get(id as usize).map_or(NONE, |link| link[1])
    }

    /// The children of `parent`.
    pub(crate) fn iter(&self, parent: ContextId) -> impl Iterator<Item = ContextId> {
        let mut at = self.first(parent.0);
        std::iter::from_fn(move || {
            let id = (at != NONE).then_some(ContextId(at))?;
            at = self.next(at);
            Some(id)
        })
    }

    /// Walks everything below the root, which is not itself reported.
    pub(crate) fn walk(&self, mut visit: impl FnMut(Step)) {
        let mut path: Vec<ContextId> = Vec::new();
        let mut at = self.first(0);
        loop {
            if at != NONE {
                visit(Step::Enter(ContextId(at)));
                path.push(ContextId(at));
                at = self.first(at);
            } else if let Some(done) = path.pop() {
                visit(Step::Leave(done));
                at = self.next(done.0);
            } else {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Children, Step};
    use crate::event::FuncId;
    use crate::tree::{Context, ContextId, EdgeSource, Tree};

    fn tree(parents: &[u32]) -> Tree {
        let node = |&parent: &u32| Context {
            parent: ContextId(parent),
            func: FuncId::new(1),
            source: EdgeSource::Exact,
        };
        let root = Context {
            parent: ContextId::ROOT,
            func: None,
            source: EdgeSource::Exact,
        };
        Tree {
            contexts: std::iter::once(root)
                .chain(parents.iter().map(node))
                .collect(),
            ..Tree::default()
        }
    }

    fn check(parents: &[u32], expect: &str) {
        let mut walked = String::new();
        Children::of(&tree(parents)).walk(|step| {
            walked += &match step {
                Step::Enter(id) => format!("({}", id.0),
                Step::Leave(_) => ")".to_owned(),
            };
        });
        assert_eq!(walked, expect);
    }

    #[test]
    fn callees_come_between_enter_and_leave_in_order_of_their_ids() {
        check(&[], "");
        check(&[0, 1, 1, 2, 0], "(1(2(4))(3))(5)");
    }

    #[test]
    fn a_parent_that_does_not_exist_or_comes_later_is_never_walked() {
        check(&[7], "");
        check(&[0, 3, 2], "(1)");
    }

    #[test]
    fn a_deep_tree_needs_no_stack() {
        let parents: Vec<u32> = (0..200_000).collect();
        let mut depth = 0;
        Children::of(&tree(&parents))
            .walk(|step| depth += u32::from(matches!(step, Step::Enter(_))));
        assert_eq!(depth, 200_000);
    }
}
