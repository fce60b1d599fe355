//! Any bytes as a chunk log: a prefix of inputs and a reason, never a panic; what was read can be written again.
//!
//! Checksums are made right first: a mutation that a checksum stops shows nothing about what lies behind it.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use scalpel_fuzz::mended;
use scalpel_user::input::Input;
use scalpel_user::log::{Ending, Reader, Writer};

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    check(&mended(bytes));
});

fn check(bytes: &[u8]) {
    let path = Path::new("fuzz.log");
    let Ok(mut reader) = Reader::new(bytes, path) else { return };
    let inputs: Vec<Input> = reader.by_ref().collect();
    assert_ne!(*reader.ending(), Ending::Reading);
    let mut writer = Writer::new(Vec::new(), path);
    for input in &inputs {
        writer.write(input).expect("memory takes everything");
    }
    let again = writer.finish().expect("memory takes everything");
    let read: Vec<Input> = Reader::new(again.as_slice(), path).expect("a log").collect();
    let said = |inputs: Vec<Input>| inputs.into_iter().filter(|input| *input != Input::Events(Vec::new())).collect::<Vec<_>>();
    assert_eq!(said(read), said(inputs));
}
