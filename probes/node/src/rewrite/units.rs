//! UTF-16 units and lines of a UTF-8 text: what JavaScript counts by.

/// Bytes between two known places.
const STEP: usize = 256;

/// Answers in UTF-16 units for a text.
#[derive(Debug)]
pub(super) struct Units<'a> {
    text: &'a str,
    /// Units before each `STEP`-th byte (or the next character's start behind it); empty for ASCII.
    known: Vec<(u32, u32)>,
    /// Byte at which each line starts.
    lines: Vec<u32>,
}

impl<'a> Units<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            known: if text.is_ascii() {
                Vec::new()
            } else {
                known(text)
            },
            lines: line_starts(text),
        }
    }

    /// Units before byte `at`.
    pub(super) fn offset(&self, at: u32) -> u32 {
        let Some(&(byte, units)) = self
            .known
            .partition_point(|(byte, _)| *byte <= at)
            .checked_sub(1)
            .and_then(|place| self.known.get(place))
        else {
            return at;
        };
        let between = self.text.get(byte as usize..at as usize).unwrap_or("");
        units + units_of(between)
    }

    /// Line from 1, and column in units from 0, of byte `at`.
    pub(super) fn position(&self, at: u32) -> (u32, u32) {
        let line = self.lines.partition_point(|start| *start <= at);
        let start = self.lines.get(line.wrapping_sub(1)).copied().unwrap_or(0);
        (line as u32, self.offset(at) - self.offset(start))
    }

    /// Units before each line.
    pub(super) fn line_offsets(&self) -> Vec<u32> {
        self.lines.iter().map(|&start| self.offset(start)).collect()
    }
}

fn units_of(text: &str) -> u32 {
    text.chars().map(|char| char.len_utf16() as u32).sum()
}

fn known(text: &str) -> Vec<(u32, u32)> {
    let mut known = vec![(0, 0)];
    let (mut units, mut next) = (0, STEP);
    for (byte, char) in text.char_indices() {
        if byte >= next {
            known.push((byte as u32, units));
            next = byte + STEP;
        }
        units += char.len_utf16() as u32;
    }
    known
}

/// Lines end as ECMAScript has it: LF, CR, CR LF, U+2028, U+2029.
fn line_starts(text: &str) -> Vec<u32> {
    let mut starts = vec![0];
    let mut chars = text.char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        let follows = chars.peek().map(|(_, next)| *next);
        let ends = match char {
            '\r' => follows != Some('\n'),
            '\n' | '\u{2028}' | '\u{2029}' => true,
            _ => false,
        };
        if ends {
            starts.push((at + char.len_utf8()) as u32);
        }
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_lines_are_those_of_javascript() {
        let text = "a🕵b\r\ncé\u{2028}d\re\n";
        let units = Units::new(text);
        let at = |needle| text.find(needle).unwrap() as u32;
        assert_eq!(units.position(at("b")), (1, 3));
        assert_eq!(units.position(at("é")), (2, 1));
        assert_eq!(units.position(at("d")), (3, 0));
        assert_eq!(units.position(at("e")), (4, 0));
        assert_eq!(
            units.offset(at("d")),
            text[..at("d") as usize].encode_utf16().count() as u32
        );
        assert_eq!(Units::new("x\ny").position(2), (2, 0));
    }

    #[test]
    fn far_places_are_counted_as_near_ones() {
        let text = "é🕵x\n".repeat(500);
        let units = Units::new(&text);
        for (byte, _) in text.char_indices().step_by(97) {
            assert_eq!(
                units.offset(byte as u32),
                text[..byte].encode_utf16().count() as u32
            );
        }
    }
}
