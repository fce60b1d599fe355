//! What the committed object was built from and with, as a few lines of TOML beside it.
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::lock;
use crate::cmd;

/// The folders and files whose bytes make the object, beside the locked dependencies.
const SOURCES: [&str; 4] = [
    "scalpel-common/Cargo.toml",
    "scalpel-common/src",
    "scalpel-ebpf/Cargo.toml",
    "scalpel-ebpf/src",
];

/// The lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// SHA-256 of the sources and of the locked dependencies.
    pub(super) source: String,
    /// SHA-256 of the object.
    pub(super) object: String,
    /// Compiler and linker.
    pub(super) toolchain: String,
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# What scalpel.bpf.o was built from and with. Written by `cargo xtask build-ebpf`."
        )?;
        writeln!(f, "source = \"{}\"", self.source)?;
        writeln!(f, "object = \"{}\"", self.object)?;
        writeln!(f, "toolchain = \"{}\"", self.toolchain)
    }
}

impl Stamp {
    /// Reads the lines of a file.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text)
            .with_context(|| format!("{} is not what build-ebpf writes", path.display()))
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let value = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""))?;
            Some(value.strip_suffix('"')?.to_owned())
        };
        Some(Self {
            source: field("source")?,
            object: field("object")?,
            toolchain: field("toolchain")?,
        })
    }
}

/// SHA-256 as lower-case hex.
pub(super) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The hash of everything in the repository that the object is made of.
pub(super) fn of_source() -> Result<String> {
    let mut hash = Sha256::new();
    for source in SOURCES {
        add(&mut hash, source)?;
    }
    let lock =
        fs::read_to_string(cmd::root().join("Cargo.lock")).context("cannot read Cargo.lock")?;
    hash.update(lock::closure(&lock, "scalpel-bpf"));
    Ok(hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// Adds a file, or all files of a folder in the order of their names, each with its path and length.
fn add(hash: &mut Sha256, path: &str) -> Result<()> {
    let full = cmd::root().join(path);
    if full.is_dir() {
        let entries = fs::read_dir(&full).with_context(|| format!("cannot read {path}"))?;
        let mut names = entries
            .map(|entry| Ok(entry?.file_name()))
            .collect::<Result<Vec<_>>>()?;
        names.sort();
        return names
            .iter()
            .try_for_each(|name| add(hash, &format!("{path}/{}", name.display())));
    }
    let bytes = fs::read(&full).with_context(|| format!("cannot read {path}"))?;
    hash.update(format!("{path}\n{}\n", bytes.len()));
    hash.update(&bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_reads_what_it_wrote() {
        let stamp = Stamp {
            source: "ab".into(),
            object: "cd".into(),
            toolchain: "rustc 1.96.0 (x), LLVM 22".into(),
        };
        assert_eq!(Stamp::parse(&stamp.to_string()), Some(stamp));
        assert_eq!(Stamp::parse("source = \"ab\""), None);
    }

    #[test]
    fn the_digest_is_sha_256() {
        assert_eq!(
            digest(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
