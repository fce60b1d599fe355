//! `cargo xtask build-ebpf`: the BPF object from its source, the same bytes wherever it is built.
//!
//! The object is committed, so that stable Rust builds everything a user installs. Beside it stands what it was built
//! from and with (`stamp`); `--check` holds the two against each other.
mod lock;
mod stamp;
mod toolchain;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;

use self::stamp::Stamp;
use self::toolchain::Toolchain;
use crate::cmd;

const OBJECT: &str = "scalpel-user/bpf/scalpel.bpf.o";
const STAMP: &str = "scalpel-user/bpf/scalpel.bpf.toml";
const TARGET: &str = "bpfel-unknown-none";

/// Variables of the surrounding cargo, rustup or user that would change the bytes or the compiler.
const FOREIGN: [&str; 9] = [
    "CARGO_BUILD_TARGET",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_TARGET_DIR",
    "RUSTC",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTDOC",
    "RUSTFLAGS",
    "RUSTUP_TOOLCHAIN",
];

/// What `build-ebpf` is given.
#[derive(Args)]
pub(crate) struct Options {
    /// Install a missing toolchain without asking.
    #[arg(long)]
    yes: bool,
    /// Fail if the committed object does not belong to its source; where the toolchain that built it is present,
    /// build again and compare the bytes.
    #[arg(long, conflicts_with = "out")]
    check: bool,
    /// Write the object to FILE instead of the committed place (for `SCALPEL_BPF_OBJECT`).
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Builds, or checks what was built.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if options.check {
        return check(options.yes);
    }
    let toolchain = Toolchain::ensure(options.yes)?;
    let object = build(&toolchain)?;
    match &options.out {
        Some(file) => {
            fs::write(file, &object).with_context(|| format!("cannot write {}", file.display()))?
        }
        None => commit(&toolchain, &object)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn commit(toolchain: &Toolchain, object: &[u8]) -> Result<()> {
    let stamp = Stamp {
        source: stamp::of_source()?,
        object: stamp::digest(object),
        toolchain: toolchain.identity()?,
    };
    fs::write(cmd::root().join(OBJECT), object)
        .with_context(|| format!("cannot write {OBJECT}"))?;
    fs::write(cmd::root().join(STAMP), stamp.to_string())
        .with_context(|| format!("cannot write {STAMP}"))?;
    cmd::say(format_args!(
        "{OBJECT}: {} bytes, {}",
        object.len(),
        stamp.object
    ));
    Ok(())
}

/// Whether the committed object belongs to its source; an error says why not.
pub(crate) fn check(yes: bool) -> Result<ExitCode> {
    let object =
        fs::read(cmd::root().join(OBJECT)).with_context(|| format!("cannot read {OBJECT}"))?;
    let stamp = Stamp::read(&cmd::root().join(STAMP))?;
    if stamp.object != stamp::digest(&object) {
        bail!(
            "{OBJECT} is not the object that {STAMP} describes: run `cargo xtask build-ebpf` and commit both"
        );
    }
    if stamp.source != stamp::of_source()? {
        bail!(
            "{OBJECT} was built from another source: run `cargo xtask build-ebpf` and commit it with {STAMP}"
        );
    }
    if yes {
        Toolchain::ensure(yes)?;
    }
    let mut here = Vec::new();
    for toolchain in Toolchain::all() {
        let identity = toolchain.identity()?;
        if identity == stamp.toolchain {
            return compare(&toolchain, &object);
        }
        here.push(identity);
    }
    let (here, built) = (here.join("; "), &stamp.toolchain);
    cmd::say(format_args!(
        "source and object agree; bytes not compared: built with {built}, here: [{here}]"
    ));
    Ok(ExitCode::SUCCESS)
}

fn compare(toolchain: &Toolchain, object: &[u8]) -> Result<ExitCode> {
    if build(toolchain)? != object {
        bail!(
            "the same source and toolchain give another object than {OBJECT}: the build is not reproducible"
        );
    }
    cmd::say(format_args!(
        "source, toolchain and object agree, byte for byte"
    ));
    Ok(ExitCode::SUCCESS)
}

/// Compiles, links and strips. DWARF goes, BTF stays: the loader needs the types of the maps.
fn build(toolchain: &Toolchain) -> Result<Vec<u8>> {
    let target = cmd::target().join("bpf");
    let mut cargo = toolchain.cargo();
    FOREIGN.iter().for_each(|name| {
        cargo.env_remove(name);
    });
    toolchain.select(&mut cargo);
    cargo
        .args([
            "build",
            "--release",
            "--locked",
            "--package",
            "scalpel-bpf",
            "--target",
            TARGET,
        ])
        .args(["-Z", "build-std=core"])
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_DIR", &target)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(toolchain)?)
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .env("CARGO_INCREMENTAL", "0")
        .env("PATH", path_with(toolchain.linker_folder())?);
    cmd::run(&mut cargo)?;
    let linked = target.join(TARGET).join("release/scalpel");
    let stripped = linked.with_extension("o");
    cmd::run(
        Command::new(toolchain.objcopy())
            .arg("--strip-debug")
            .args([&linked, &stripped]),
    )?;
    fs::read(&stripped).with_context(|| format!("cannot read {}", stripped.display()))
}

/// Compiler flags. Paths of this machine are mapped to fixed names; cargo keeps those flags out of its hashes.
fn flags(toolchain: &Toolchain) -> Result<OsString> {
    let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    let mut flags = vec![
        "-Clinker=bpf-linker".to_owned(),
        "-Clink-arg=--btf".to_owned(),
        "-Cdebuginfo=2".to_owned(),
        "--cfg=bpf_target_arch=\"x86_64\"".to_owned(),
        remap(&cargo_home()?, "/cargo"),
        remap(cmd::root(), "/scalpel"),
    ];
    // The folder of an index is named by its address: crates.io, or what stands for it here.
    for index in fs::read_dir(cargo_home()?.join("registry/src"))
        .into_iter()
        .flatten()
    {
        flags.push(remap(&index?.path(), "/crates"));
    }
    let source = toolchain.rust_source()?;
    flags.push(remap(&source, "/rust"));
    // Distributions put a link there.
    flags.push(remap(&source.canonicalize()?, "/rust"));
    Ok(flags.join("\x1f").into())
}

fn cargo_home() -> Result<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(home)
        .context("neither CARGO_HOME nor HOME is set")
}

fn path_with(folder: &Path) -> Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    Ok(std::env::join_paths(folders)?)
}
