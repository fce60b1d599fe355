//! Any bytes as a record of each ring: an error or a record, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scalpel_user::decode;

fuzz_target!(|bytes: &[u8]| {
    let mut events = Vec::new();
    let _ = decode::events(bytes, &mut events);
    assert!(events.len() * 64 <= bytes.len());
    if let Ok(sample) = decode::sample(bytes) {
        assert!(8 * (sample.user.len() + sample.kernel.len()) <= bytes.len());
    }
    if let Ok(control) = decode::control(bytes) {
        control.time();
    }
});
