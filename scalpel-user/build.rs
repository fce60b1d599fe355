//! Says which BPF object is built in: `$SCALPEL_BPF_OBJECT` if it is set, else the committed one. Never one from
//! `target/`: what a build contains must not depend on what was built there before.

use std::path::PathBuf;

fn main() {
    let manifest = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let object = std::env::var_os("SCALPEL_BPF_OBJECT")
        .map_or_else(|| manifest.join("bpf/scalpel.bpf.o"), PathBuf::from);
    // What cargo-fuzz builds with.
    println!("cargo::rustc-check-cfg=cfg(fuzzing)");
    println!("cargo::rerun-if-env-changed=SCALPEL_BPF_OBJECT");
    println!("cargo::rerun-if-changed={}", object.display());
    println!(
        "cargo::rustc-env=SCALPEL_BPF_OBJECT_FILE={}",
        object.display()
    );
}
