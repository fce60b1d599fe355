//! Reading numbers out of the kernel's texts, which may hold any byte.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The number that `bytes` spell in base `radix`, with nothing around it.
pub(super) fn number(bytes: &[u8], radix: u32) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?;
    if text.starts_with('+') {
        return None;
    }
    u64::from_str_radix(text, radix).ok()
}

/// Splits at the first `separator`.
pub(super) fn split_once(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|&byte| byte == separator)?;
    Some((bytes.get(..at)?, bytes.get(at + 1..)?))
}

/// A path as the kernel writes it in `/proc`, with newlines as `\012`.
///
/// `seq_file_path(m, file, "\n")` escapes the newline only, so a backslash before other digits is meant literally;
/// a file whose name really holds the four characters `\012` cannot be told apart.
pub(super) fn unescape_path(bytes: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(br"\012") {
            path.push(b'\n');
            rest = after;
        } else {
            path.push(first);
            rest = tail;
        }
    }
    OsString::from_vec(path).into()
}
