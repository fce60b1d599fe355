//! Columns of numbers inside a page: LEB128, deflated, in base64; one element of the page each.
//!
//! A million calls fit into a few megabytes so, and the browser unpacks them by itself. Numbers above 2^53 - 1 are
//! capped there, because the page counts in doubles.

use std::io::{self, Write};

use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;
use flate2::Compression;
use flate2::write::DeflateEncoder;

/// The largest number that a page can count to: 104 days in ns.
pub(super) const MOST: u64 = (1 << 53) - 1;

/// Numbers on their way into a page.
#[derive(Clone, Debug, Default)]
pub(super) struct Column {
    bytes: Vec<u8>,
    count: usize,
    last: u64,
}

impl Column {
    /// Appends a number.
    pub(super) fn push(&mut self, number: u64) {
        let mut rest = number.min(MOST);
        while rest >= 0x80 {
            self.bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.bytes.push(rest as u8);
        self.count += 1;
    }

    /// Appends a number as its difference to the one before, which may be larger.
    pub(super) fn push_near(&mut self, number: u64) {
        let number = number.min(MOST);
        let (forth, back) = (
            number.wrapping_sub(self.last),
            self.last.wrapping_sub(number),
        );
        let zigzag = if number >= self.last {
            forth << 1
        } else {
            (back << 1) - 1
        };
        self.last = number;
        self.push_wide(zigzag);
    }

    /// A difference of two capped numbers, doubled: it may be above the cap and still be exact in the page.
    fn push_wide(&mut self, number: u64) {
        let mut rest = number;
        while rest >= 0x80 {
            self.bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.bytes.push(rest as u8);
        self.count += 1;
    }

    /// Writes the element `id`.
    pub(super) fn write(&self, id: &str, out: &mut dyn Write) -> io::Result<()> {
        block(id, self.count, &self.bytes, out)
    }
}

/// Writes bytes as the element `id`, with the count of what they hold.
pub(super) fn block(id: &str, count: usize, bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
    write!(
        out,
        "<script type=\"application/octet-stream\" id=\"{id}\" data-count=\"{count}\">"
    )?;
    let text = EncoderWriter::new(&mut *out, &STANDARD);
    let mut packed = DeflateEncoder::new(text, Compression::best());
    packed.write_all(bytes)?;
    packed.finish()?.finish()?;
    writeln!(out, "</script>")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Column, MOST};

    fn unpacked(bytes: &[u8]) -> Vec<u64> {
        let (mut numbers, mut number, mut shift) = (Vec::new(), 0u64, 0);
        for byte in bytes {
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                numbers.push(number);
                (number, shift) = (0, 0);
            }
        }
        numbers
    }

    proptest! {
        #[test]
        fn what_is_pushed_is_there_up_to_what_a_page_can_count(numbers in prop::collection::vec(any::<u64>(), 0..50)) {
            let mut column = Column::default();
            numbers.iter().for_each(|&number| column.push(number));
            let capped: Vec<u64> = numbers.iter().map(|&number| number.min(MOST)).collect();
            prop_assert_eq!(unpacked(&column.bytes), capped);
        }

        #[test]
        fn differences_add_up_to_the_numbers(numbers in prop::collection::vec(any::<u64>(), 0..50)) {
            let mut column = Column::default();
            numbers.iter().for_each(|&number| column.push_near(number));
            let mut last = 0i64;
            let sums: Vec<u64> = unpacked(&column.bytes)
                .into_iter()
                .map(|zigzag| {
                    last += if zigzag & 1 == 0 { (zigzag >> 1) as i64 } else { -((zigzag >> 1) as i64) - 1 };
                    last as u64
                })
                .collect();
            let capped: Vec<u64> = numbers.iter().map(|&number| number.min(MOST)).collect();
            prop_assert_eq!(sums, capped);
        }
    }
}
