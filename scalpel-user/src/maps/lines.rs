//! Where the lines of a text begin, in UTF-16 units.

use super::Place;

/// The starts of a text's lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    starts: Vec<u32>,
}

impl Lines {
    /// Of `text`. Lines end as ECMAScript has it, and as source maps count: `\n`, `\r\n`, `\r`, U+2028, U+2029.
    pub fn of(text: &str) -> Self {
        let mut starts = vec![0];
        let mut units = 0u32;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            units = units.saturating_add(c.len_utf16() as u32);
            let ends = match c {
                '\r' => chars.peek() != Some(&'\n'),
                '\n' | '\u{2028}' | '\u{2029}' => true,
                _ => false,
            };
            if ends {
                starts.push(units);
            }
        }
        Self { starts }
    }

    /// The UTF-16 unit of a place, if the text has such a line.
    pub fn unit(&self, place: Place) -> Option<u32> {
        let start = self.starts.get(place.line as usize)?;
        start.checked_add(place.column)
    }

    /// The place of a UTF-16 unit of the text.
    pub fn place(&self, unit: u32) -> Place {
        let line = self.starts.partition_point(|start| *start <= unit);
        let line = line.saturating_sub(1);
        let start = self.starts.get(line).copied().unwrap_or(0);
        Place {
            line: line as u32,
            column: unit.saturating_sub(start),
        }
    }
}

/// The byte at which each UTF-16 unit of a text begins.
pub(super) fn bytes_of_units(text: &str) -> Vec<u32> {
    let bytes = text.char_indices();
    let units = bytes.flat_map(|(at, letter)| {
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        std::iter::repeat_n(at, letter.len_utf16())
    });
    units.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_utf_16_units() {
        let lines = Lines::of("é𝕏a\r\nb\rc\n\nd\u{2028}e");
        let place = |line, column| Place { line, column };
        assert_eq!(lines.place(3), place(0, 3));
        assert_eq!(lines.place(6), place(1, 0));
        assert_eq!(lines.place(8), place(2, 0));
        assert_eq!(lines.place(11), place(4, 0));
        assert_eq!(lines.place(13), place(5, 0));
        assert_eq!(lines.unit(place(2, 0)), Some(8));
        assert_eq!(lines.unit(place(9, 0)), None);
        assert_eq!(bytes_of_units("é𝕏a"), [0, 2, 2, 6]);
    }
}
