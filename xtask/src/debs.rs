//! Debian packages that are unpacked and not installed: no service starts, nothing on the system changes.
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::{apt, cmd};

/// What the tests and the bench record, with the libraries that they look into: private copies.
pub(crate) const PROJECTS: &[&str] = &[
    "postgresql-15",
    "postgresql-client-15",
    "libpq5",
    "redis-server",
    "redis-tools",
    "sqlite3",
    "libsqlite3-0",
    "nginx",
    "cppcheck",
];

/// Where the packages of the real projects lie.
pub(crate) fn folder() -> PathBuf {
    cmd::target().join("real/debs")
}

/// Downloads `packages`, and those they depend on that the system lacks.
pub(crate) fn download(packages: &[&str]) -> Result<()> {
    let folder = folder();
    if packages.iter().all(|name| is_there(&folder, name)) || !apt::exists("apt-get") {
        return Ok(());
    }
    std::fs::create_dir_all(folder.join("partial"))?;
    apt::update();
    cmd::run(
        Command::new("apt-get")
            .arg("-o")
            .arg(format!("Dir::Cache::archives={}", folder.display()))
            .args(["-o", "APT::Sandbox::User=root"])
            .args([
                "install",
                "-y",
                "-qq",
                "--download-only",
                "--reinstall",
                "--no-install-recommends",
            ])
            .args(packages)
            .stdin(Stdio::null()),
    )
}

fn is_there(folder: &std::path::Path, package: &str) -> bool {
    let prefix = format!("{package}_");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .into_iter()
        .any(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
}
