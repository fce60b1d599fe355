//! Builds small programs with the tools of the machine, in a folder that goes away.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A folder with sources and what was built from them.
pub(crate) struct Workshop {
    folder: TempDir,
}

impl Workshop {
    pub(crate) fn new() -> Self {
        Self {
            folder: TempDir::new().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn source(&self, name: &str, text: &str) -> &Self {
        std::fs::write(self.path(name), text).unwrap();
        self
    }

    /// Runs a tool in the folder and shows what it said if it fails.
    pub(crate) fn run(&self, line: &str) -> &Self {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        command
            .args(words)
            .current_dir(self.folder.path())
            // Kept: Go's library is compiled once for all tests.
            .env("GOCACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/gocache"))
            .env("GO111MODULE", "off");
        let output = command.output().unwrap_or_else(|e| panic!("{line}: {e}"));
        assert!(
            output.status.success(),
            "{line}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        self
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }
}

/// Whether a tool that not every machine has is there; says so if not, and fails where the run requires it.
pub(crate) fn has(tool: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).any(|folder| Path::new(&folder).join(tool).exists());
    let required = std::env::var("SCALPEL_REQUIRE")
        .unwrap_or_default()
        .split(',')
        .any(|what| what == "fixtures");
    assert!(found || !required, "{tool} is required");
    if !found {
        println!("skipped: no {tool} on this machine");
    }
    found
}

/// A shared library made of one assembly source.
pub(crate) fn assemble(text: &str) -> Vec<u8> {
    let workshop = Workshop::new();
    workshop
        .source("a.s", text)
        .run("gcc -shared -nostdlib -o a.so a.s")
        .bytes("a.so")
}

/// An assembly function `f` with unwind information around its body.
pub(crate) fn function(body: &str) -> String {
    named("f", body)
}

/// An assembly function with unwind information around its body.
pub(crate) fn named(name: &str, body: &str) -> String {
    let body = body.replace(';', "\n");
    format!(
        ".text\n.globl {name}\n.type {name},@function\n{name}:\n.cfi_startproc\n{body}\n.cfi_endproc\n.size {name},.-{name}\n"
    )
}
