//! Where the real projects are: Debian packages unpacked into a folder that any user may read.
//!
//! Unpacked, not installed: no service starts, and the system stays as it is.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, anyhow};
use tempfile::TempDir;

use crate::child;
use crate::fixture::target_directory;
use crate::suite::Skip;

/// The unpacked packages; gone with the last user.
#[derive(Default)]
pub struct Programs {
    root: OnceLock<Result<TempDir, String>>,
}

impl Programs {
    /// The program at `path` below the root of the unpacked packages.
    pub fn find(&self, path: &str) -> anyhow::Result<PathBuf> {
        let program = self.root()?.join(path);
        if program.exists() {
            return Ok(program);
        }
        Err(Skip::because(format!(
            "there is no {path}: `cargo xtask test --only real` downloads it"
        )))
    }

    /// `program` with the libraries of its packages.
    pub fn command(&self, program: &Path) -> anyhow::Result<Command> {
        self.with_libraries(Command::new(program))
    }

    /// Lets `command`, and what it starts, find the libraries of the packages before the system's.
    pub fn with_libraries(&self, mut command: Command) -> anyhow::Result<Command> {
        let root = self.root()?;
        let folders = ["usr/lib", "lib"].map(|folder| root.join(folder).join("x86_64-linux-gnu"));
        let folders = std::env::join_paths(folders).context("a folder with a colon in its name")?;
        command.env("LD_LIBRARY_PATH", folders).env("LC_ALL", "C");
        Ok(command)
    }

    fn root(&self) -> anyhow::Result<&Path> {
        let root = self
            .root
            .get_or_init(|| unpack().map_err(|error| format!("{error:#}")));
        root.as_ref()
            .map(TempDir::path)
            .map_err(|error| anyhow!("{error}"))
    }
}

fn unpack() -> anyhow::Result<TempDir> {
    let root = TempDir::with_prefix("scalpel-real-")?;
    fs::set_permissions(root.path(), Permissions::from_mode(0o755))?;
    let packages = target_directory().join("real/debs");
    for entry in fs::read_dir(packages).into_iter().flatten().flatten() {
        if entry
            .path()
            .extension()
            .is_some_and(|extension| extension == "deb")
        {
            let mut command = Command::new("dpkg");
            command.arg("-x").arg(entry.path()).arg(root.path());
            child::run(command)?.expect_code(0)?;
        }
    }
    Ok(root)
}
