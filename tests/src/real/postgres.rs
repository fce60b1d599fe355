//! A PostgreSQL server in a folder of its own, reachable by a Unix socket in it only.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::bail;
use rustix::process::Signal;
use tempfile::TempDir;

use super::programs::Programs;
use crate::child::{self, PATIENCE, Running};

const BIN: &str = "usr/lib/postgresql/15/bin";

/// It refuses to run as root.
const NOBODY: u32 = 65534;

/// A running server.
pub struct Server<'a> {
    programs: &'a Programs,
    program: PathBuf,
    folder: TempDir,
    running: Running,
}

impl<'a> Server<'a> {
    /// Makes a database and starts a server on it.
    pub fn start(programs: &'a Programs) -> anyhow::Result<Self> {
        let program = programs.find(&format!("{BIN}/postgres"))?;
        let folder = TempDir::with_prefix("scalpel-postgres-")?;
        chown(folder.path(), Some(NOBODY), Some(NOBODY))?;
        let data = folder.path().join("data");
        let mut initdb = client(programs, "initdb", folder.path())?;
        initdb
            .args(["--no-sync", "--auth=trust", "-U", "scalpel", "-D"])
            .arg(&data);
        child::run(initdb)?.expect_code(0)?;
        let mut postgres = client(programs, "postgres", folder.path())?;
        postgres.arg("-D").arg(&data).arg("-k").arg(folder.path());
        postgres.args([
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=off",
            "-c",
            "shared_buffers=32MB",
        ]);
        let mut running = Running::start(postgres)?;
        running.stderr_line(|line| line.contains("ready to accept connections"))?;
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

    /// Its first process.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Its folder, which goes with it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, name: &str, args: &[&str]) -> anyhow::Result<Command> {
        let mut command = client(self.programs, name, self.folder())?;
        command
            .env("PGHOST", self.folder())
            .env("PGUSER", "scalpel")
            .args(args);
        Ok(command)
    }

    /// Starts a client program and does not wait for it.
    pub fn start_client(&self, name: &str, args: &[&str]) -> anyhow::Result<Running> {
        Running::start(self.command(name, args)?)
    }

    /// Runs a client program and returns what it printed.
    pub fn run(&self, name: &str, args: &[&str]) -> anyhow::Result<String> {
        Ok(child::run(self.command(name, args)?)?
            .expect_code(0)?
            .stdout)
    }

    /// The answer to a query, fields divided by `|`.
    pub fn query(&self, sql: &str) -> anyhow::Result<String> {
        Ok(self
            .run("psql", &["-qAtX", "-d", "postgres", "-c", sql])?
            .trim()
            .to_owned())
    }

    /// The processes that serve the clients of pgbench, once there are `count` of them and they work.
    pub fn backends_of_pgbench(&self, count: usize) -> anyhow::Result<Vec<u32>> {
        let sql = "select pid from pg_stat_activity where application_name = 'pgbench' and query ~ '^(BEGIN|UPDATE|INSERT|END|SELECT abalance)'";
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let answer = self.query(sql)?;
            let pids: Vec<u32> = answer
                .lines()
                .filter_map(|line| line.parse().ok())
                .collect();
            if pids.len() >= count {
                return Ok(pids);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("pgbench did not begin its transactions in {PATIENCE:?}")
    }

    /// A fast shutdown, which PostgreSQL calls clean.
    pub fn stop(self) -> anyhow::Result<()> {
        self.running.signal(Signal::INT)?;
        self.running.wait()?.expect_code(0)?;
        Ok(())
    }
}

fn client(programs: &Programs, name: &str, folder: &Path) -> anyhow::Result<Command> {
    let mut command = programs.command(&programs.find(&format!("{BIN}/{name}"))?)?;
    command
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir(folder)
        .env("HOME", folder);
    Ok(command)
}
