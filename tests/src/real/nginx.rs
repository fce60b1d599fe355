//! An nginx in a folder of its own, on a free port of the loopback address, which serves one file.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::process::Signal;
use tempfile::TempDir;

use super::node;
use super::programs::Programs;
use crate::child::Running;

/// What it serves.
const PAGE: &str = "What nginx answers, again and again, must stay what it is.\n";

/// A running server: one process.
pub struct Server {
    folder: TempDir,
    program: PathBuf,
    running: Running,
    port: u16,
}

impl Server {
    /// Starts it.
    pub fn start(programs: &Programs) -> anyhow::Result<Self> {
        let program = programs.find("usr/sbin/nginx")?;
        let folder = TempDir::with_prefix("scalpel-nginx-")?;
        fs::write(folder.path().join("index.html"), PAGE)?;
        let port = free_port()?;
        let configuration = format!(
            "daemon off; master_process off; pid nginx.pid; error_log stderr; \
             events {{ worker_connections 256; }} \
             http {{ access_log off; server {{ listen 127.0.0.1:{port}; root {0}; }} \
             client_body_temp_path {0}/body; proxy_temp_path {0}/proxy; fastcgi_temp_path {0}/fastcgi; \
             uwsgi_temp_path {0}/uwsgi; scgi_temp_path {0}/scgi; }}\n",
            folder.path().display()
        );
        fs::write(folder.path().join("nginx.conf"), configuration)?;
        let mut command: Command = programs.command(&program)?;
        command
            .arg("-p")
            .arg(folder.path())
            .args(["-c", "nginx.conf", "-e", "stderr"]);
        let mut server = Self {
            running: Running::start(command)?,
            folder,
            program,
            port,
        };
        server.listens()?;
        Ok(server)
    }

    fn listens(&mut self) -> anyhow::Result<()> {
        for _ in 0..500 {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() {
                return Ok(());
            }
            ensure!(self.running.is_alive()?, "nginx does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("nginx does not listen on port {}", self.port)
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

    /// Where it answers.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// Asks it so often; fails where an answer is not the page.
    pub fn ask(&self, count: usize) -> anyhow::Result<()> {
        let client = node::Client::of(self.port);
        for _ in 0..count {
            let answer = client.get("/")?;
            ensure!(answer == PAGE, "it answers {answer:?}");
        }
        Ok(())
    }

    /// Ends it.
    pub fn stop(self) -> anyhow::Result<()> {
        self.running.signal(Signal::QUIT)?;
        self.running.wait()?.expect_code(0).context("nginx")?;
        Ok(())
    }
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}
