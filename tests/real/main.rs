//! Real projects, recorded while they work: the results are what they were, the names are known, and nothing of
//! the tracer is left in them.
//!
//! `cargo xtask test` brings the projects; without them, or without root and BPF, a test is skipped.

mod labelled;
mod native;
mod node;
mod postgres;
mod record_killed;
mod redis;
mod ripgrep;
mod scope;
mod scope_killed;
mod sqlite;
mod verdict;

use std::process::ExitCode;
use std::sync::Arc;

use scalpel_tests::real::programs::Programs;
use scalpel_tests::suite::{self, Suite};

fn main() -> ExitCode {
    let programs = Arc::new(Programs::default());
    let mut suite = Suite::new("real", suite::cannot_record());
    postgres::add(&mut suite, &programs);
    redis::add(&mut suite, &programs);
    sqlite::add(&mut suite, &programs);
    ripgrep::add(&mut suite);
    native::add(&mut suite);
    labelled::add(&mut suite);
    node::add(&mut suite);
    scope::add(&mut suite, &programs);
    scope_killed::add(&mut suite, &programs);
    record_killed::add(&mut suite, &programs);
    suite.run()
}
