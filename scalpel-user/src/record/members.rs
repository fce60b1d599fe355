//! Who belongs to the targets while they are recorded: who comes into a cgroup, and who was born to them.

use super::live::Live;
use super::now_mono;
use super::subject::{Subject, descendants};
use crate::event::Control;
use crate::input::Input;
use crate::target::{Cgroup, Process};

impl Live {
    /// Watches processes that have come into the cgroup.
    pub(super) fn admit_members(&mut self, subject: &Subject) {
        let members = subject.cgroup.iter().flat_map(Cgroup::members);
        // One that has ended meanwhile is no concern any more.
        let members = members.filter_map(|pid| Process::open(pid).ok());
        self.admit(members, "came into the cgroup");
    }

    /// Watches children that were born after the targets were looked at, and before anybody could tell of births.
    pub(super) fn admit_late_children(&mut self, subject: &Subject) {
        if subject.follows {
            self.admit(descendants(&subject.processes), "was born");
        }
    }

    fn admit(&mut self, processes: impl IntoIterator<Item = Process>, how: &str) {
        for process in processes {
            let Some(tracer) = &mut self.tracer else {
                return;
            };
            match tracer.watch_also(&process) {
                Ok(true) => {
                    tracer.add_target(process.pid());
                    self.cpu.add(&process);
                    self.describe(&process, now_mono());
                }
                Ok(false) => {}
                Err(error) => self.take(Input::Note(format!(
                    "process {} {how} and could not be watched: {error:#}",
                    process.pid()
                ))),
            }
        }
    }

    /// What children use is part of what probes are compared with, where they are watched.
    pub(super) fn judge_with(&mut self, control: &Control) {
        if !self.unwatched.follows() {
            return;
        }
        self.cpu.control(control);
        if let (Control::Fork { parent, child, .. }, Some(tracer)) = (control, &mut self.tracer)
            && parent != child
        {
            tracer.add_target(*child);
        }
    }
}
