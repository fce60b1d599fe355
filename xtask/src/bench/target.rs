//! The program that is traced: functions called on demand, and how long that took.
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cmd;

/// How long an attach or a detach may take before the bench gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of a function that a probe may change: every tracer's site lies in them.
const LOOKED_AT: usize = 32;

/// A running target.
pub(super) struct Target {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    addresses: HashMap<String, u64>,
    memory: File,
    /// The program's file.
    pub(super) path: PathBuf,
}

impl Target {
    /// Compiles and starts `source` of the bench's folder.
    pub(super) fn start(source: &str) -> Result<Self> {
        let path = compile(source)?;
        let mut child = cmd::command(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().context("no stdin")?;
        let stdout = BufReader::new(child.stdout.take().context("no stdout")?);
        let memory = File::open(format!("/proc/{}/mem", child.id()))
            .context("reading the target's memory")?;
        let mut target = Self {
            child,
            stdin,
            stdout,
            addresses: HashMap::new(),
            memory,
            path,
        };
        loop {
            let line = target.line()?;
            let Some((name, address)) = line.split_once(" 0x") else {
                break;
            };
            target
                .addresses
                .insert(name.to_owned(), u64::from_str_radix(address, 16)?);
        }
        Ok(target)
    }

    /// Process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// ns per call of `function`, over about a quarter of a second.
    pub(super) fn ns_per_call(&mut self, function: &str) -> Result<f64> {
        let trial = 500;
        let ns = self.call(function, trial)? / trial;
        let count = (250_000_000 / ns.max(1)).clamp(trial, 2_000_000);
        Ok(self.call(function, count)? as f64 / count as f64)
    }

    fn call(&mut self, function: &str, count: u64) -> Result<u64> {
        self.ask(&format!("call {function} {count}"))
    }

    /// Calls `function` so often a second for so long; how often it really did.
    pub(super) fn rate(&mut self, function: &str, hz: u64, lasts: Duration) -> Result<u64> {
        self.ask(&format!("rate {function} {hz} {}", lasts.as_millis()))
    }

    fn ask(&mut self, question: &str) -> Result<u64> {
        writeln!(self.stdin, "{question}")?;
        let answer = self.line()?;
        answer
            .parse()
            .with_context(|| format!("{question} was answered by: {answer}"))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// The first bytes of `function` as they are in memory.
    pub(super) fn text(&self, function: &str) -> Result<[u8; LOOKED_AT]> {
        let address = self
            .addresses
            .get(function)
            .with_context(|| format!("no function {function}"))?;
        let mut bytes = [0; LOOKED_AT];
        self.memory.read_exact_at(&mut bytes, *address)?;
        Ok(bytes)
    }

    /// Waits until the bytes of `function` are (or are not) `original`: true for every tracer that sets breakpoints.
    pub(super) fn wait_for_text(
        &self,
        function: &str,
        original: &[u8; LOOKED_AT],
        same: bool,
    ) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if (self.text(function)? == *original) == same {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!(
            "no probe was {} {function} in {PATIENCE:?}",
            if same { "removed from" } else { "set in" }
        )
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Compiles a source of the bench's folder, once.
pub(super) fn compile(source: &str) -> Result<PathBuf> {
    let folder = cmd::target().join("bench");
    std::fs::create_dir_all(&folder)?;
    let program = folder.join(
        Path::new(source)
            .file_stem()
            .context("a source without a name")?,
    );
    let source = cmd::root().join("xtask/bench").join(source);
    if !is_newer(&program, &source) {
        let cpp = source
            .extension()
            .is_some_and(|extension| extension == "cpp");
        let compiler = if cpp { "c++" } else { "cc" };
        cmd::run(
            cmd::command(compiler)
                .args(["-O2", "-o"])
                .args([&program, &source]),
        )?;
    }
    Ok(program)
}

/// Two targets of one source must run one file: probes belong to the file.
fn is_newer(program: &Path, source: &Path) -> bool {
    let changed = |path: &Path| {
        std::fs::metadata(path)
            .and_then(|file| file.modified())
            .ok()
    };
    changed(program) > changed(source)
}
