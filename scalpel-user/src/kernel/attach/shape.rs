//! Which programs a function gets, where each goes, and the links that come of it.

use std::collections::HashSet;

use scalpel_common::kernel::{cookie, programs};

use super::super::apart::Link;
use super::super::load::Mechanism;
use super::super::uprobe_multi::{Site, close_all};
use crate::event::{FuncId, Pid};
use crate::function::ExitStrategy;

/// What the members of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) file: usize,
    pub(super) shape: Shape,
    pub(super) pid: Option<Pid>,
    /// Calls that last (`main`): not in one link with what the breaker may drop, which would lose their exits.
    pub(super) lasting: bool,
}

/// Which programs a function gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shape {
    EntryOnly,
    Session,
    EntryAndReturn,
    EntryAndRets,
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) func: FuncId,
    pub(super) offset: u64,
    pub(super) ret_offsets: Vec<u64>,
    pub(super) cost_ns: u64,
}

/// Open links. Exits are attached before entries and closed after them: an entry without its exit would leave its
/// frame open, an exit without its entry is recognised and counted.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) exits: Vec<Owned>,
    pub(super) entries: Vec<Owned>,
}

/// A link and the only function it serves, if it serves only one (perf).
pub(super) type Owned = (Option<FuncId>, Link);

/// One program of a shape, and where it goes.
pub(super) struct Part {
    pub(super) program: &'static str,
    pub(super) on_return: bool,
    pub(super) at_rets: bool,
    pub(super) is_exit: bool,
}

impl Shape {
    pub(super) const fn of(exit: ExitStrategy, rets: usize, mechanism: Mechanism) -> Option<Self> {
        match (exit, mechanism) {
            (ExitStrategy::None | ExitStrategy::Probe, _) => None,
            (ExitStrategy::Return, Mechanism::Session) => Some(Self::Session),
            (ExitStrategy::Return, _) => Some(Self::EntryAndReturn),
            (ExitStrategy::RetOffsets, _) if rets > 0 => Some(Self::EntryAndRets),
            // Without a `ret` it never returns, and there is nothing to see.
            (ExitStrategy::RetOffsets | ExitStrategy::EntryOnly, _) => Some(Self::EntryOnly),
        }
    }

    /// In the order of attaching.
    pub(super) const fn parts(self) -> &'static [Part] {
        const fn at_entry(program: &'static str) -> Part {
            Part {
                program,
                on_return: false,
                at_rets: false,
                is_exit: false,
            }
        }
        const RETURN: Part = Part {
            program: programs::CALL_RETURN,
            on_return: true,
            at_rets: false,
            is_exit: true,
        };
        const RETS: Part = Part {
            program: programs::CALL_RET,
            on_return: false,
            at_rets: true,
            is_exit: true,
        };
        match self {
            Self::EntryOnly => const { &[at_entry(programs::CALL_ENTRY)] },
            Self::Session => const { &[at_entry(programs::CALL_SESSION)] },
            Self::EntryAndReturn => const { &[RETURN, at_entry(programs::CALL_ENTER)] },
            Self::EntryAndRets => const { &[RETS, at_entry(programs::CALL_ENTER)] },
        }
    }
}

impl Part {
    /// The sites of `members`, and whose each is.
    pub(super) fn sites(&self, members: &[Member], generation: u32) -> (Vec<Site>, Vec<usize>) {
        let sites_of = |(index, member): (usize, &Member)| {
            let offsets = if self.at_rets {
                member.ret_offsets.clone()
            } else {
                vec![member.offset]
            };
            let cookie = cookie(member.func.get(), generation);
            offsets
                .into_iter()
                .map(move |offset| (Site { offset, cookie }, index))
        };
        members.iter().enumerate().flat_map(sites_of).unzip()
    }
}

impl Links {
    pub(super) fn len(&self) -> usize {
        self.exits.len() + self.entries.len()
    }

    /// Closes entries before exits, each in parallel.
    pub(super) fn close(self) {
        for part in [self.entries, self.exits] {
            close_all(part.into_iter().map(|(_, link)| link).collect());
        }
    }

    pub(super) fn absorb(&mut self, other: Self) {
        self.exits.extend(other.exits);
        self.entries.extend(other.entries);
    }

    /// Splits off the links that serve only functions in `funcs`.
    pub(super) fn take(&mut self, funcs: &HashSet<FuncId>) -> Self {
        let serves = |owned: &mut Owned| owned.0.is_some_and(|func| funcs.contains(&func));
        Self {
            exits: self.exits.extract_if(.., serves).collect(),
            entries: self.entries.extract_if(.., serves).collect(),
        }
    }
}
