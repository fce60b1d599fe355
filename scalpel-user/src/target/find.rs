//! Which processes there are, and which have a given name.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

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
