//! The processes of a recording and their programs, by whoever can tell of them here: the kernel's side band, or without
//! kernel tracing a thread that watches for births.

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

use rustc_hash::FxHashMap;

use super::births::{Shared, Watcher, locked, members};
use super::household::{Silence, Unread};
use super::names;
use crate::event::{Control, MonoTime, Pid};
use crate::kernel::process::Mappings;
use crate::survey::runtimes;
use crate::target::{Process, Runtime};

/// Whoever tells, and what was told. Where no probe is wanted nobody is asked, and there is nothing to tell.
#[derive(Default)]
pub(super) struct Family {
    household: Shared,
    told: Option<Receiver<Control>>,
    watcher: Option<Watcher>,
    files: FxHashMap<String, Option<Vec<Runtime>>>,
}

impl Family {
    /// Has the side band tell of the targets and all who descend from them.
    pub(super) fn follow(&mut self, mappings: &mut Mappings, targets: &[Process]) {
        let (send, receive) = channel();
        // The side band is open: whoever is born from now on is told.
        let members = members(targets);
        mappings.tell_kin(members.iter().map(|(pid, _)| *pid), send);
        let mut household = locked(&self.household);
        for (pid, runtimes) in members {
            household.begin(pid, runtimes);
        }
        self.told = Some(receive);
    }

    /// Watches for births.
    pub(super) fn watch(&mut self, targets: &[Process]) {
        match Watcher::start(targets, Shared::clone(&self.household)) {
            Ok(watcher) => self.watcher = Some(watcher),
            Err(error) => {
                let why = format!("nobody could watch for children: {error}");
                locked(&self.household).is_incomplete(why);
            }
        }
    }

    /// Takes what was told.
    pub(super) fn tick(&mut self) {
        let Some(told) = &self.told else {
            return;
        };
        let mut household = locked(&self.household);
        told.try_iter()
            .for_each(|control| household.control(&control));
        let unread = household.unread();
        drop(household);
        for file in unread {
            let found = self.files.entry(file.path.clone());
            let found = found.or_insert_with(|| look_into(&file)).clone();
            locked(&self.household).read(&file, found.as_deref());
        }
    }

    /// A probe has said HELLO.
    pub(super) fn heard(&mut self, pid: Pid, runtime: Runtime, time: MonoTime) {
        locked(&self.household).heard(pid, runtime, time);
    }

    /// All of which nothing was seen. `lost`: records of the side band that found no room.
    pub(super) fn finish(&mut self, lost: u64) -> Silence {
        self.tick();
        let mut why = self.watcher.take().and_then(Watcher::finish);
        if lost > 0 {
            why = Some(format!(
                "{lost} records of births, programs and mappings were lost"
            ));
        }
        let mut household = locked(&self.household);
        if let Some(why) = why {
            household.is_incomplete(why);
        }
        household.silence()
    }
}

/// The runtimes of a program; as the process sees its path, while it lives.
fn look_into(unread: &Unread) -> Option<Vec<Runtime>> {
    let path = Path::new(&unread.path);
    let file = names::open(unread.pid, path).ok()?;
    runtimes::of_program(&file, path)
}
