//! No test may leave a process running: orphans of a step become our children, are named, and are ended.
use std::fs;

use anyhow::{Context, Result};
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid,
};

use super::counts::Counts;
use crate::cmd;

/// From here on a process whose parent ends becomes a child of this one.
pub(super) fn adopt() -> Result<()> {
    set_child_subreaper(Some(getpid())).context("becoming the subreaper of the tests")
}

/// Ends what `step` left running; each such process is a failure.
pub(super) fn end(step: &str) -> Counts {
    let mut counts = Counts::default();
    for pid in children() {
        if !ended(pid) {
            cmd::print(&format!(
                "error: {step} left a process running: {}",
                command_line(pid)
            ));
            counts += Counts::failed();
            if kill_process(pid, Signal::KILL)
                .and_then(|()| waitpid(Some(pid), WaitOptions::empty()))
                .is_err()
            {
                cmd::print(&format!("error: it could not be ended: {pid}"));
            }
        }
    }
    counts
}

/// Whether it has ended, or does so within a second: a test that kills its target need not wait for its orphans.
fn ended(pid: Pid) -> bool {
    let patience = 20;
    (0..patience).any(|_| {
        let gone = !matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(None));
        if !gone {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        gone
    })
}

fn children() -> Vec<Pid> {
    let tasks = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| list.split_whitespace().filter_map(pid).collect::<Vec<_>>())
        .collect()
}

fn pid(word: &str) -> Option<Pid> {
    Pid::from_raw(word.parse().ok()?)
}

fn command_line(pid: Pid) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = bytes
        .split(|&byte| byte == 0)
        .map(String::from_utf8_lossy)
        .collect();
    format!("{pid} {}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn an_orphan_that_runs_on_is_a_failure_and_is_ended() {
        adopt().unwrap();
        Command::new("sh")
            .args(["-c", "sleep 60 & exit 0"])
            .status()
            .unwrap();
        assert_eq!(end("a test").failed, 1);
        assert_eq!(end("a test"), Counts::default());
    }
}
