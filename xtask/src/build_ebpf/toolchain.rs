//! The nightly toolchain for BPF: rustup's where it is complete, else Debian's packages and a linker built here.
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{apt, cmd};

/// Debian's compiler with the newest LLVM, the sources of its core library, and what the linker is built against.
const PACKAGES: [&str; 7] = [
    "rustc-web",
    "cargo-web",
    "rust-web-src",
    "llvm-22-dev",
    "libpolly-22-dev",
    "libzstd-dev",
    "zlib1g-dev",
];

const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_CARGO: &str = "/usr/bin/cargo";
const DEBIAN_LLVM: &str = "/usr/lib/llvm-22";

/// The version that its flags and output were tried with.
const LINKER_VERSION: &str = "0.13.0";

/// A complete toolchain.
pub(super) struct Toolchain {
    kind: Kind,
    linker: PathBuf,
    objcopy: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rustup,
    Debian,
}

impl Toolchain {
    /// Those that are here and complete, the preferred one first.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        [Self::rustup(), Self::debian()].into_iter().flatten()
    }

    /// The one that is here; what it lacks is installed, after a question unless `yes`.
    pub(super) fn ensure(yes: bool) -> Result<Self> {
        if let Some(found) = Self::all().next() {
            return Ok(found);
        }
        apt::ensure(&PACKAGES, "building the BPF object", yes)?;
        if !built_linker().is_file() {
            build_linker()?;
        }
        Self::debian().context("the Debian packages are installed, but rustc, cargo or llvm-objcopy is not where it should be")
    }

    fn rustup() -> Option<Self> {
        let sources = nightly(&["--print", "sysroot"])
            .map(|root| Path::new(&root).join("lib/rustlib/src/rust/library"));
        let complete = sources.is_some_and(|library| library.is_dir());
        let linker = in_path("bpf-linker").filter(|_| complete)?;
        let objcopy = ["llvm-objcopy", "rust-objcopy", "llvm-objcopy-22"]
            .into_iter()
            .find_map(in_path)?;
        Some(Self {
            kind: Kind::Rustup,
            linker,
            objcopy,
        })
    }

    fn debian() -> Option<Self> {
        let objcopy = Path::new(DEBIAN_LLVM).join("bin/llvm-objcopy");
        let linker = built_linker();
        let library = Path::new("/usr/lib/rustlib/src/rust/library");
        let complete = library.is_dir()
            && [
                Path::new(DEBIAN_RUSTC),
                Path::new(DEBIAN_CARGO),
                &objcopy,
                &linker,
            ]
            .iter()
            .all(|file| file.is_file());
        complete.then_some(Self {
            kind: Kind::Debian,
            linker,
            objcopy,
        })
    }

    /// Its cargo.
    pub(super) fn cargo(&self) -> Command {
        match self.kind {
            Kind::Rustup => cmd::command("cargo"),
            Kind::Debian => cmd::command(DEBIAN_CARGO),
        }
    }

    /// Makes `cargo` use its compiler.
    pub(super) fn select(&self, cargo: &mut Command) {
        match self.kind {
            Kind::Rustup => cargo.env("RUSTUP_TOOLCHAIN", "nightly"),
            Kind::Debian => cargo.env("RUSTC", DEBIAN_RUSTC),
        };
    }

    /// The folder that `bpf-linker` lies in.
    pub(super) fn linker_folder(&self) -> &Path {
        self.linker.parent().unwrap_or(Path::new("/"))
    }

    /// `llvm-objcopy`.
    pub(super) fn objcopy(&self) -> &Path {
        &self.objcopy
    }

    /// Where the sources of the core library are.
    pub(super) fn rust_source(&self) -> Result<PathBuf> {
        let root = self.rustc(&["--print", "sysroot"])?;
        Ok(Path::new(&root).join("lib/rustlib/src/rust"))
    }

    /// Everything that decides the bytes, in one line.
    pub(super) fn identity(&self) -> Result<String> {
        let version = self.rustc(&["-vV"])?;
        let field = |name: &str| {
            version
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or("?")
                .trim()
                .to_owned()
        };
        let linker = cmd::output(Command::new(&self.linker).arg("--version"))?;
        let origin = if self.kind == Kind::Debian {
            "Debian"
        } else {
            "rustup"
        };
        let (rustc, commit, llvm) = (
            field("release:"),
            field("commit-hash:"),
            field("LLVM version:"),
        );
        let mut identity = format!(
            "{origin} rustc {rustc} ({commit}), LLVM {llvm}, {}",
            linker.trim()
        );
        if self.kind == Kind::Debian {
            let llvm = cmd::output(
                Command::new(Path::new(DEBIAN_LLVM).join("bin/llvm-config")).arg("--version"),
            )?;
            identity += &format!(" with LLVM {}", llvm.trim());
        }
        Ok(identity)
    }

    fn rustc(&self, arguments: &[&str]) -> Result<String> {
        match self.kind {
            Kind::Rustup => nightly(arguments).context("rustup's nightly rustc does not run"),
            Kind::Debian => Ok(cmd::output(Command::new(DEBIAN_RUSTC).args(arguments))?
                .trim()
                .to_owned()),
        }
    }
}

/// What rustup's nightly compiler says, if there is one. Asking must not make rustup install it.
fn nightly(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "rustc"])
        .args(arguments)
        .stderr(Stdio::null());
    let output = command
        .env("RUSTUP_AUTO_INSTALL", "0")
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn in_path(program: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

fn built_linker() -> PathBuf {
    cmd::tools().join("bin/bpf-linker")
}

/// About a minute and a half on two cores.
fn build_linker() -> Result<()> {
    cmd::say(format_args!(
        "building bpf-linker {LINKER_VERSION} into {}",
        cmd::tools().display()
    ));
    let mut cargo = cmd::cargo();
    cargo
        .args([
            "install",
            "bpf-linker",
            "--version",
            LINKER_VERSION,
            "--locked",
            "--no-default-features",
        ])
        .args(["--features", "llvm-22", "--root"])
        .arg(cmd::tools())
        .env("LLVM_PREFIX", DEBIAN_LLVM)
        .env_remove("CARGO_TARGET_DIR");
    cmd::run(&mut cargo)?;
    if !built_linker().is_file() {
        bail!("cargo install left no {}", built_linker().display());
    }
    Ok(())
}
