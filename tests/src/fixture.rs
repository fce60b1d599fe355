//! Ordinary programs whose truth is known: what they are made of, and built once into `target/fixtures`.
//!
//! A build is kept under a hash of its sources, flags and compiler, so that a second run builds nothing. Every
//! recording works on a private copy: breakpoints belong to the file, and tests must not see those of others.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;

use crate::suite::Skip;

/// What builds a fixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compiler {
    /// `cc`.
    C,
    /// `musl-gcc`: the same language over another C library.
    Musl,
    /// `c++`.
    Cpp,
    /// `rustc`.
    Rust,
    /// `go build`.
    Go,
}

/// A program and how it is built.
#[derive(Clone, Copy, Debug)]
pub struct Fixture {
    /// Name of the built file; also the module name in reports.
    pub name: &'static str,
    /// Files in `tests/fixtures`; the first is the main one.
    pub sources: &'static [&'static str],
    /// Compiler.
    pub compiler: Compiler,
    /// Flags after the defaults.
    pub flags: &'static [&'static str],
    /// Run `strip` on the result.
    pub stripped: bool,
}

impl Fixture {
    /// A C program of one source file, `-O2 -g` with frame pointers.
    pub const fn c(name: &'static str, sources: &'static [&'static str]) -> Self {
        Self {
            name,
            sources,
            compiler: Compiler::C,
            flags: &[],
            stripped: false,
        }
    }

    /// A C program over musl.
    pub const fn musl(name: &'static str, sources: &'static [&'static str]) -> Self {
        Self {
            compiler: Compiler::Musl,
            ..Self::c(name, sources)
        }
    }

    /// A C++ program.
    pub const fn cpp(name: &'static str, sources: &'static [&'static str]) -> Self {
        Self {
            name,
            sources,
            compiler: Compiler::Cpp,
            flags: &[],
            stripped: false,
        }
    }

    /// A Rust program.
    pub const fn rust(name: &'static str, sources: &'static [&'static str]) -> Self {
        Self {
            name,
            sources,
            compiler: Compiler::Rust,
            flags: &[],
            stripped: false,
        }
    }

    /// A Go program.
    pub const fn go(name: &'static str, sources: &'static [&'static str]) -> Self {
        Self {
            name,
            sources,
            compiler: Compiler::Go,
            flags: &[],
            stripped: false,
        }
    }

    /// The same with more flags.
    #[must_use]
    pub const fn flags(mut self, flags: &'static [&'static str]) -> Self {
        self.flags = flags;
        self
    }

    /// The same without symbols.
    #[must_use]
    pub const fn stripped(mut self) -> Self {
        self.stripped = true;
        self
    }

    /// Builds it if need be; the path of the shared build.
    pub fn build(&self) -> anyhow::Result<PathBuf> {
        // One at a time: the machine is small, and two tests may want the same one.
        static ONE: Mutex<()> = Mutex::new(());
        let _guard = ONE
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let directory = target_directory().join("fixtures").join(format!(
            "{}-{:016x}",
            self.name,
            self.hash()?
        ));
        let built = directory.join(self.name);
        if !built.exists() {
            fs::create_dir_all(&directory)?;
            let aside = TempDir::new_in(&directory)?;
            let fresh = aside.path().join(self.name);
            self.compile(&fresh)?;
            fs::rename(&fresh, &built)?;
        }
        Ok(built)
    }

    /// A private copy in a fresh directory, in which recordings may be written too.
    pub fn copy(&self) -> anyhow::Result<Copy> {
        let directory = TempDir::with_prefix("scalpel-test-")?;
        let path = directory.path().join(self.name);
        copy_program(&self.build()?, &path)?;
        Ok(Copy { directory, path })
    }

    fn hash(&self) -> anyhow::Result<u64> {
        let mut hasher = DefaultHasher::new();
        (self.compiler, self.flags, self.stripped, self.defaults()).hash(&mut hasher);
        compiler_version(self.compiler)?.hash(&mut hasher);
        for source in self.sources.iter().chain(&["truth.h"]) {
            let path = sources_directory().join(source);
            fs::read(&path)
                .with_context(|| format!("no fixture source {}", path.display()))?
                .hash(&mut hasher);
        }
        Ok(hasher.finish())
    }

    fn defaults(&self) -> &'static [&'static str] {
        match self.compiler {
            Compiler::C | Compiler::Musl => &[
                "-std=gnu17",
                "-O2",
                "-g",
                "-fno-omit-frame-pointer",
                "-pthread",
                "-Wall",
                "-Werror",
            ],
            Compiler::Cpp => &[
                "-std=gnu++20",
                "-O2",
                "-g",
                "-fno-omit-frame-pointer",
                "-pthread",
                "-Wall",
                "-Werror",
            ],
            Compiler::Rust => &[
                "--edition=2024",
                "-O",
                "-Csymbol-mangling-version=v0",
                "-Cforce-frame-pointers=yes",
            ],
            Compiler::Go => &["build", "-trimpath"],
        }
    }

    fn compile(&self, output: &Path) -> anyhow::Result<()> {
        let mut command = Command::new(self.compiler.program());
        command
            .current_dir(sources_directory())
            .args(self.defaults());
        if self.compiler == Compiler::Go {
            command.env("GO111MODULE", "off").env("GOFLAGS", "");
        }
        command
            .arg("-o")
            .arg(output)
            .args(
                self.sources
                    .iter()
                    .filter(|source| !source.ends_with(".map")),
            )
            .args(self.flags);
        succeed(command)?;
        if self.stripped {
            let mut strip = Command::new("strip");
            strip.arg(output);
            succeed(strip)?;
        }
        Ok(())
    }
}

impl Compiler {
    const fn program(self) -> &'static str {
        match self {
            Self::C => "cc",
            Self::Musl => "musl-gcc",
            Self::Cpp => "c++",
            Self::Rust => "rustc",
            Self::Go => "go",
        }
    }
}

/// A private copy of a fixture; its directory goes when it is dropped.
pub struct Copy {
    directory: TempDir,
    path: PathBuf,
}

impl Copy {
    /// The program.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory it lies in.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Copies another fixture beside it.
    pub fn with(&self, other: &Fixture) -> anyhow::Result<PathBuf> {
        let path = self.directory().join(other.name);
        copy_program(&other.build()?, &path)?;
        Ok(path)
    }
}

/// The workspace's root.
pub fn workspace() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_owned()
}

/// Cargo's target directory.
pub fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

fn sources_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn compiler_version(compiler: Compiler) -> anyhow::Result<Vec<u8>> {
    let flag = if compiler == Compiler::Go {
        "version"
    } else {
        "--version"
    };
    match Command::new(compiler.program()).arg(flag).output() {
        Ok(output) => Ok(output.stdout),
        Err(error) => Err(Skip::because(format!(
            "{} is not installed ({error})",
            compiler.program()
        ))),
    }
}

fn succeed(mut command: Command) -> anyhow::Result<()> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    if !output.stderr.is_empty() {
        bail!(
            "{command:?} warns: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// Copies a program that will be executed: by a process of its own, for a file that we held open for writing could not
/// be executed while a child that another thread forked meanwhile still has it open (ETXTBSY).
pub fn copy_program(from: &Path, to: &Path) -> anyhow::Result<()> {
    let copied = Command::new("cp").arg(from).arg(to).status()?;
    ensure!(copied.success(), "cp to {}: {copied}", to.display());
    Ok(())
}
