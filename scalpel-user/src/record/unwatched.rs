//! What watched processes did outside of what is watched: children that are not followed, programs that they became.
//!
//! A function that ran there and is missing from the result must not look as if it never ran.

use crate::event::{Control, Pid};

/// Children and programs, counted; the first of each by name.
#[derive(Debug, Default)]
pub(super) struct Unwatched {
    follows: bool,
    /// Functions are probed: which, was chosen at the start.
    probes: bool,
    /// The command that we launched, until the exec that is its start.
    launched: Option<Pid>,
    children: u64,
    execs: u64,
    first_exec: String,
}

impl Unwatched {
    /// Nothing yet. `follows`: children are watched; `launched`: the command that we started.
    pub(super) fn new(follows: bool, launched: Option<Pid>) -> Self {
        Self {
            follows,
            probes: true,
            launched,
            ..Self::default()
        }
    }

    /// The same, where no function is probed.
    pub(super) const fn probing(mut self, probes: bool) -> Self {
        self.probes = probes;
        self
    }

    /// Takes note of a birth or an exec.
    pub(super) fn control(&mut self, control: &Control) {
        match control {
            Control::Fork { parent, child, .. } if parent != child => self.children += 1,
            Control::Exec { pid, .. } if self.launched == Some(*pid) => self.launched = None,
            Control::Exec { path, .. } => {
                if self.execs == 0 {
                    self.first_exec.clone_from(path);
                }
                self.execs += 1;
            }
            _ => {}
        }
    }

    /// Whether children are watched.
    pub(super) const fn follows(&self) -> bool {
        self.follows
    }

    /// What to say about them.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.children > 0 && !self.follows {
            notes.push(format!(
                "{} child process(es) were born and not watched: -s (--subprocesses) follows them",
                self.children
            ));
        }
        if self.execs > 0 && self.probes {
            notes.push(format!(
                "another program was executed {} time(s), first {}: only functions of the files chosen at the start are \
                 watched",
                self.execs, self.first_exec
            ));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::made;

    fn fork(parent: u32, child: u32) -> Control {
        made::fork(1, parent, child)
    }

    fn exec(pid: u32, path: &str) -> Control {
        made::exec(1, pid, path)
    }

    fn check(follows: bool, launched: Option<u32>, controls: &[Control], expect: &[&str]) {
        let mut unwatched = Unwatched::new(follows, launched.map(Pid));
        controls
            .iter()
            .for_each(|control| unwatched.control(control));
        let notes = unwatched.notes();
        assert_eq!(notes.len(), expect.len(), "{notes:?}");
        for (note, part) in notes.iter().zip(expect) {
            assert!(note.contains(part), "{note}");
        }
    }

    #[test]
    fn children_are_named_unless_they_are_followed() {
        check(false, None, &[fork(1, 2), fork(1, 3)], &["2 child"]);
        check(true, None, &[fork(1, 2)], &[]);
    }

    #[test]
    fn a_thread_is_no_child() {
        check(false, None, &[fork(1, 1)], &[]);
    }

    #[test]
    fn the_start_of_a_launched_command_is_no_change_of_program() {
        check(false, Some(1), &[exec(1, "/a")], &[]);
        check(
            false,
            Some(1),
            &[exec(1, "/a"), exec(1, "/b"), exec(1, "/c")],
            &["2 time(s), first /b"],
        );
    }
}
