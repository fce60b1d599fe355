//! `cargo xtask`: what builds, tests and measures scalpel.
fn main() {}
