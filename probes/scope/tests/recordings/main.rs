//! Hardware traces: recordings of real processors with the figures that a right decoder gives, damaged ones, and paths
//! that are encoded and decoded again. Without the recordings, or without libipt, a test is skipped and says why.
#![expect(
    unsafe_code,
    clippy::unwrap_used,
    clippy::undocumented_unsafe_blocks,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::panic,
    reason = "a check may end the test, and the truth of a path is stepped code"
)]
#[path = "../shapes/code.rs"]
#[expect(dead_code, reason = "other suites use the rest of it")]
mod code;
mod figures;
mod guarded;
mod live;
mod made;
#[path = "../shapes/shape/mutation.rs"]
#[expect(dead_code, reason = "its shapes are another suite's")]
mod mutation;
mod mutations;
#[path = "../shapes/packets.rs"]
mod packets;
mod perf_file;
#[path = "../shapes/programs.rs"]
mod programs;
mod round_trips;
mod streaming;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use scalpel_scope::decode::{self, Decoded, Request};
use scalpel_scope::sink::Kept;

/// What a test needs beside the code.
#[derive(Clone, Copy, PartialEq)]
enum Needs {
    Library,
    Recordings,
}

/// The recordings of others, beside the repository.
fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures")
}

/// Decodes a recording, found in the fixtures.
fn decoded(request: &Request) -> (Decoded, Kept) {
    let mut kept = Kept::default();
    let decoded = decode::decode(request, &mut kept, &mut |_, _| {}).unwrap();
    (decoded, kept)
}

fn request(trace: &str) -> Request {
    Request {
        trace: recordings().join(trace),
        ..Request::default()
    }
}

/// Why a test cannot run here.
fn missing(needs: Needs) -> Option<(&'static str, String)> {
    if let Err(why) = scalpel_scope::pt::available() {
        return Some(("libipt", why));
    }
    let absent = needs == Needs::Recordings && !recordings().is_dir();
    absent.then(|| {
        (
            "fixtures",
            "the recordings are not beside the repository".to_owned(),
        )
    })
}

fn required(tier: &str) -> bool {
    let list = std::env::var("SCALPEL_REQUIRE").unwrap_or_default();
    list.split(',').any(|word| word.trim() == tier)
}

fn trial(name: &'static str, needs: Needs, test: fn()) -> Trial {
    let missing = missing(needs);
    let Some((tier, why)) = missing else {
        return Trial::test(name, move || {
            test();
            Ok(())
        });
    };
    eprintln!("{name} skipped: {why}");
    let fails = required(tier);
    Trial::test(name, move || {
        Err(Failed::from(format!("skipped, but required: {why}")))
    })
    .with_ignored_flag(!fails)
}

fn main() -> ExitCode {
    if let Some(folder) = std::env::var_os(streaming::FOLDER) {
        streaming::child(Path::new(&folder));
        return ExitCode::SUCCESS;
    }
    if guarded::is_another_process() {
        return guarded::another_process();
    }
    let arguments = Arguments::from_args();
    let all = [
        figures::ALL,
        guarded::ALL,
        live::ALL,
        made::ALL,
        mutations::ALL,
        round_trips::ALL,
        streaming::ALL,
    ];
    let trials = all
        .into_iter()
        .flatten()
        .map(|(name, needs, test)| trial(name, *needs, *test))
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

macro_rules! tests {
    ($needs:ident: $($name:ident),* $(,)?) => {
        pub(crate) const ALL: &[(&str, crate::Needs, fn())] =
            &[$((stringify!($name), crate::Needs::$needs, $name as fn()),)*];
    };
}
use tests;
