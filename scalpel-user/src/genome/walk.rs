//! Depth-first walk over the contexts of a tree, without recursion: trees are as deep as the traced stacks.

use crate::tree::{ContextId, Tree};

/// One step of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The context is entered; its callees follow.
    Enter(ContextId),
    /// All callees of the context were walked.
    Leave(ContextId),
}

/// The children of every context, as two arrays of links.
#[derive(Debug)]
pub(crate) struct Children {
    first: Vec<u32>,
    next: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Children {
    /// Links `tree`'s contexts. A context that names no earlier context as its parent is left out.
    pub(crate) fn of(tree: &Tree) -> Self {
        let mut links = Self {
            first: vec![NONE; tree.contexts.len()],
            next: vec![NONE; tree.contexts.len()],
        };
        // Backwards, so that children come out in order of their ids.
        for (id, context) in (0u32..)
            .zip(&tree.contexts)
            .skip(1)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
        {
            if context.parent.0 < id
                && let (Some(first), Some(next)) = (
                    links.first.get_mut(context.parent.0 as usize),
                    links.next.get_mut(id as usize),
                )
            {
                *next = std::mem::replace(first, id);
            }
        }
        links
    }

    /// The children of `parent`.
    pub(crate) fn iter(&self, parent: ContextId) -> impl Iterator<Item = ContextId> {
        let mut at = self.first.get(parent.0 as usize).copied().unwrap_or(NONE);
        std::iter::from_fn(move || {
            let id = (at != NONE).then_some(ContextId(at))?;
            at = self.next.get(at as usize).copied().unwrap_or(NONE);
            Some(id)
        })
    }

    /// Walks everything below the root, which is not itself reported.
    pub(crate) fn walk(&self, mut visit: impl FnMut(Step)) {
        let mut path: Vec<ContextId> = Vec::new();
        let mut at = self.first.first().copied().unwrap_or(NONE);
        loop {
            if at != NONE {
                visit(Step::Enter(ContextId(at)));
                path.push(ContextId(at));
                at = self.first.get(at as usize).copied().unwrap_or(NONE);
            } else if let Some(done) = path.pop() {
                visit(Step::Leave(done));
                at = self.next.get(done.0 as usize).copied().unwrap_or(NONE);
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
