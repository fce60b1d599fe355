//! Any inputs through the whole session: never a panic, every tree adds up, and a genome that was written can be read.
//!
//! What begins like a chunk log is one, with its checksums made right; anything else is decoded by `Stream`.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use scalpel_fuzz::{assert_adds_up, mended, stream::Stream};
use scalpel_user::genome::Genome;
use scalpel_user::input::Input;
use scalpel_user::log::Reader;
use scalpel_user::session::Session;

/// One input in so many is also written to a file: that costs a thousand times as much as the rest.
const WRITTEN: u8 = 64;

fuzz_target!(|bytes: &[u8]| {
    let Some(genome) = genome(bytes) else { return };
    assert_adds_up(&genome.tree);
    if bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) % WRITTEN == 0 {
        write(&genome);
    }
});

fn genome(bytes: &[u8]) -> Option<Genome> {
    if bytes.starts_with(b"SCALPLOG") {
        let log = mended(bytes);
        let reader = Reader::new(log.as_slice(), Path::new("fuzz.log")).ok()?;
        finish(reader, Session::new())
    } else {
        let mut session = Session::new();
        session.feed(Input::Run(run()));
        finish(Stream::new(bytes), session)
    }
}

fn finish(inputs: impl Iterator<Item = Input>, mut session: Session) -> Option<Genome> {
    inputs.for_each(|input| session.feed(input));
    session.settle();
    session.finish().ok()
}

fn run() -> scalpel_user::input::RunInfo {
    match Stream::new(&[0, 100]).next() {
        Some(Input::Run(run)) => run,
        _ => unreachable!("0 is a run"),
    }
}

fn write(genome: &Genome) {
    let path = std::env::temp_dir().join(format!("scalpel-fuzz-{}-session.genome", std::process::id()));
    genome.write(&path).expect("every genome can be written");
    let read = Genome::read(&path).expect("what was written can be read");
    assert_eq!(read.events(), genome.events());
}
