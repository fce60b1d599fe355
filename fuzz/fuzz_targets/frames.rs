//! Frames and name records of a stranger: never a panic, and never more memory than the bytes that came.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scalpel_user::probe::{next_frame, parse_name};

fuzz_target!(|bytes: &[u8]| {
    if let Some(name) = parse_name(bytes) {
        assert!(name.info.key().len() <= 8 * bytes.len() + 512);
    }
    // As they come: a few bytes at a time.
    let mut waiting = Vec::new();
    for part in bytes.chunks(11) {
        waiting.extend_from_slice(part);
        loop {
            let before = waiting.len();
            match next_frame(&mut waiting) {
                Ok(Some(_)) => assert!(waiting.len() < before, "a frame takes its bytes"),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
});
