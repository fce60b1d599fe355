//! An LLDB bundle as it comes from a stranger: its `trace.json` up to the first zero, and its packets behind it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scalpel_fuzz::{decoded, written};

fuzz_target!(|bytes: &[u8]| {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (json, packets) = bytes.split_at(end);
    written("3842849.trace", packets);
    decoded("trace.json", json);
});
