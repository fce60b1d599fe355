//! A folder of our own for files that are needed for a moment.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Removed, with what is in it, when dropped.
#[derive(Debug)]
pub struct PrivateFolder(PathBuf);

impl PrivateFolder {
    /// Creates one below the system's folder for such: mode 0700, a name that nobody has.
    pub fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("scalpel-{}", uuid::Uuid::new_v4()));
        // Fails if it exists, be it as somebody's link.
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean up; there is nobody to tell.
        drop(fs::remove_dir_all(&self.0));
    }
}
