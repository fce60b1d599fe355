//! A segment whose process writes what it likes where it likes, while it is read and when it is taken over: never a panic,
//! no event out of nothing, no memory beyond the budget.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| scalpel_user::probe::hostile_segment(bytes));
