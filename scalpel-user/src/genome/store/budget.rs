//! How much a file may make its reader remember.

use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::read::{Checked, damaged};

/// Bytes of rows that a file of this size can hold. A damaged file can name one page a million times; an honest row
/// takes at least a byte a column and its text.
#[derive(Debug)]
pub(super) struct Budget {
    left: u64,
}

impl Budget {
    /// The budget of a file of `length` bytes.
    pub(super) const fn new(length: u64) -> Self {
        Self { left: length }
    }

    /// Takes a row's least size.
    pub(super) fn charge(&mut self, row: &Row<'_>) -> Checked<()> {
        let columns = row.as_ref().column_count();
        let mut size = columns as u64;
        for at in 0..columns {
            if let ValueRef::Text(bytes) | ValueRef::Blob(bytes) = row.get_ref(at)? {
                size += bytes.len() as u64;
            }
        }
        match self.left.checked_sub(size) {
            Some(left) => self.left = left,
            None => return damaged("its rows are larger than the file"),
        }
        Ok(())
    }
}
