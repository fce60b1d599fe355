//! A fixture running as the target of `--pid`: it waits for the word before it works, and stays until told to go.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::child::{Ended, Running};
use crate::truth::Truth;

/// A fixture that waits: `ready` -> (attach) -> [`Target::work`] -> account -> [`Target::finish`].
pub struct Target {
    running: Running,
    path: PathBuf,
}

impl Target {
    /// Starts `program --wait ARGS` and waits until it is ready.
    pub fn start(program: &Path, args: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        command.arg("--wait").args(args);
        let mut running = Running::start(command)?;
        running.stdout_line(|line| line == "ready\n")?;
        Ok(Self {
            running,
            path: program.to_owned(),
        })
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Its executable.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets it work and returns its account; the process stays alive.
    pub fn work(&mut self) -> anyhow::Result<Truth> {
        self.running.say("go\n")?;
        let line = self
            .running
            .stdout_line(|line| line.starts_with("{\"calls\""))?;
        Truth::of(&line)
    }

    /// The process, for tests that talk to it themselves.
    pub fn running(&mut self) -> &mut Running {
        &mut self.running
    }

    /// Lets it end.
    pub fn finish(self) -> anyhow::Result<Ended> {
        self.running.wait()
    }
}
