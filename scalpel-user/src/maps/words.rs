//! Whether an original is the text that was built, where the map does not bring it: by the words on both sides.
//!
//! What a compiler makes of a text keeps nearly all of its names, at the places that the map tells. In a text that was
//! edited since, they stand elsewhere: from the first added line on no more than some of a hundred agree by chance.

use super::{Lines, Map, Mapping, Place, lines};

/// How many pairs of words on each side of a function are asked with those within it.
const NEAR: usize = 8;

/// Fewer pairs tell nothing.
const FEWEST: usize = 3;

/// How far behind its place a word may stand in the made text, in bytes: `exports.`, `Shop.prototype.`, `(0, lists_1.`.
const AHEAD: usize = 64;

/// Words that compilers put, move and take away.
const KEYWORDS: &[&str] = &[
    "abstract",
    "async",
    "await",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "declare",
    "default",
    "delete",
    "do",
    "else",
    "enum",
    "export",
    "extends",
    "finally",
    "for",
    "function",
    "get",
    "if",
    "import",
    "in",
    "instanceof",
    "interface",
    "let",
    "namespace",
    "new",
    "of",
    "private",
    "protected",
    "public",
    "readonly",
    "return",
    "set",
    "static",
    "super",
    "switch",
    "this",
    "throw",
    "try",
    "type",
    "typeof",
    "undefined",
    "var",
    "void",
    "while",
    "yield",
];

impl Map {
    /// Compares the words of an original that did not come with the map; `hash` is its text's.
    pub(super) fn compare(&mut self, source: usize, made: &str, original: &str, hash: u64) {
        let (there, bytes) = (Lines::of(original), lines::bytes_of_units(original));
        let here = lines::bytes_of_units(made);
        for mapping in &mut self.mappings {
            let Some((_, place)) = mapping.original.filter(|(of, _)| *of as usize == source) else {
                continue;
            };
            let made = at(made, &here, &self.lines, mapping.made);
            let original = at(original, &bytes, &there, place);
            mapping.alike = match (made, original) {
                (Some(made), Some(original)) => alike(made, original),
                // It has no such line any more.
                _ => Some(false),
            };
        }
        if let Some(content) = self.contents.get_mut(source) {
            *content = Some(hash);
        }
        self.by_words.insert(source as u32);
    }

    /// Whether the words in a stretch of the made text, and those next to it, are those of its original; true where the map
    /// brought the original.
    pub fn is_alike(&self, start: u32, end: u32) -> bool {
        let (first, last) = (
            self.lines.place(start),
            self.lines.place(end.saturating_sub(1)),
        );
        let from = self.mappings.partition_point(|it| it.made < first);
        let to = self.mappings.partition_point(|it| it.made <= last);
        let (before, rest) = self.mappings.split_at(from);
        let (within, after) = rest.split_at(to - from);
        let mut sources = within.iter().filter_map(|it| Some(it.original?.0));
        let Some(source) = sources.find(|source| self.by_words.contains(source)) else {
            return true;
        };
        let ours = |it: &&Mapping| it.original.is_some_and(|(of, _)| of == source);
        let said = |it: &Mapping| it.alike;
        let within: Vec<bool> = within.iter().filter(ours).filter_map(said).collect();
        let before = before.iter().rev().filter(ours).filter_map(said);
        let after = after.iter().filter(ours).filter_map(said);
        let around = before.take(NEAR).chain(after.take(NEAR));
        let all: Vec<bool> = within.iter().copied().chain(around).collect();
        all.len() >= FEWEST && mostly(&all) && mostly(&within)
    }
}

/// Nine of ten.
fn mostly(said: &[bool]) -> bool {
    let wrong = said.iter().filter(|alike| !**alike).count();
    wrong * 10 <= said.len()
}

/// The text from a place on, with the letter before it.
fn at<'t>(
    text: &'t str,
    bytes: &[u32],
    lines: &Lines,
    place: Place,
) -> Option<(Option<char>, &'t str)> {
    let byte = *bytes.get(lines.unit(place)? as usize)? as usize;
    let before = text.get(..byte)?.chars().next_back();
    Some((before, text.get(byte..)?))
}

/// Whether the word that begins there in the original stands here too; `None`: there is no word to compare.
fn alike(made: (Option<char>, &str), original: (Option<char>, &str)) -> Option<bool> {
    let word = word(original.1)?;
    if original.0.is_some_and(is_of_word) {
        return Some(false);
    }
    let here = self::word(made.1)?;
    if KEYWORDS.contains(&word) || KEYWORDS.contains(&here) {
        return None;
    }
    let ahead = made.1.get(..made.1.floor_char_boundary(AHEAD))?;
    let mut words = ahead.lines().next()?.split(|letter| !is_of_word(letter));
    Some(words.any(|there| there == word) || is_numbered(here, word))
}

/// `total_1` of `total`: another one of that name was in the way.
fn is_numbered(made: &str, word: &str) -> bool {
    let number = made
        .strip_prefix(word)
        .and_then(|rest| rest.strip_prefix('_'));
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn word(text: &str) -> Option<&str> {
    let end = text
        .find(|letter| !is_of_word(letter))
        .unwrap_or(text.len());
    let first = text.chars().next()?;
    text.get(..end)
        .filter(|word| !word.is_empty() && !first.is_ascii_digit())
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '$'
}

#[cfg(test)]
mod tests {
    use super::alike;

    #[test]
    fn words_are_compared_where_both_sides_have_one() {
        let check = |made: &str, original: &str, expect| {
            assert_eq!(
                alike((None, made), (None, original)),
                expect,
                "{made} {original}"
            );
        };
        check("total(a)", "total(a: number)", Some(true));
        check("(0, lists_1.total)(a)", "total(a)", None);
        check("lists_1.total)(a)", "total(a)", Some(true));
        check("exports.total = 1", "total", Some(true));
        check("Shop.prototype.total = function", "total()", Some(true));
        check("total_1 = 2", "total = 2", Some(true));
        check("total_x = 2", "total = 2", Some(false));
        check("e(t)", "total(sum)", Some(false));
        check("function total()", "export function total()", None);
        check("7", "7", None);
        assert_eq!(alike((None, "al"), (Some('t'), "al")), Some(false));
    }
}
