//! How long a program ran that another process started: from its exec to its end, as the kernel knows them.
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// One run of a program.
pub(super) struct Life {
    file: PathBuf,
    begun: Option<(Instant, OwnedFd)>,
    lasted: Option<Duration>,
}

/// Time between two looks: the error of the beginning.
const SLICE: Duration = Duration::from_millis(1);

impl Life {
    /// Of a program that has not begun yet.
    pub(super) fn of(program: &str) -> Result<Self> {
        Ok(Self {
            file: executed(program)?,
            begun: None,
            lasted: None,
        })
    }

    /// Looks at the children of `parent`; takes a millisecond, or as long as the program still runs, whichever is less.
    pub(super) fn look(&mut self, parent: u32) -> Result<()> {
        let Some((begun, program)) = self.begun.as_ref().filter(|_| self.lasted.is_none()) else {
            std::thread::sleep(SLICE);
            if self.begun.is_none() {
                self.begun = begun(parent, &self.file);
            }
            return Ok(());
        };
        let mut end = [PollFd::new(program, PollFlags::IN)];
        if poll(&mut end, Some(&Timespec::try_from(SLICE)?))? > 0 {
            self.lasted = Some(begun.elapsed());
        }
        Ok(())
    }

    /// How long it ran.
    pub(super) fn lasted(&self) -> Result<Duration> {
        self.lasted
            .with_context(|| format!("{} was not seen to begin and end", self.file.display()))
    }
}

/// The file that is executed by this name: one without a folder is looked for in the path.
pub(super) fn executed(program: &str) -> Result<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&paths).map(|folder| folder.join(program));
    let place = if program.contains('/') {
        Some(PathBuf::from(program))
    } else {
        places.find(|place| place.exists())
    };
    let place = place.with_context(|| format!("no {program} in the path"))?;
    fs::canonicalize(&place).with_context(|| place.display().to_string())
}

/// The child that executes `file`, from now on.
fn begun(parent: u32, file: &Path) -> Option<(Instant, OwnedFd)> {
    let runs_it = |pid: &i32| {
        fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|executed| executed == file)
    };
    let pid = children(parent).into_iter().find(runs_it)?;
    let begun = Instant::now();
    let program = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    Some((begun, program))
}

/// Children belong to the thread that started them.
fn children(parent: u32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{parent}/task"));
    let lists = threads
        .into_iter()
        .flatten()
        .flatten()
        .map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    let lists: Vec<String> = lists.collect();
    let words = lists.iter().flat_map(|list| list.split_whitespace());
    words.filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_seen_from_its_beginning_to_its_end() {
        let mut life = Life::of("sleep").unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        while life.begun.is_none() {
            life.look(std::process::id()).unwrap();
        }
        assert!(life.lasted().is_err());
        child.kill().unwrap();
        while life.lasted.is_none() {
            life.look(std::process::id()).unwrap();
        }
        child.wait().unwrap();
    }

    #[test]
    fn what_never_begins_has_not_lasted() {
        let mut life = Life::of("/bin/true").unwrap();
        life.look(std::process::id()).unwrap();
        assert!(life.lasted().is_err());
    }
}
