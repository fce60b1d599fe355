//! Which processes there are, and which have a given name.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::process::comm;
use super::{Process, TargetError};
use crate::event::Pid;

/// Longest `comm` that the kernel keeps.
const COMM_LENGTH: usize = 15;

/// A process that can be watched, for lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Process.
    pub pid: Pid,
    /// Name.
    pub name: String,
    /// Owner.
    pub uid: u32,
    /// Number of threads.
    pub threads: u32,
    /// Program, or why it is not known.
    pub exe: Result<String, String>,
}

/// All processes that can be watched, except ourselves, in order of pid.
pub fn processes() -> Vec<Found> {
    let ourselves = Pid(std::process::id());
    let open = |pid: Pid| Process::open(pid).ok().filter(|_| pid != ourselves);
    all_pids()
        .into_iter()
        .filter_map(open)
        .filter_map(|process| describe(&process).ok())
        .collect()
}

/// All processes with this name now. The name is compared as the kernel keeps it, cut at 15 bytes.
pub fn by_comm(name: &str) -> Result<Vec<Process>, TargetError> {
    let ourselves = Pid(std::process::id());
    let mut others = Vec::new();
    let mut found = Vec::new();
    for pid in all_pids().into_iter().filter(|&pid| pid != ourselves) {
        let Ok(text) = fs::read(format!("/proc/{pid}/comm")) else {
            continue;
        };
        let text = comm(&text);
        if same_comm(name, &text) {
            found.extend(Process::open(pid));
        } else {
            others.push(text);
        }
    }
    if found.is_empty() {
        return Err(TargetError::NoSuchComm {
            comm: name.to_owned(),
            nearest: nearest(name, others),
        });
    }
    Ok(found)
}

/// Where cgroups are.
const CGROUPS: &str = "/sys/fs/cgroup";

/// File of a cgroup with its processes.
const MEMBERS: &str = "cgroup.procs";

/// A cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// The cgroup at this path, or at this path under the usual place.
    pub fn find(path: &Path) -> Result<Self, TargetError> {
        let below = Path::new(CGROUPS).join(path.strip_prefix("/").unwrap_or(path));
        [path.to_owned(), below]
            .into_iter()
            .find(|candidate| candidate.join(MEMBERS).is_file())
            .map(Self)
            .ok_or_else(|| TargetError::NoSuchCgroup {
                path: path.to_owned(),
            })
    }

    /// Whether it is there still.
    pub fn exists(&self) -> bool {
        self.0.is_dir()
    }

    /// Its processes and those of the cgroups below it now, except ourselves.
    pub fn members(&self) -> Vec<Pid> {
        let ourselves = std::process::id();
        let mut found = Vec::new();
        let mut folders = vec![self.0.clone()];
        while let Some(folder) = folders.pop() {
            let members = fs::read_to_string(folder.join(MEMBERS)).unwrap_or_default();
            let pids = members.lines().filter_map(|line| line.parse::<u32>().ok());
            // 0 is a process that our pid namespace does not show.
            found.extend(pids.filter(|&pid| pid != ourselves && pid != 0).map(Pid));
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            folders.extend(below.map(|entry| entry.path()));
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// How many other processes run a program that one of these runs.
pub fn others_of_the_same_program(processes: &[Process]) -> usize {
    let program = |pid: Pid| {
        let file = fs::metadata(format!("/proc/{pid}/exe")).ok()?;
        Some((file.dev(), file.ino()))
    };
    let own: Vec<_> = processes
        .iter()
        .filter_map(|process| program(process.pid()))
        .collect();
    let is_other = |pid: &Pid| processes.iter().all(|process| process.pid() != *pid);
    all_pids()
        .into_iter()
        .filter(is_other)
        .filter(|&pid| program(pid).is_some_and(|file| own.contains(&file)))
        .count()
}

fn describe(process: &Process) -> Result<Found, TargetError> {
    let status = process.status()?;
    Ok(Found {
        pid: process.pid(),
        name: status.name,
        uid: status.uid,
        threads: status.threads,
        exe: process
            .exe()
            .map(|path| path.to_string_lossy().into_owned())
            .map_err(|error| error.to_string()),
    })
}

fn all_pids() -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    let mut pids: Vec<Pid> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().map(Pid))
        .collect();
    pids.sort_unstable();
    pids
}

fn same_comm(asked: &str, comm: &str) -> bool {
    asked == comm
        || (asked.len() > COMM_LENGTH
            && asked.as_bytes().get(..COMM_LENGTH) == Some(comm.as_bytes()))
}

/// Up to three names that contain what was asked for, or are contained in it, whatever the case.
fn nearest(asked: &str, mut names: Vec<String>) -> Vec<String> {
    let asked = asked.to_lowercase();
    let close = |name: &String| {
        let name = name.to_lowercase();
        !name.is_empty() && !asked.is_empty() && (name.contains(&asked) || asked.contains(&name))
    };
    names.retain(close);
    names.sort_unstable();
    names.dedup();
    names.truncate(3);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_found_by_its_path_and_its_members_are_those_below_it_too() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("below");
        fs::create_dir(&below).unwrap();
        let own = std::process::id();
        fs::write(folder.path().join(MEMBERS), format!("0\n7\n{own}\n")).unwrap();
        fs::write(below.join(MEMBERS), "5\n7\n").unwrap();
        let cgroup = Cgroup::find(folder.path()).unwrap();
        assert_eq!(cgroup.members(), [Pid(5), Pid(7)]);
        drop(folder);
        assert!(!cgroup.exists() && cgroup.members().is_empty());
        let error = Cgroup::find(Path::new("no/such")).unwrap_err();
        assert!(error.to_string().contains("no/such"), "{error}");
    }

    #[test]
    fn long_names_are_compared_as_the_kernel_cuts_them() {
        assert!(same_comm("redis", "redis"));
        assert!(!same_comm("redis", "redis-server"));
        assert!(same_comm("a-very-long-program-name", "a-very-long-pro"));
        assert!(!same_comm("a-very-long-prx", "a-very-long-pro"));
    }

    #[test]
    fn a_wrong_name_gets_the_right_one_as_a_hint() {
        let names = || {
            ["redis-server", "bash", "redis-server"]
                .map(String::from)
                .to_vec()
        };
        assert_eq!(nearest("Redis", names()), ["redis-server"]);
        assert_eq!(nearest("zsh", names()), Vec::<String>::new());
        let message = TargetError::NoSuchComm {
            comm: "redis".into(),
            nearest: nearest("redis", names()),
        }
        .to_string();
        assert!(message.contains("did you mean redis-server?"), "{message}");
    }

    #[test]
    fn processes_are_listed_without_ourselves() {
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        let found = processes();
        let sleeper = found
            .iter()
            .find(|found| found.pid.0 == child.id())
            .cloned();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(sleeper.expect("our child is listed").threads, 1);
        assert!(found.iter().all(|found| found.pid.0 != std::process::id()));
    }
}
