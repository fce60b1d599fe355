//! Foreign text on a page: made harmless, measured in columns, shortened, wrapped.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// `text` without control characters: a function's name comes from somebody's file and must not drive the terminal.
pub fn clean(text: &str) -> Cow<'_, str> {
    let harmless = |c: char| !c.is_control() && !is_direction(c);
    if text.chars().all(harmless) {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(
            text.chars()
                .map(|c| if harmless(c) { c } else { '\u{fffd}' })
                .collect(),
        )
    }
}

/// Characters that turn the writing direction of what follows them.
const fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Columns that `text` takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// `text` in at most `max` columns. What is cut is the middle: names differ at their ends.
pub fn shorten(text: &str, max: usize) -> Cow<'_, str> {
    if width(text) <= max {
        return Cow::Borrowed(text);
    }
    let room = max.saturating_sub(1);
    let head: String = taken(text.chars(), room.div_ceil(2));
    let tail: String = taken(text.chars().rev(), room / 2).chars().rev().collect();
    Cow::Owned(if max == 0 {
        String::new()
    } else {
        format!("{head}…{tail}")
    })
}

fn taken(chars: impl Iterator<Item = char>, columns: usize) -> String {
    let mut left = columns;
    chars
        .take_while(|c| {
            let fits = left.checked_sub(c.width().unwrap_or(0));
            left = fits.unwrap_or(0);
            fits.is_some()
        })
        .collect()
}

/// `text` in lines of at most `max` columns, broken at spaces. A longer word stands alone.
pub fn wrap(text: &str, max: usize) -> Vec<String> {
    wrap_pieces(
        &text
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>(),
        " ",
        max,
    )
}

/// Pieces in lines of at most `max` columns, `between` each two of a line.
pub fn wrap_pieces(pieces: &[String], between: &str, max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for piece in pieces {
        match lines.last_mut() {
            Some(line) if width(line) + width(between) + width(piece) <= max => {
                line.push_str(between);
                line.push_str(piece);
            }
            _ => lines.push(piece.clone()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{clean, shorten, width, wrap};

    #[test]
    fn names_cannot_drive_the_terminal() {
        assert_eq!(
            clean("a\x1b[2Jb\u{202e}c\n"),
            "a\u{fffd}[2Jb\u{fffd}c\u{fffd}"
        );
        assert_eq!(clean("größe<T>"), "größe<T>");
    }

    #[test]
    fn a_long_name_keeps_both_ends() {
        assert_eq!(shorten("parse_header_fields", 9), "pars…elds");
        assert_eq!(shorten("short", 5), "short");
        assert_eq!(shorten("short", 1), "…");
        assert_eq!(shorten("short", 0), "");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        for max in 0..12 {
            assert!(width(&shorten("漢字漢字漢字", max)) <= max);
        }
    }

    #[test]
    fn text_breaks_at_spaces() {
        assert_eq!(
            wrap("one two  three extraordinarily", 8),
            ["one two", "three", "extraordinarily"]
        );
    }
}
