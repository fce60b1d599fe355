//! Who ran where, and with which code: processes and threads as the records beside a trace tell of them, up to a point in
//! time; and the guide of a stream, which knows the thread that runs.
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;

use super::files::{Files, Identity, Names, placed};
use crate::pt::{Event, Flows, Guide, Image, Space};
use crate::trace::Reasons;

/// Whose mappings are the kernel's.
const KERNEL: u32 = u32::MAX;

/// A file that was mapped to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) pid: u32,
    pub(super) addr: u64,
    pub(super) len: u64,
    pub(super) offset: u64,
    pub(super) path: PathBuf,
    pub(super) identity: Identity,
}

/// What changes who runs what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A file was mapped.
    Map(Mapping),
    /// A process runs another program: nothing is mapped.
    Exec(u32),
    /// A process or thread was made: parent process, process, thread.
    Fork(u32, u32, u32),
    /// A thread of a process was seen.
    Thread(u32, u32),
}

/// A thread came onto a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Switch {
    pub(super) tsc: u64,
    pub(super) tid: u32,
}

/// One process.
#[derive(Debug)]
struct Process {
    space: u32,
    image: Rc<Image>,
    names: Names,
}

/// All processes at one point in time.
#[derive(Debug)]
pub(super) struct Tasks<'f> {
    files: &'f mut Files,
    processes: HashMap<u32, Process>,
    owners: HashMap<u32, u32>,
    changes: Rc<[(u64, Change)]>,
    at: usize,
    only: Option<u32>,
    /// No code at all.
    nobody: Process,
    spaces: u32,
    /// Code of processes that nothing else is told of.
    strangers: bool,
}

impl<'f> Tasks<'f> {
    /// Before the first change. `only`: the one thread that is of interest.
    ///
    /// # Errors
    /// libipt is not there, or has no memory.
    pub(super) fn new(
        files: &'f mut Files,
        changes: Rc<[(u64, Change)]>,
        only: Option<u32>,
        strangers: bool,
    ) -> Result<Self, String> {
        Ok(Self {
            files,
            processes: HashMap::new(),
            owners: HashMap::new(),
            changes,
            at: 0,
            only,
            nobody: Process {
                space: 0,
                image: Rc::new(Image::new()?),
                names: Names::default(),
            },
            spaces: 0,
            strangers,
        })
    }

    /// A thread of a process.
    pub(super) fn thread(&mut self, pid: u32, tid: u32) {
        self.owners.insert(tid, pid);
    }

    /// A module of a process, whose first byte is at `base`.
    ///
    /// # Errors
    /// libipt refuses.
    pub(super) fn module(
        &mut self,
        pid: u32,
        path: &std::path::Path,
        identity: &Identity,
        base: u64,
    ) -> Result<(), String> {
        let Some(elf) = self.files.find(path, identity) else {
            return Ok(());
        };
        for part in placed(&elf, Some(base)) {
            let process = known(&mut self.processes, &mut self.spaces, &self.nobody, pid)?;
            self.files.map(&process.image, &elf, part)?;
            process.names.map(&elf, part);
        }
        Ok(())
    }

    /// Applies what happened up to `tsc`; everything if time is not told.
    pub(super) fn advance(&mut self, tsc: Option<u64>) -> Result<(), String> {
        let changes = Rc::clone(&self.changes);
        while let Some((time, change)) = changes.get(self.at)
            && tsc.is_none_or(|tsc| *time <= tsc)
        {
            self.at += 1;
            self.apply(change)?;
        }
        Ok(())
    }

    fn apply(&mut self, change: &Change) -> Result<(), String> {
        match change {
            Change::Map(mapping) => self.map(mapping)?,
            Change::Exec(pid) => {
                self.processes.remove(pid);
            }
            Change::Thread(pid, tid) => {
                self.owners.insert(*tid, *pid);
            }
            Change::Fork(parent, pid, tid) => {
                self.owners.insert(*tid, *pid);
                if parent != pid
                    && let Some(from) = self.processes.get(parent)
                {
                    self.spaces += 1;
                    let child = Process {
                        space: self.spaces,
                        image: Rc::new(from.image.forked()?),
                        names: from.names.clone(),
                    };
                    self.processes.insert(*pid, child);
                }
            }
        }
        Ok(())
    }

    fn map(&mut self, mapping: &Mapping) -> Result<(), String> {
        let part = (mapping.addr, mapping.offset, mapping.len);
        let name = mapping.path.to_string_lossy();
        if mapping.pid == KERNEL {
            self.files.complain(
                "the kernel's code is changed while it runs and is not in files: record user code only \
                 (`intel_pt//u`, `-e cycles:u`)"
                    .to_owned(),
            );
            return Ok(());
        }
        if name.starts_with('[') {
            return Ok(());
        }
        if let Some(elf) = self.files.find(&mapping.path, &mapping.identity) {
            let process = known(
                &mut self.processes,
                &mut self.spaces,
                &self.nobody,
                mapping.pid,
            )?;
            self.files.map(&process.image, &elf, part)?;
            process.names.map(&elf, part);
        }
        Ok(())
    }

    fn of(&mut self, tid: u32) -> &mut Process {
        let pid = self.owners.get(&tid).copied().unwrap_or(tid);
        self.processes.get_mut(&pid).unwrap_or(&mut self.nobody)
    }

    /// The address space of a thread.
    pub(super) fn space(&mut self, tid: u32) -> Space<'_> {
        let process = self.of(tid);
        Space {
            id: process.space,
            image: &process.image,
            names: &mut process.names,
        }
    }

    /// Whether a thread's steps are wanted.
    fn wanted(&self, tid: u32) -> bool {
        let known = self.strangers || self.owners.contains_key(&tid);
        known && self.only.is_none_or(|only| only == tid)
    }
}

/// The process, made if it is new.
fn known<'p>(
    processes: &'p mut HashMap<u32, Process>,
    spaces: &mut u32,
    nobody: &Process,
    pid: u32,
) -> Result<&'p mut Process, String> {
    use std::collections::hash_map::Entry;
    Ok(match processes.entry(pid) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => {
            *spaces += 1;
            new.insert(Process {
                space: *spaces,
                image: Rc::new(nobody.image.sibling()?),
                names: Names::default(),
            })
        }
    })
}

/// Where a stream stands: which thread runs on its processor.
#[derive(Debug)]
pub(super) struct Track {
    /// In the order of time.
    switches: Vec<Switch>,
    at: usize,
    /// The thread that runs; 0 = not known.
    pub(super) tid: u32,
    /// How far the trace has come.
    pub(super) tsc: u64,
    cpu: bool,
}

impl Track {
    /// A processor's: its threads change by these switches.
    pub(super) fn of_cpu(mut switches: Vec<Switch>) -> Self {
        switches.sort_by_key(|switch| switch.tsc);
        Self {
            switches,
            at: 0,
            tid: 0,
            tsc: 0,
            cpu: true,
        }
    }

    /// One thread's.
    pub(super) fn of_thread(tid: u32) -> Self {
        Self {
            switches: Vec::new(),
            at: 0,
            tid,
            tsc: 0,
            cpu: false,
        }
    }

    pub(super) fn is_of_cpu(&self) -> bool {
        self.cpu
    }

    /// Whether another thread runs at `tsc`.
    fn advance(&mut self, tsc: u64) -> bool {
        self.tsc = self.tsc.max(tsc);
        let before = self.tid;
        while let Some(switch) = self
            .switches
            .get(self.at)
            .filter(|switch| switch.tsc <= tsc)
        {
            self.tid = switch.tid;
            self.at += 1;
        }
        self.tid != before
    }
}

/// The guide of one stream.
#[derive(Debug)]
pub(super) struct Follower<'t, 'f> {
    pub(super) tasks: &'t mut Tasks<'f>,
    pub(super) track: &'t mut Track,
    /// Whether other streams may come between this one's threads.
    pub(super) yields: bool,
    pub(super) failed: &'t mut Option<String>,
    /// Whether time stamps mean anything.
    pub(super) timed: bool,
}

impl Follower<'_, '_> {
    /// The thread that runs now is the one that flows are of.
    pub(super) fn resume(&mut self, flows: &mut Flows<'_>) {
        if !self.timed
            && let Err(why) = self.tasks.advance(None)
        {
            *self.failed = Some(why);
        }
        flows.switch(self.track.tid);
        flows.mute(!self.tasks.wanted(self.track.tid));
    }
}

impl Guide for Follower<'_, '_> {
    fn advance(&mut self, tsc: Option<u64>, _event: &Event, flows: &mut Flows<'_>) -> bool {
        let Some(tsc) = tsc.filter(|_| self.timed) else {
            return false;
        };
        let other = self.track.advance(tsc);
        if let Err(why) = self.tasks.advance(Some(tsc)) {
            *self.failed = Some(why);
            flows.doubt(Reasons::SIDEBAND);
        }
        if other {
            self.resume(flows);
        }
        other && self.yields
    }

    fn space(&mut self) -> Option<Space<'_>> {
        Some(self.tasks.space(self.track.tid))
    }
}
