//! The program under test, and the programs that read what it writes.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use scalpel_tests::suite::Skip;
use serde_json::Value;
use tempfile::TempDir;

use crate::made;

/// How a command ended.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<Ran> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    Ok(Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Runs a consumer, which must accept what it is given.
pub(crate) fn consume(command: &mut Command) -> anyhow::Result<String> {
    let ran = run(command)?;
    ensure!(
        ran.code == 0,
        "{command:?}: {}\n{}{}",
        ran.code,
        ran.stdout,
        ran.stderr
    );
    Ok(ran.stdout)
}

/// The program under test.
pub(crate) fn scalpel<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> anyhow::Result<Ran> {
    run(Command::new(env!("CARGO_BIN_EXE_scalpel-ebpf")).args(args))
}

/// A program of the system.
pub(crate) fn tool(name: &str) -> anyhow::Result<Command> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let program = std::env::split_paths(&paths).map(|folder| folder.join(name));
    match program.into_iter().find(|path| path.is_file()) {
        Some(path) => Ok(Command::new(path)),
        None => Err(Skip::because(format!("needs {name}"))),
    }
}

/// Where `cargo xtask test --only exports` puts what comes from package registries.
pub(crate) fn brought(name: &str) -> anyhow::Result<PathBuf> {
    let folder = std::env::var_os("SCALPEL_EXPORTS")
        .ok_or_else(|| Skip::because(format!("needs SCALPEL_EXPORTS, a folder with {name}")))?;
    let path = Path::new(&folder).join(name);
    ensure!(path.exists(), "there is no {}", path.display());
    Ok(path)
}

/// The checks that are written with the consumers' libraries.
pub(crate) fn check<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> anyhow::Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exports/check.py");
    let mut python = Command::new(brought("python/bin/python")?);
    consume(python.arg(script).args(args)).map(drop)
}

/// A published schema.
pub(crate) fn schema(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs/schema")
        .join(name)
}

/// A recording, with the report of it that exports have to agree with.
pub(crate) struct Subject {
    folder: TempDir,
    pub(crate) recording: PathBuf,
    /// `report --json`, as a file.
    pub(crate) report: PathBuf,
    /// Its contents.
    pub(crate) said: Value,
    /// Exit code of an export: 5 for a recording that is partial.
    pub(crate) code: i32,
}

impl Subject {
    /// The stream in which nothing is lost.
    pub(crate) fn whole() -> anyhow::Result<Self> {
        Self::of(made::whole, 0)
    }

    /// The stream that lost some ends.
    pub(crate) fn lossy() -> anyhow::Result<Self> {
        Self::of(made::lossy, 5)
    }

    /// The stream of samples in inlined functions.
    pub(crate) fn inlined() -> anyhow::Result<Self> {
        Self::of(made::inlined, 0)
    }

    /// Both.
    pub(crate) fn both() -> anyhow::Result<[Self; 2]> {
        Ok([Self::whole()?, Self::lossy()?])
    }

    fn of(make: fn(&Path) -> anyhow::Result<()>, code: i32) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let recording = folder.path().join("run.stream");
        make(&recording)?;
        let report = folder.path().join("report.json");
        let ran = scalpel([OsStr::new("report"), recording.as_ref(), "--json".as_ref()])?;
        ensure!(ran.code == 0, "report: {}", ran.stderr);
        std::fs::write(&report, &ran.stdout)?;
        Ok(Self {
            said: serde_json::from_str(&ran.stdout)?,
            folder,
            recording,
            report,
            code,
        })
    }

    /// A path in the recording's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The genome of the recording.
    pub(crate) fn genome(&self) -> anyhow::Result<PathBuf> {
        let genome = self.path("run.genome");
        scalpel([
            "replay".as_ref(),
            self.recording.as_os_str(),
            "-o".as_ref(),
            genome.as_os_str(),
        ])?;
        Ok(genome)
    }

    /// Exports to a file of this name, which tells the format.
    pub(crate) fn export(&self, name: &str, args: &[&str]) -> anyhow::Result<PathBuf> {
        let path = self.path(name);
        let ran = run(Command::new(env!("CARGO_BIN_EXE_scalpel-ebpf"))
            .arg("export")
            .arg(&self.recording)
            .arg("-o")
            .arg(&path)
            .args(args))?;
        ensure!(
            ran.code == self.code,
            "{name}: {}: {}",
            ran.code,
            ran.stderr
        );
        ensure!(ran.stdout.is_empty(), "{name}: on stdout: {}", ran.stdout);
        let partial = ran.stderr.contains("the export is partial");
        ensure!(partial == (self.code == 5), "{name}: {}", ran.stderr);
        Ok(path)
    }

    /// A number of all functions of the report.
    pub(crate) fn sum(&self, field: &str) -> u64 {
        let functions = self.said["functions"].as_array().unwrap();
        functions
            .iter()
            .filter_map(|function| function[field].as_u64())
            .sum()
    }

    /// A number of the functions with this name.
    pub(crate) fn of_name(&self, name: &str, field: &str) -> u64 {
        let functions = self.said["functions"].as_array().unwrap();
        let meant = functions.iter().filter(|function| function["name"] == name);
        meant.filter_map(|function| function[field].as_u64()).sum()
    }
}
