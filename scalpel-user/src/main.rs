//! `scalpel-ebpf`: parse, run, print the error.
fn main() {}
