//! Every export, opened by the programs that it is for: recursion and losses included, counts to the call.
//!
//! `cargo xtask test --only exports` brings those programs; by itself each test skips what is not there, with the reason.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may stop at what it did not expect"
)]

mod added_up;
mod calls;
mod covered;
mod made;
mod page;
mod tools;

use std::process::ExitCode;

use scalpel_tests::suite::Suite;

fn main() -> ExitCode {
    let mut suite = Suite::new("exports", None);
    added_up::add(&mut suite);
    calls::add(&mut suite);
    covered::add(&mut suite);
    page::add(&mut suite);
    suite.run()
}
