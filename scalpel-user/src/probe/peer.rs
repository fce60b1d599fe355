//! Who is at the other end: whether it may take part, and what its threads are called outside of its pid namespace.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use scalpel_common::wire::SOCKET_VARIABLE;

use crate::event::{Pid, Tid};
use crate::target::{Process, Status};

/// How many generations between a child and a target are looked through.
const GENERATIONS: usize = 64;

/// Bit of a thread number that stands for one of another namespace whose thread was gone before it could be looked up.
const NOT_TRANSLATED: u32 = 1 << 30;

/// Whose probes may take part.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub(super) pids: Vec<Pid>,
    /// A process that was started with it in its environment belongs to the recording, wherever its parents went.
    pub(super) socket: PathBuf,
}

impl Watched {
    /// Whether a process is a target, a descendant of one, or was started with this recording's own socket.
    pub(super) fn admits(&self, process: &Process) -> bool {
        self.descends(process.pid()) || self.has_our_socket(process)
    }

    /// The targets, then their descendants.
    pub(super) fn members(&self) -> Vec<Pid> {
        let others = all_pids().filter(|pid| !self.pids.contains(pid) && self.descends(*pid));
        self.pids.iter().copied().chain(others).collect()
    }

    /// Whether a process is a target or a descendant of one.
    pub(super) fn descends(&self, pid: Pid) -> bool {
        let mut at = pid;
        for _ in 0..GENERATIONS {
            if self.pids.contains(&at) {
                return true;
            }
            match fs::read(format!("/proc/{at}/status")) {
                Ok(text) => at = Pid(Status::parse(&text).parent),
                Err(_gone) => return false,
            }
            if at.0 <= 1 {
                return false;
            }
        }
        false
    }

    fn has_our_socket(&self, process: &Process) -> bool {
        let Ok(environment) = process.read("environ") else {
            return false;
        };
        let ours = [
            SOCKET_VARIABLE.as_bytes(),
            b"=",
            self.socket.as_os_str().as_bytes(),
        ]
        .concat();
        environment
            .split(|&byte| byte == 0)
            .any(|entry| entry == ours)
    }
}

/// Inode of a process's pid namespace.
fn pid_namespace(pid: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

/// The process that a segment was made for, and those that were forked from it.
#[derive(Debug)]
pub(super) struct Family {
    owner: Process,
    /// Its number in its own namespace, and that namespace, if that is not ours.
    inner: Option<(u32, PathBuf)>,
    /// Inode of the segment's file.
    inode: u64,
    known: FxHashMap<u32, Option<Pid>>,
}

impl Family {
    pub(super) fn new(owner: Process, inode: u64) -> Self {
        let own = pid_namespace("self");
        let theirs =
            pid_namespace(&owner.pid().to_string()).filter(|theirs| Some(theirs) != own.as_ref());
        let number = owner
            .status()
            .ok()
            .and_then(|status| status.namespace_pids.last().copied());
        Self {
            inner: theirs.and_then(|namespace| Some((number?, namespace))),
            owner,
            inode,
            known: FxHashMap::default(),
        }
    }

    /// The process the segment was made for.
    pub(super) const fn owner(&self) -> &Process {
        &self.owner
    }

    /// The numbers of a thread outside of its namespace. `None` = it is not of this family.
    pub(super) fn outside(&mut self, pid: u32, tid: u32) -> Option<(Pid, Tid)> {
        let process = match self.known.get(&pid) {
            Some(known) => (*known)?,
            None => {
                let found = self.find(pid);
                self.known.insert(pid, found);
                found?
            }
        };
        if self.inner.is_none() {
            return Some((process, Tid(tid)));
        }
        let found =
            inner_thread(process, tid).unwrap_or(Tid(tid & (NOT_TRANSLATED - 1) | NOT_TRANSLATED));
        Some((process, found))
    }

    /// The numbers of a thread of the owner itself outside of its namespace.
    pub(super) fn thread(&mut self, tid: u32) -> Option<(Pid, Tid)> {
        let number = self.inner.as_ref().map(|(number, _)| *number);
        self.outside(number.unwrap_or(self.owner.pid().0), tid)
    }

    fn find(&self, pid: u32) -> Option<Pid> {
        let Some((owner, namespace)) = &self.inner else {
            return (pid == self.owner.pid().0 || self.may_be_forked(pid)).then_some(Pid(pid));
        };
        if pid == *owner {
            return Some(self.owner.pid());
        }
        all_pids().find(|&candidate| {
            let status = fs::read(format!("/proc/{candidate}/status")).unwrap_or_default();
            Status::parse(&status).namespace_pids.last() == Some(&pid)
                && pid_namespace(&candidate.to_string()).as_ref() == Some(namespace)
                && self.may_be_forked(candidate.0)
        })
    }

    /// A forked child has the segment mapped; one that is gone already cannot be asked, and cannot be anybody else either.
    fn may_be_forked(&self, pid: u32) -> bool {
        pid != 0 && maps_file(Pid(pid), self.inode).unwrap_or(true)
    }

    /// Whether the owner, or a process that was forked from it, still runs.
    pub(super) fn lives(&self) -> bool {
        self.owner.is_alive()
            || self
                .known
                .values()
                .flatten()
                .any(|&pid| maps_file(pid, self.inode) == Some(true))
    }
}

fn all_pids() -> impl Iterator<Item = Pid> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().map(Pid))
}

/// The thread that has this number in its own namespace.
fn inner_thread(process: Pid, tid: u32) -> Option<Tid> {
    let folder = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let mut threads =
        folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().map(Tid));
    threads.find(|thread| {
        let status = fs::read(format!("/proc/{process}/task/{thread}/status")).unwrap_or_default();
        Status::parse(&status).namespace_pids.last() == Some(&tid)
    })
}

/// Whether a process has the segment of that inode mapped; `None` = it is gone, or will not tell.
pub(super) fn maps_file(pid: Pid, inode: u64) -> Option<bool> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    if maps.is_empty() {
        return None;
    }
    let number = inode.to_string();
    let ours = |line: &str| {
        line.contains(scalpel_common::segment::MEMORY_NAME)
            && line.split_ascii_whitespace().nth(4) == Some(number.as_str())
    };
    Some(maps.lines().any(ours))
}

/// Whether a thread runs no more.
pub(super) fn is_gone(pid: Pid, tid: Tid) -> bool {
    tid.0 & NOT_TRANSLATED == 0 && !Path::new(&format!("/proc/{pid}/task/{tid}")).exists()
}

/// Name of a thread.
pub(super) fn thread_name(pid: Pid, tid: Tid) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    Some(super::names::clean(name.trim_ascii_end()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn sleeper(socket: &str) -> Child {
        Command::new("sleep")
            .arg("100")
            .env(SOCKET_VARIABLE, socket)
            .spawn()
            .unwrap()
    }

    fn admits(pids: &[u32], socket: &str, of: u32) -> bool {
        // Between fork and exec a child still has our own environment, and within exec, when its name has changed, none.
        let is_ready = || {
            fs::read_to_string(format!("/proc/{of}/comm")).unwrap() == "sleep\n"
                && !fs::read(format!("/proc/{of}/environ")).unwrap().is_empty()
        };
        while !is_ready() {
            std::thread::yield_now();
        }
        let watched = Watched {
            pids: pids.iter().copied().map(Pid).collect(),
            socket: socket.into(),
        };
        watched.admits(&Process::open(Pid(of)).unwrap())
    }

    #[test]
    fn targets_their_children_and_holders_of_the_socket_may_take_part() {
        let mut child = sleeper("/run/x.sock");
        let pid = child.id();
        assert!(admits(&[pid], "/y", pid));
        assert!(
            admits(&[std::process::id()], "/y", pid),
            "a child of a target"
        );
        assert!(admits(&[], "/run/x.sock", pid), "it was given the socket");
        assert!(!admits(&[], "/y", pid));
        assert!(!admits(&[pid + 1], "/run/x.soc", pid));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_does_not_map_the_segment_is_no_member() {
        let mut child = sleeper("");
        let mut family = Family::new(Process::open(Pid(child.id())).unwrap(), 1);
        let (pid, own) = (child.id(), std::process::id());
        assert_eq!(family.outside(pid, 7), Some((Pid(pid), Tid(7))));
        assert_eq!(family.outside(own, 7), None, "we live and do not map it");
        assert_eq!(family.outside(0, 7), None);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!family.lives());
    }
}
