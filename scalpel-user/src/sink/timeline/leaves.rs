//! What happened, and which calls can be written on one line.

use rustc_hash::FxHashMap;

use crate::event::{Event, Kind, MonoTime, Pid, Tid, flags};

/// Something that happened on a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// An event.
    Event(Event),
    /// Events are missing here; the time is that of the thread's next event.
    Gap {
        time: MonoTime,
        pid: Pid,
        tid: Tid,
        lost: u64,
    },
    /// Something to be said between the calls.
    Note {
        time: MonoTime,
        pid: Pid,
        tid: Tid,
        text: String,
    },
    /// The thread ended; without one, all threads of the process did.
    Ended {
        time: MonoTime,
        pid: Pid,
        tid: Option<Tid>,
    },
}

impl Item {
    /// When.
    pub(super) const fn time(&self) -> u64 {
        match self {
            Self::Event(event) => event.time,
            Self::Gap { time, .. } | Self::Note { time, .. } | Self::Ended { time, .. } => time.0,
        }
    }
}

/// Whether an item is one half of a call that called nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaf {
    No,
    /// Its entry; the exit comes after so many ns.
    Enter(u64),
    Exit,
}

/// Finds each entry whose exit is the next thing on its thread.
pub(super) fn leaves(items: &[Item]) -> Vec<Leaf> {
    let mut leaves = vec![Leaf::No; items.len()];
    let mut next: FxHashMap<(u32, u32), (usize, &Event)> = FxHashMap::default();
    for (at, item) in items.iter().enumerate().rev() {
        let event = match item {
            Item::Event(event) => event,
            Item::Gap { pid, tid, .. }
            | Item::Note { pid, tid, .. }
            | Item::Ended {
                pid,
                tid: Some(tid),
                ..
            } => {
                next.remove(&(pid.0, tid.0));
                continue;
            }
            Item::Ended { pid, tid: None, .. } => {
                next.retain(|thread, _| thread.0 != pid.0);
                continue;
            }
        };
        let after = next.insert((event.pid, event.tid), (at, event));
        if let Some((exit_at, exit)) = after.filter(|(_, exit)| is_leaf(event, exit))
            && let Ok([enter_leaf, exit_leaf]) = leaves.get_disjoint_mut([at, exit_at])
        {
            *enter_leaf = Leaf::Enter(exit.time.saturating_sub(event.time));
            *exit_leaf = Leaf::Exit;
        }
    }
    leaves
}

fn is_leaf(enter: &Event, exit: &Event) -> bool {
    enter.kind == Kind::Enter as u8
        && enter.flags & flags::NO_EXIT == 0
        && exit.kind == Kind::Exit as u8
        && (enter.func, enter.frame) == (exit.func, exit.frame)
}
