//! Who comes into a cgroup while it is recorded.

use super::live::Live;
use super::now_mono;
use super::subject::Subject;
use crate::input::Input;
use crate::target::{Cgroup, Process};

impl Live {
    /// Watches processes that have come into the cgroup.
    pub(super) fn admit_members(&mut self, subject: &Subject) {
        let members = subject.cgroup.iter().flat_map(Cgroup::members);
        // One that has ended meanwhile is no concern any more.
        for process in members.filter_map(|pid| Process::open(pid).ok()) {
            let Some(tracer) = &mut self.tracer else {
                return;
            };
            match tracer.watch_also(&process) {
                Ok(true) => {
                    self.cpu.add(&process);
                    self.describe(&process, now_mono());
                }
                Ok(false) => {}
                Err(error) => self.take(Input::Note(format!(
                    "process {} came into the cgroup and could not be watched: {error:#}",
                    process.pid()
                ))),
            }
        }
    }
}
