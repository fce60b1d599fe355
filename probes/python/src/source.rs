//! The text that a module was loaded from: its hash, as the static side makes one of the file.

use std::fs::{self, File};
use std::io::Read;

/// Longer texts are not read: a start must not wait for them.
const LONGEST: u64 = 4 << 20;

/// The hash of the file's bytes, 0 = there is no such file. Anything but a plain file could be a pipe, which the program
/// reads.
pub(crate) fn hash_of_file(path: &str) -> u64 {
    let plain = fs::metadata(path).is_ok_and(|about| about.is_file() && about.len() <= LONGEST);
    if !plain {
        return 0;
    }
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut text));
    read.map_or(0, |_| scalpel::hash(&text))
}
