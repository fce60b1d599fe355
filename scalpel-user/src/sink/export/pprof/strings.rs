//! The string table: every string once, the empty one first.

use rustc_hash::FxHashMap;

#[derive(Debug)]
pub(super) struct Strings {
    numbers: FxHashMap<String, i64>,
    texts: Vec<String>,
}

impl Strings {
    pub(super) fn new() -> Self {
        let mut strings = Self {
            numbers: FxHashMap::default(),
            texts: Vec::new(),
        };
        strings.number("");
        strings
    }

    /// The number of `text`, which is added if it is new.
    pub(super) fn number(&mut self, text: &str) -> i64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.texts.len() as i64;
        self.numbers.insert(text.to_owned(), number);
        self.texts.push(text.to_owned());
        number
    }

    /// The strings in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }
}
