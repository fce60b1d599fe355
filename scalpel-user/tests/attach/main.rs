//! The attach mechanisms on programs with known truth, without the rest of the collector. Needs root.

mod counts;
mod drops;
mod harm;
mod links;
mod others;
mod pilot;
mod subject;

use std::process::ExitCode;

use scalpel_tests::suite::{Suite, cannot_record};

fn main() -> ExitCode {
    if let Some(outcome) = others::run_as_other() {
        return if outcome.is_ok() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    let mut suite = Suite::new("kernel", cannot_record());
    harm::add(&mut suite);
    links::add(&mut suite);
    drops::add(&mut suite);
    pilot::add(&mut suite);
    counts::add(&mut suite);
    others::add(&mut suite);
    suite.run()
}
