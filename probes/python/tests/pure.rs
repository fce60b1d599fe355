//! The parts of the probe that need no interpreter, with their own tests: an extension module cannot be a test program.
#![expect(dead_code, reason = "only their tests use them here")]

#[path = "../src/filter.rs"]
mod filter;
#[path = "../src/lines.rs"]
mod lines;
#[path = "../src/open.rs"]
mod open;
