//! Segments that dead collectors left in processes that run on: found again in `/proc/PID/map_files`, and taken over.
//!
//! A segment is ours to take when no living process holds the lock on it, whether its recording ended in order or not. What
//! was in it is passed over; what its probes write from now on is read as that of any other.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use scalpel_common::segment::{MEMORY_NAME, clock, modes, note_kind};
use scalpel_common::wire::transport;

use super::drain::monotonic_ns;
use super::memory::{Memory, Owned};
use super::peer::{Family, maps_file};
use super::reader::{Left, Reader};
use super::segment::{Owner, Segment, Told};
use super::serve::Server;
use crate::event::{MonoTime, Pid};
use crate::input::ProbeWord;
use crate::target::{Backing, Mapping, Process};

/// A process that was recorded before, and what came of taking its segment over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Takeover {
    /// The process.
    pub pid: Pid,
    /// The runtimes whose probes are in it, and what a reader of the result should know; an error says why its probes
    /// cannot be listened to.
    pub outcome: Result<(Vec<ProbeWord>, String), String>,
}

impl Server {
    /// Takes over what dead collectors left in the targets and their descendants.
    pub(super) fn take_over(&mut self) -> Vec<Takeover> {
        let mut seen = FxHashSet::default();
        let mut takeovers = Vec::new();
        // What we have mapped ourselves is ours.
        let ourselves = Pid(std::process::id());
        let others = |pid: &Pid| *pid != ourselves;
        for pid in self.watched.members().into_iter().filter(others) {
            // One that ends meanwhile has nothing to say.
            let Ok(process) = Process::open(pid) else {
                continue;
            };
            for mapping in segments_of(&process) {
                if let Some(outcome) = self.take_one(&process, &mapping, &mut seen) {
                    takeovers.push(Takeover { pid, outcome });
                }
            }
        }
        takeovers
    }

    /// `None` = it is another member's, and told there.
    fn take_one(
        &mut self,
        process: &Process,
        mapping: &Mapping,
        seen: &mut FxHashSet<u64>,
    ) -> Option<Result<(Vec<ProbeWord>, String), String>> {
        let found = match Found::of(process, mapping) {
            Ok(found) => found,
            Err(why) => return Some(Err(refusal(&why))),
        };
        // Not opened again: to close it then would end our lock on it.
        if seen.contains(&found.inode) {
            return None;
        }
        let memory = match found.open(process) {
            Ok(memory) => Arc::new(memory),
            Err(why) => return Some(Err(refusal(&why))),
        };
        let inode = found.inode;
        let told = match Told::of(&memory) {
            Ok(told) => told,
            Err(why) => return Some(Err(refusal(why))),
        };
        match relation(process, &told.owner, inode) {
            Relation::Own | Relation::Orphan => {}
            Relation::ForkedFrom(parent) if self.watched.descends(parent) => return None,
            Relation::ForkedFrom(parent) => {
                return Some(Err(format!(
                    "it was forked from process {parent}, shares its segment and is recorded with it: `--pid {parent}`"
                )));
            }
        }
        seen.insert(inode);
        Some(self.adopt(process, memory, inode, &told))
    }

    fn adopt(
        &mut self,
        process: &Process,
        memory: Arc<Memory>,
        inode: u64,
        told: &Told,
    ) -> Result<(Vec<ProbeWord>, String), String> {
        memory.own().map_err(|Owned { by }| match by {
            Some(by) => format!("process {by} is recording it"),
            None => "another process is recording it".to_owned(),
        })?;
        if told.clock != self.settings.clock {
            return Err(refusal(&format!(
                "it counts time by {}, and this machine has to be asked by {} now",
                clock_name(told.clock),
                clock_name(self.settings.clock)
            )));
        }
        let segment = Segment::adopt(memory, told, self.settings, &self.budget)
            .map_err(|why| refusal(&why))?;
        let owner = Owner {
            pid: process.pid().0,
            start_time: process.start_time(),
            exec_epoch: told.owner.exec_epoch,
        };
        segment.belong_to(owner);
        let family = Family::new(process.clone(), inode);
        let mut reader = Reader::new(segment, family, 0);
        let mut words: Vec<ProbeWord> = reader.runtimes().into_iter().map(as_hello).collect();
        if words.is_empty() {
            // It named no runtime, and has one: without a word nobody would listen for its threads' times.
            words.push(as_hello(reader.unnamed()));
        }
        let left = reader.inherit();
        reader.segment.go_on();
        self.enlist(owner, inode, reader)?;
        Ok((words, self.note(process.pid(), told.modes, left)))
    }

    fn note(&self, pid: Pid, told: u8, left: Left) -> String {
        let mode = if told == self.settings.modes {
            String::new()
        } else {
            format!(
                " It goes on to record {}, and not {} as was asked for: how is decided when it is loaded.",
                mode_name(told),
                mode_name(self.settings.modes)
            )
        };
        let left = match left.events {
            0 => String::new(),
            events => format!(
                " {events} events of before, with the starts of {} calls, were never read and are not in this recording.",
                left.calls
            ),
        };
        format!(
            "process {pid}: its probe was loaded for an earlier recording and was taken over.{mode}{left} Calls that were \
             under way are not in this recording, and filters for functions are those it was loaded with"
        )
    }
}

/// Told to the session as a HELLO would be.
fn as_hello(word: ProbeWord) -> ProbeWord {
    let runtime = word.text.split(',').next().unwrap_or_default().to_owned();
    ProbeWord {
        kind: note_kind::RUNTIME,
        value: transport::SEGMENT.into(),
        time: MonoTime(monotonic_ns()),
        text: runtime,
        ..word
    }
}

fn refusal(why: &str) -> String {
    format!("the segment of its earlier recording cannot be taken over: {why}")
}

const fn clock_name(number: u8) -> &'static str {
    match number {
        clock::MONOTONIC => "CLOCK_MONOTONIC",
        clock::TSC => "the time-stamp counter",
        _ => "an unknown clock",
    }
}

const fn mode_name(bits: u8) -> &'static str {
    match (bits & modes::CALL != 0, bits & modes::NATIVE != 0) {
        (true, true) => "calls, those of native functions too",
        (true, false) => "calls",
        (false, _) => "counts",
    }
}

/// Whose a segment is that a process has mapped.
enum Relation {
    /// Made for it.
    Own,
    /// Made for a process that is gone, from which it was forked.
    Orphan,
    /// Made for a process that lives.
    ForkedFrom(Pid),
}

fn relation(process: &Process, owner: &Owner, inode: u64) -> Relation {
    let named = Pid(owner.pid);
    if named == process.pid() && owner.start_time == process.start_time() {
        return Relation::Own;
    }
    let lives = |other: &Process| {
        other.start_time() == owner.start_time && maps_file(named, inode) == Some(true)
    };
    match Process::open(named) {
        Ok(other) if lives(&other) => Relation::ForkedFrom(named),
        _ => Relation::Orphan,
    }
}

/// Whether a process has mapped what is called a segment.
pub fn is_in(process: &Process) -> bool {
    !segments_of(process).is_empty()
}

/// Mappings of what is called a segment.
fn segments_of(process: &Process) -> Vec<Mapping> {
    let name = format!("/memfd:{MEMORY_NAME}");
    let is_segment = |mapping: &Mapping| match &mapping.backing {
        Backing::File { path, deleted, .. } => {
            mapping.shared && mapping.offset == 0 && *deleted && path.as_os_str() == name.as_str()
        }
        _ => false,
    };
    let maps = process.maps().unwrap_or_default();
    maps.into_iter().filter(is_segment).collect()
}

/// A memory file that a process has mapped, held without being opened.
struct Found {
    held: File,
    inode: u64,
}

impl Found {
    /// A name is no proof, and opening a device can have effects: that it is a memory file is known before it is opened.
    fn of(process: &Process, mapping: &Mapping) -> Result<Self, String> {
        let path = process.proc_path("map_files").join(mapping.map_file_name());
        let held = open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let held = File::from(held.map_err(failed)?);
        let kind = held.metadata().map_err(|error| error.to_string())?;
        let memory_files = memory_files().map_err(|error| error.to_string())?;
        if !kind.is_file() || kind.dev() != memory_files {
            return Err("it is no memory file".into());
        }
        let inode = kind.ino();
        Ok(Self { held, inode })
    }

    fn open(&self, process: &Process) -> Result<Memory, String> {
        let path = format!("/proc/self/fd/{}", self.held.as_raw_fd());
        let file = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
        if !process.is_alive() {
            return Err("its process has ended".into());
        }
        Memory::take_over(File::from(file)).map_err(|error| error.to_string())
    }
}

fn failed(error: Errno) -> String {
    match error {
        Errno::PERM | Errno::ACCESS => {
            "CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN is missing; run with sudo".to_owned()
        }
        other => format!("/proc/PID/map_files: {other}"),
    }
}

/// The device of all memory files.
fn memory_files() -> std::io::Result<u64> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = File::from(rustix::fs::memfd_create("scalpel-device", flags)?);
    Ok(file.metadata()?.dev())
}
