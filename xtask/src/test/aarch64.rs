//! Scopes compile for aarch64 Linux, where they skip: checked with Debian's Rust, which brings the standard library's source.
use anyhow::Result;

use super::counts::Counts;
use super::steps::check;
use crate::{apt, cmd};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const PACKAGES: [&str; 5] = [
    "rustc-web",
    "cargo-web",
    "rust-web-src",
    // For the disassembler, which is in C.
    "gcc-aarch64-linux-gnu",
    "libc6-dev-arm64-cross",
];

/// The engine and the bindings that are made of it.
pub(super) fn run(yes: bool) -> Result<Counts> {
    if cmd::is_root() {
        apt::ensure(&PACKAGES, "the check for aarch64", yes)?;
    }
    let mut cargo = cmd::command("/usr/bin/cargo");
    cargo
        .args(["check", "--locked", "-Z", "build-std=std,panic_abort"])
        .args(["--target", TARGET, "--target-dir"])
        .arg(cmd::target().join("aarch64"))
        // Its own compiler and flags, whichever this xtask was started with.
        .env("RUSTC", "/usr/bin/rustc")
        .env("RUSTC_BOOTSTRAP", "1")
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("RUSTFLAGS");
    for package in [
        "scalpel-scope",
        "scalpel-scope-c",
        "scalpel-scope-python",
        "scalpel-scope-node",
    ] {
        cargo.args(["--package", package]);
    }
    check(&mut cargo)
}
