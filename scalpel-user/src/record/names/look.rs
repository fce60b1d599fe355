//! Looking at processes of the host that nobody asked for: many, most of them for a short time, with the same files.
//!
//! A file is opened once for all processes whose maps say that it is the same. What the kernel told of a process that is gone
//! leads to files by their paths alone: to what is there now, and where nothing is, to what was there when it was first seen.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use rustix::process::{Resource, getrlimit};

use super::{Names, open};
use crate::event::{Control, Pid, Tid};
use crate::function::UnknownReason;
use crate::record::everybody::{ENDED, Eyes};
use crate::record::subject::Subject;
use crate::survey::ImageReader;
use crate::symbol::{Backing, Mapping, Symbolizer};
use crate::target::{self, FileId, Process, TargetError};

/// Descriptors that everything else takes: rings, probes, readers and results.
const KEPT_FREE: u64 = 256;

/// A path in a mount namespace.
type Place = (u64, PathBuf);

impl Names {
    /// Of what is recorded.
    pub(in crate::record) fn of(subject: &Subject) -> Self {
        match subject.is_host {
            true => Self::of_host(),
            false => Self::new(),
        }
    }

    /// Of all processes of the host. Functions around the sampled addresses are read, and no debug information: of every
    /// program that runs here it would be more than the rest of the recording.
    fn of_host() -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = limit.saturating_sub(KEPT_FREE);
        Self {
            most_held: usize::try_from(most).unwrap_or(usize::MAX),
            ..Self::with(Symbolizer::frugal(Box::new(ImageReader)))
        }
    }

    fn meet(&mut self, process: &Process, space: Pid) -> Result<(), TargetError> {
        let pid = process.pid();
        let maps = process.maps()?;
        if let Some(&inner) = process.status()?.namespace_pids.last() {
            self.inner_pids.insert(pid, (space, Pid(inner)));
        }
        let namespace = self.live_in(&[pid], space);
        let code = || maps.iter().filter(|mapping| mapping.executable);
        let new = code().filter(|mapping| self.held_as(namespace, mapping).is_none());
        let new: Vec<target::Mapping> = new.cloned().collect();
        let mut failed: FxHashMap<FileId, UnknownReason> = FxHashMap::default();
        for image in process.images_of(&new) {
            let kept = image.file.as_ref().map_err(ToString::to_string);
            let kept = kept.and_then(|file| self.keep((namespace, image.path.clone()), file));
            match kept {
                Ok(place) => drop(self.identities.insert(place, image.id)),
                Err(why) => drop(failed.insert(image.id, UnknownReason::FileGone(why))),
            }
        }
        for mapping in code() {
            let backing = match &mapping.backing {
                target::Backing::File { id, path, .. } => {
                    let file = self.held_as(namespace, mapping);
                    let why = || failed.get(id).cloned().unwrap_or(UnknownReason::Unmapped);
                    Backing::File(path.clone(), file.ok_or_else(why))
                }
                target::Backing::Kernel { name } if name == "[vdso]" => Backing::Vdso,
                target::Backing::Kernel { .. } | target::Backing::Anonymous { .. } => {
                    Backing::Anonymous
                }
            };
            let (start, end) = (mapping.start.0, mapping.end.0);
            let offset = mapping.offset;
            let mapping = Mapping {
                start,
                end,
                offset,
                backing,
            };
            self.symbolizer.map(space, mapping);
        }
        Ok(())
    }

    /// The mount namespace of an address space: that of the first of these processes that is there, else ours.
    fn live_in(&mut self, processes: &[Pid], space: Pid) -> u64 {
        let of = |pid: String| std::fs::metadata(format!("/proc/{pid}/ns/mnt"));
        let pids = processes.iter().map(ToString::to_string);
        let mut found = pids
            .chain(["self".to_owned()])
            .filter_map(|pid| of(pid).ok());
        let namespace = found.next().map_or(0, |meta| meta.ino());
        self.namespaces.insert(space, namespace);
        namespace
    }

    /// The file of a mapping, if it is open already.
    fn held_as(&self, namespace: u64, mapping: &target::Mapping) -> Option<Arc<File>> {
        let target::Backing::File { id, path, .. } = &mapping.backing else {
            return None;
        };
        let place = (namespace, path.clone());
        let is_it = self.identities.get(&place) == Some(id);
        self.held.get(&place).filter(|_| is_it).map(Arc::clone)
    }

    /// Holds a file open, if there is room.
    fn keep(&mut self, place: Place, file: &Arc<File>) -> Result<Place, String> {
        if self.held.len() >= self.most_held && !self.held.contains_key(&place) {
            return Err("too many files are open".to_owned());
        }
        self.held.insert(place.clone(), Arc::clone(file));
        Ok(place)
    }

    /// What is at a path, as the first of these processes that is there sees it; else what was there when it was last seen.
    fn at_path(&mut self, processes: &[Pid], place: Place) -> Result<Arc<File>, UnknownReason> {
        let mut opened = Err(std::io::ErrorKind::NotFound.into());
        for pid in processes {
            opened = opened.or_else(|_: std::io::Error| open(*pid, &place.1));
        }
        match opened.map(Arc::new) {
            Ok(file) => {
                // Which one the maps call it is not known.
                self.identities.remove(&place);
                let kept = self.keep(place, &file).map_err(UnknownReason::FileGone);
                kept.map(|_place| file)
            }
            Err(error) => {
                let held = self.held.get(&place).map(Arc::clone);
                held.ok_or_else(|| UnknownReason::FileGone(error.to_string()))
            }
        }
    }
}

impl Eyes for Names {
    fn look(&mut self, pid: Pid, space: Pid) -> Result<String, String> {
        let looked = Process::open(pid).and_then(|process| {
            self.meet(&process, space)?;
            Ok(process.name().to_owned())
        });
        match looked {
            // It has nothing mapped.
            Err(TargetError::KernelThread { name, .. }) => Ok(name),
            Err(
                TargetError::NoSuchProcess { .. }
                | TargetError::Gone { .. }
                | TargetError::Zombie { .. },
            ) => Err(ENDED.into()),
            looked => looked.map_err(|error| error.to_string()),
        }
    }

    fn told(&mut self, processes: &[Pid], space: Pid, map: &Control) {
        let Control::Map {
            start,
            end,
            offset,
            path,
            ..
        } = map
        else {
            return;
        };
        let namespace = match self.namespaces.get(&space) {
            Some(known) => *known,
            None => self.live_in(processes, space),
        };
        let path = PathBuf::from(path);
        let file = self.at_path(processes, (namespace, path.clone()));
        self.symbolizer.map(
            space,
            Mapping {
                start: start.0,
                end: end.0,
                offset: *offset,
                backing: Backing::File(path, file),
            },
        );
    }

    fn inherit(&mut self, from: Pid, to: Pid) {
        if let Some(namespace) = self.namespaces.get(&from).copied() {
            self.namespaces.insert(to, namespace);
        }
        self.symbolizer.fork(from, to);
    }

    fn thread(&mut self, pid: Pid, tid: Tid) -> Option<String> {
        let name = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
        Some(name.trim_end_matches('\n').to_owned())
    }
}
