//! Places of bytes in a text: lines and UTF-16 units, without walking the text again for each.

use crate::catalog::Position;

/// Bytes between two remembered counts of units.
const STEP: usize = 256;

/// A text with an index of its lines and units.
#[derive(Debug)]
pub(super) struct Text<'t> {
    text: &'t str,
    /// Byte at which each line starts.
    lines: Vec<u32>,
    /// Units before each `STEP`-th byte, or before the character that it lies in; empty for ASCII.
    units: Vec<u32>,
}

impl<'t> Text<'t> {
    /// Indexes `text`, which is shorter than 4 GiB.
    pub(super) fn new(text: &'t str) -> Self {
        Self {
            text,
            lines: line_starts(text.as_bytes()),
            units: if text.is_ascii() {
                Vec::new()
            } else {
                unit_counts(text)
            },
        }
    }

    /// The text.
    pub(super) const fn str(&self) -> &'t str {
        self.text
    }

    /// How many lines it has: what stands behind the last line end is one if it is not empty.
    pub(super) fn line_count(&self) -> u32 {
        let ends_open = self
            .lines
            .last()
            .is_some_and(|&start| (start as usize) < self.text.len());
        (self.lines.len() - 1 + usize::from(ends_open)) as u32
    }

    /// The place of a byte, which is one of a character's start.
    pub(super) fn position(&self, byte: usize) -> Position {
        let byte = byte.min(self.text.len());
        let line = self.lines.partition_point(|&start| start as usize <= byte);
        let start = self.lines.get(line.wrapping_sub(1)).copied().unwrap_or(0);
        let utf16 = self.units_before(byte);
        Position {
            byte: byte as u32,
            utf16,
            line: line as u32,
            column: utf16 - self.units_before(start as usize),
        }
    }

    fn units_before(&self, byte: usize) -> u32 {
        let Some(&known) = self.units.get(byte / STEP) else {
            return byte as u32;
        };
        let from = self.text.floor_char_boundary(byte / STEP * STEP);
        known + units(self.text.get(from..byte).unwrap_or_default())
    }
}

fn units(text: &str) -> u32 {
    text.chars().map(char::len_utf16).sum::<usize>() as u32
}

fn unit_counts(text: &str) -> Vec<u32> {
    let mut counts = Vec::with_capacity(text.len() / STEP + 1);
    let (mut count, mut next) = (0, 0);
    for (at, char) in text.char_indices() {
        if at + char.len_utf8() > next {
            counts.push(count);
            next += STEP;
        }
        count += char.len_utf16() as u32;
    }
    // The end may lie on a step of its own.
    if next <= text.len() {
        counts.push(count);
    }
    counts
}

fn line_starts(bytes: &[u8]) -> Vec<u32> {
    let mut starts = vec![0];
    let mut rest = bytes.iter().enumerate().peekable();
    while let Some((at, byte)) = rest.next() {
        let next_is_feed = rest.peek().is_some_and(|(_, next)| **next == b'\n');
        if *byte == b'\n' || (*byte == b'\r' && !next_is_feed) {
            starts.push(at as u32 + 1);
        }
    }
    starts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_end_at_feeds_returns_and_both() {
        let lines: Vec<_> = [0, 2, 3, 5, 6]
            .map(|byte| Text::new("a\nb\r\nc\rd").position(byte).line)
            .into();
        assert_eq!(lines, [1, 2, 2, 3, 3]);
        assert_eq!(Text::new("a\n").line_count(), 1);
        assert_eq!(Text::new("a\nb").line_count(), 2);
        assert_eq!(Text::new("").line_count(), 0);
    }

    proptest! {
        #[test]
        fn units_are_those_of_the_text_before(text in "[a\\néß中𝒳\\r]{0,900}") {
            let index = Text::new(&text);
            for (byte, _) in text.char_indices() {
                let expected = text[..byte].encode_utf16().count() as u32;
                prop_assert_eq!(index.position(byte).utf16, expected);
            }
        }
    }
}
