//! A new file beside its final place, published by renaming or removed again.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::GenomeError;

/// The file under construction. Dropped without [`Aside::publish`], it is removed.
#[derive(Debug)]
pub(super) struct Aside {
    place: PathBuf,
    path: PathBuf,
}

impl Aside {
    /// Creates an empty file in the folder of `place`, which only the owner may read. It is new by `O_EXCL`: root
    /// writes into folders of others, where a guessable name could be a link.
    pub(super) fn create(place: &Path) -> Result<Self, GenomeError> {
        refuse_special(place)?;
        let name = place.file_name().ok_or_else(|| GenomeError::NotAFile {
            path: place.to_owned(),
        })?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}", Uuid::new_v4().simple()));
        let path = place.with_file_name(hidden);
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(GenomeError::io("create a file beside", place))?;
        Ok(Self {
            place: place.to_owned(),
            path,
        })
    }

    /// Where to write.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the file durable and gives it its name. What has that name now becomes `NAME.old`.
    pub(super) fn publish(self) -> Result<(), GenomeError> {
        File::open(&self.path)
            .and_then(|file| file.sync_all())
            .map_err(GenomeError::io("sync", &self.path))?;
        refuse_special(&self.place)?;
        match fs::rename(&self.place, old_name(&self.place)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(GenomeError::io("keep the old file of", &self.place)(error));
            }
            _ => {}
        }
        fs::rename(&self.path, &self.place).map_err(|error| {
            // The old file gets its name back: a failure changes nothing.
            drop(fs::rename(old_name(&self.place), &self.place));
            GenomeError::io("rename a finished genome to", &self.place)(error)
        })?;
        sync_folder(&self.place)
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // After `publish` the name is gone; a failure leaves a file that says by its name what it is.
        drop(fs::remove_file(&self.path));
    }
}

/// `path` with `.old` appended, as perf names it.
fn old_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".old");
    name.into()
}

/// Root must not rename `/dev/null` away.
fn refuse_special(place: &Path) -> Result<(), GenomeError> {
    match fs::metadata(place) {
        Ok(metadata) if !metadata.is_file() => Err(GenomeError::NotAFile {
            path: place.to_owned(),
        }),
        _ => Ok(()),
    }
}

fn sync_folder(place: &Path) -> Result<(), GenomeError> {
    let folder = match place.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(GenomeError::io("sync the folder of", place))
}
