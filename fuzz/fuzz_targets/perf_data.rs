//! A `perf.data` as it comes from a stranger: it is decoded, or refused with what is wrong.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scalpel_fuzz::decoded;

fuzz_target!(|bytes: &[u8]| decoded("perf.data", bytes));
