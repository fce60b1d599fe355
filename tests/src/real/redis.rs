//! A Redis server in a folder of its own, reachable by a Unix socket in it only.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use rustix::process::Signal;
use tempfile::TempDir;

use super::programs::Programs;
use crate::child::{self, Running};

/// A running server.
pub struct Server<'a> {
    programs: &'a Programs,
    program: PathBuf,
    folder: TempDir,
    running: Running,
}

impl<'a> Server<'a> {
    /// Starts an empty server.
    pub fn start(programs: &'a Programs) -> anyhow::Result<Self> {
        let program = programs.find("usr/bin/redis-check-rdb")?;
        let folder = TempDir::with_prefix("scalpel-redis-")?;
        let server = folder.path().join("redis-server");
        // The package's server is a link to its checker, which looks at its own name.
        std::os::unix::fs::symlink(&program, &server)?;
        let mut command = programs.command(&server)?;
        command.current_dir(folder.path()).args([
            "--port",
            "0",
            "--save",
            "",
            "--enable-debug-command",
            "yes",
        ]);
        command.arg("--unixsocket").arg(socket(folder.path()));
        let mut running = Running::start(command)?;
        running.stdout_line(|line| line.contains("ready to accept connections"))?;
        Ok(Self {
            programs,
            program,
            folder,
            running,
        })
    }

    /// Its program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Its folder, which goes with it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A client program that will talk to it.
    pub fn client(&self, name: &str) -> anyhow::Result<Command> {
        let mut command = self
            .programs
            .command(&self.programs.find(&format!("usr/bin/{name}"))?)?;
        command.arg("-s").arg(socket(self.folder.path()));
        Ok(command)
    }

    /// Runs its benchmark: `requests` each of commands whose outcome depends on nothing but their number.
    pub fn work(&self, requests: u64) -> anyhow::Result<()> {
        let mut command = self.client("redis-benchmark")?;
        command.args([
            "-q",
            "-P",
            "4",
            "-c",
            "4",
            "-t",
            "set,lpush,sadd,incr",
            "-n",
            &requests.to_string(),
        ]);
        child::run(command)?.expect_code(0)?;
        Ok(())
    }

    /// Who asks it and knows the answers.
    pub fn asker(&self) -> anyhow::Result<Asker> {
        Asker::of(&socket(self.folder.path()))
    }

    /// A digest of all its data.
    pub fn digest(&self) -> anyhow::Result<String> {
        let mut command = self.client("redis-cli")?;
        command.args(["debug", "digest"]);
        Ok(child::run(command)?.expect_code(0)?.stdout)
    }

    /// Ends it.
    pub fn stop(self) -> anyhow::Result<()> {
        self.running.signal(Signal::TERM)?;
        self.running.wait()?.expect_code(0)?;
        Ok(())
    }
}

/// A client that knows what each answer has to be. Its keys are its own.
pub struct Asker {
    answers: BufReader<UnixStream>,
    turns: u64,
}

impl Asker {
    fn of(socket: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(socket)
            .with_context(|| format!("cannot connect to {}", socket.display()))?;
        Ok(Self {
            answers: BufReader::new(stream),
            turns: 0,
        })
    }

    /// Writes, reads, adds up and forgets, in one go; fails at the first answer that is not what it has to be.
    pub fn turn(&mut self) -> anyhow::Result<()> {
        self.turns += 1;
        let (turn, key) = (self.turns, self.turns % 100);
        let word = format!("value-{turn}-of-{key}");
        let commands = [
            (format!("SET asker:{key} {word}"), "+OK".to_owned()),
            (format!("STRLEN asker:{key}"), format!(":{}", word.len())),
            ("INCR asker:turns".to_owned(), format!(":{turn}")),
            (format!("GETDEL asker:{key}"), format!("${}", word.len())),
            (String::new(), word.clone()),
            (format!("EXISTS asker:{key}"), ":0".to_owned()),
        ];
        let asked: Vec<&str> = commands
            .iter()
            .map(|(command, _)| command.as_str())
            .filter(|command| !command.is_empty())
            .collect();
        let text = asked.join("\r\n") + "\r\n";
        self.answers.get_mut().write_all(text.as_bytes())?;
        for (command, expect) in &commands {
            let mut answer = String::new();
            self.answers.read_line(&mut answer)?;
            ensure!(
                answer.trim_end() == expect,
                "turn {turn}, {command:?}: {answer:?} where {expect:?} had to come"
            );
        }
        Ok(())
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("redis.sock")
}
