//! Descendants of the targets among all processes of the host, by their births. Pure: changes of processes in, those of
//! the family out.

use rustc_hash::FxHashSet;

use crate::event::{Control, MonoTime, Pid};

/// The targets and whoever descends from them.
#[derive(Debug, Default)]
pub struct Kin {
    members: FxHashSet<Pid>,
    held: Vec<Control>,
}

impl Kin {
    /// The family as it is now.
    pub fn new(members: impl IntoIterator<Item = Pid>) -> Self {
        Self {
            members: members.into_iter().collect(),
            held: Vec::new(),
        }
    }

    /// Takes what was `found` in rings that are read one after another, and gives what concerns the family, in order.
    /// Whatever happened until `horizon` is among what was found by now; the rest waits for the next time.
    pub fn release(&mut self, found: Vec<Control>, horizon: MonoTime) -> Vec<Control> {
        self.held.extend(found);
        self.held.sort_by_key(Control::time);
        let ready = self.held.partition_point(|one| one.time() < horizon);
        let ready: Vec<Control> = self.held.drain(..ready).collect();
        ready.into_iter().filter(|one| self.concerns(one)).collect()
    }

    /// A process that joins the recording by itself.
    pub fn admit(&mut self, pid: Pid) {
        self.members.insert(pid);
    }

    /// Gives what concerns the family of all that has waited: nothing more is to come.
    pub fn rest(&mut self) -> Vec<Control> {
        self.release(Vec::new(), MonoTime(u64::MAX))
    }

    /// Whether a change is one of the family, which a birth may let grow.
    pub fn concerns(&mut self, control: &Control) -> bool {
        match control {
            Control::Fork { parent, child, .. } if self.members.contains(parent) => {
                self.members.insert(*child);
                parent != child
            }
            Control::Fork { child, .. } => {
                // Numbers are used again: by now it is a stranger's.
                self.members.remove(child);
                false
            }
            Control::Exec { pid, .. } | Control::Exit { pid, .. } | Control::Map { pid, .. } => {
                self.members.contains(pid)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::made::{self, fork};

    fn exec(time: u64, pid: u32) -> Control {
        made::exec(time, pid, "")
    }

    fn times(controls: &[Control]) -> Vec<u64> {
        controls.iter().map(|one| one.time().0).collect()
    }

    #[test]
    fn grandchildren_belong_to_the_family_and_strangers_do_not() {
        let mut kin = Kin::new([Pid(1)]);
        let found = vec![
            exec(5, 3),
            fork(2, 1, 2),
            fork(3, 2, 3),
            exec(4, 9),
            fork(1, 8, 9),
        ];
        assert_eq!(times(&kin.release(found, MonoTime(10))), [2, 3, 5]);
    }

    #[test]
    fn a_birth_that_is_read_after_what_the_child_did_still_comes_before_it() {
        let mut kin = Kin::new([Pid(1)]);
        assert!(kin.release(vec![exec(7, 2)], MonoTime(6)).is_empty());
        assert_eq!(
            times(&kin.release(vec![fork(5, 1, 2)], MonoTime(9))),
            [5, 7]
        );
        assert!(kin.release(vec![exec(12, 2)], MonoTime(11)).is_empty());
        assert_eq!(times(&kin.rest()), [12]);
    }

    #[test]
    fn a_number_that_a_stranger_has_by_now_is_no_relative_and_a_thread_no_child() {
        let mut kin = Kin::new([Pid(1)]);
        let found = vec![fork(1, 1, 1), fork(2, 1, 2), fork(3, 8, 2), exec(4, 2)];
        assert_eq!(times(&kin.release(found, MonoTime(9))), [2]);
    }
}
