//! A process that a test started: bounded waits, signals by pid, and never one left behind.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// After this long a process hangs, and the test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Time is counted in these: a machine that stands still in between, or is frozen, is no process that hangs.
const SLICE: Duration = Duration::from_millis(500);

fn slices(patience: Duration) -> u128 {
    patience.as_millis() / SLICE.as_millis()
}

/// A child whose output is collected while it runs.
pub struct Running {
    child: Child,
    name: String,
    stdout: Lines,
    stderr: Lines,
}

/// How a process ended, and what it wrote.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Wait status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Ended {
    /// Exit code, or 128 + signal as a shell shows it.
    pub fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Fails unless the exit code is `expect`; the error carries both outputs.
    pub fn expect_code(self, expect: i32) -> anyhow::Result<Self> {
        if self.code() == expect {
            return Ok(self);
        }
        bail!(
            "exit code {} where {expect} was expected\nstdout: {}\nstderr: {}",
            self.code(),
            self.stdout,
            self.stderr
        )
    }
}

impl Running {
    /// Starts `command` with piped stdin, stdout and stderr.
    pub fn start(mut command: Command) -> anyhow::Result<Self> {
        let name = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let stdout = Lines::of(child.stdout.take().context("no stdout")?);
        let stderr = Lines::of(child.stderr.take().context("no stderr")?);
        Ok(Self {
            child,
            name,
            stdout,
            stderr,
        })
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line on stdout that `accept` likes.
    pub fn stdout_line(&mut self, accept: impl Fn(&str) -> bool) -> anyhow::Result<String> {
        self.stdout
            .until(accept)
            .with_context(|| format!("stdout of {}; stderr: {}", self.name, self.stderr.text))
    }

    /// Waits for a line on stderr that `accept` likes.
    pub fn stderr_line(&mut self, accept: impl Fn(&str) -> bool) -> anyhow::Result<String> {
        self.stderr
            .until(accept)
            .with_context(|| format!("stderr of {}; it said: {}", self.name, self.stderr.text))
    }

    /// Writes to its stdin.
    pub fn say(&mut self, text: &str) -> anyhow::Result<()> {
        use std::io::Write as _;
        let stdin = self.child.stdin.as_mut().context("stdin is closed")?;
        stdin
            .write_all(text.as_bytes())
            .and_then(|()| stdin.flush())
            .with_context(|| format!("stdin of {}", self.name))
    }

    /// Closes its stdin.
    pub fn hang_up(&mut self) {
        self.child.stdin = None;
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(self.id()?, signal).with_context(|| format!("cannot signal {}", self.name))
    }

    /// Whether it has not ended yet.
    pub fn is_alive(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Closes its stdin and waits for its end; kills it and fails when it takes longer than [`PATIENCE`].
    pub fn wait(mut self) -> anyhow::Result<Ended> {
        self.hang_up();
        // One that was seen to have ended has no number any more.
        if self.is_alive()? && !ends_within(self.id()?, PATIENCE)? {
            self.child.kill()?;
            bail!(
                "{} did not end in {PATIENCE:?}; stderr: {}",
                self.name,
                self.stderr.rest()
            );
        }
        let status = self.child.wait()?;
        Ok(Ended {
            status,
            stdout: self.stdout.rest(),
            stderr: self.stderr.rest(),
        })
    }

    fn id(&self) -> anyhow::Result<Pid> {
        Pid::from_raw(self.child.id().cast_signed()).ok_or_else(|| anyhow!("pid 0"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

/// Runs a command to its end.
pub fn run(command: Command) -> anyhow::Result<Ended> {
    Running::start(command)?.wait()
}

fn ends_within(pid: Pid, patience: Duration) -> anyhow::Result<bool> {
    let fd = pidfd_open(pid, PidfdFlags::empty())?;
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let timeout = Timespec::try_from(SLICE)?;
    for _ in 0..slices(patience) {
        if poll(&mut fds, Some(&timeout))? > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The lines of a pipe, read by a thread so that the writer never blocks.
struct Lines {
    incoming: Receiver<String>,
    reader: Option<JoinHandle<()>>,
    text: String,
}

impl Lines {
    fn of(pipe: impl Read + Send + 'static) -> Self {
        let (sender, incoming) = channel();
        let reader = std::thread::spawn(move || {
            let mut pipe = BufReader::new(pipe);
            let mut line = Vec::new();
            while pipe.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                if sender
                    .send(String::from_utf8_lossy(&line).into_owned())
                    .is_err()
                {
                    break;
                }
                line.clear();
            }
        });
        Self {
            incoming,
            reader: Some(reader),
            text: String::new(),
        }
    }

    fn until(&mut self, accept: impl Fn(&str) -> bool) -> anyhow::Result<String> {
        let mut waited = Duration::ZERO;
        loop {
            let asked = Instant::now();
            let incoming = self.incoming.recv_timeout(SLICE);
            waited += asked.elapsed().min(SLICE);
            match incoming {
                Ok(line) => {
                    self.text.push_str(&line);
                    if accept(&line) {
                        return Ok(line);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("ended before the expected line: {}", self.text)
                }
            }
            if waited >= PATIENCE {
                bail!(
                    "the expected line did not come in {PATIENCE:?}: {}",
                    self.text
                );
            }
        }
    }

    /// Everything, up to the end of the pipe.
    fn rest(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            let deadline = Instant::now() + Duration::from_secs(5);
            while let Ok(line) = self
                .incoming
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                self.text.push_str(&line);
            }
            drop(reader);
        }
        std::mem::take(&mut self.text)
    }
}
