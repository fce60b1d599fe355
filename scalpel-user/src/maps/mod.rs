//! Source maps: from a place in text that a tool made to the place in the text that a person wrote.
//!
//! Columns are UTF-16 units on both sides, as ECMA-426 has them and as V8 counts. Pure: [`find`] reads files. Names in
//! maps are not used: at the starts of functions they name something else.

mod begins;
pub mod find;
mod lines;
mod words;

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use sourcemap::DecodedMap;

pub use lines::Lines;

/// A place in a text: line from 0, column in UTF-16 units from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Line, from 0.
    pub line: u32,
    /// Column in UTF-16 units, from 0.
    pub column: u32,
}

/// A place in an original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Original<'a> {
    /// Path as the map has it, made absolute where it can be.
    pub source: &'a str,
    /// Place there.
    pub place: Place,
}

/// One mapping: from a place in the made text to one in an original, or to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapping {
    made: Place,
    /// A function begins there, as far as a glance tells.
    begins: bool,
    original: Option<(u32, Place)>,
    /// Whether the same word stands there in the original, if that was asked and both have one.
    alike: Option<bool>,
}

/// A source map, flattened, with the lines of the text that it is for.
#[derive(Clone, Debug, Default)]
pub struct Map {
    mappings: Vec<Mapping>,
    sources: Vec<String>,
    contents: Vec<Option<u64>>,
    /// Originals that did not come with the map, and of which the words tell whether they are those that were built.
    by_words: BTreeSet<u32>,
    lines: Lines,
}

/// Why a map is of no use.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// It is no source map.
    #[error("it is no source map: {0}")]
    Bad(String),
    /// It is split over files, which is not followed.
    #[error("its sections are in other files")]
    Elsewhere,
}

impl Map {
    /// Reads a map in JSON, with or without sections, for `text`. `absolute` makes paths of sources absolute; `hash`
    /// hashes the originals that come with the map.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn parse(
        json: &[u8],
        text: &str,
        absolute: impl Fn(&str) -> String,
        hash: impl Fn(&[u8]) -> u64,
    ) -> Result<Self, MapError> {
        let bad = |error: sourcemap::Error| MapError::Bad(error.to_string());
        let map = match sourcemap::decode_slice(json).map_err(bad)? {
            DecodedMap::Regular(map) => map,
            DecodedMap::Index(index) => {
                if index
                    .sections()
                    .any(|section| section.get_sourcemap().is_none())
                {
                    return Err(MapError::Elsewhere);
                }
                index.flatten().map_err(bad)?
            }
            DecodedMap::Hermes(_) => return Err(MapError::Bad("it is for byte code".into())),
        };
        let lines = Lines::of(text);
        let bytes = lines::bytes_of_units(text);
        let rest = |made| text.get(*bytes.get(lines.unit(made)? as usize)? as usize..);
        let begins = |made| rest(made).is_some_and(begins::a_function);
        let mut mappings: Vec<Mapping> =
            map.tokens().map(|token| mapping(&token, begins)).collect();
        mappings.sort_by_key(|mapping| mapping.made);
        Ok(Self {
            mappings,
            sources: map.sources().map(absolute).collect(),
            contents: (0..map.get_source_count())
                .map(|at| {
                    map.get_source_contents(at)
                        .map(|text| hash(text.as_bytes()))
                })
                .collect(),
            by_words: BTreeSet::new(),
            lines,
        })
    }

    /// Paths of the originals.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(String::as_str)
    }

    /// Hash of the original that comes with the map, if it does.
    pub fn content(&self, source: &str) -> Option<u64> {
        let at = self.sources.iter().position(|known| known == source)?;
        self.contents.get(at).copied().flatten()
    }

    /// Originals that did not come with the map.
    fn without_content(&self) -> impl Iterator<Item = (usize, &str)> {
        let sources = self.sources.iter().zip(&self.contents).enumerate();
        sources
            .filter(|(_, (_, content))| content.is_none())
            .map(|(at, (source, _))| (at, source.as_str()))
    }

    /// Every place of an original that something of the text comes from, and whether a function begins there in the text.
    pub fn originals(&self) -> impl Iterator<Item = (Original<'_>, bool)> {
        let mappings = self.mappings.iter();
        mappings.filter_map(|mapping| Some((self.original(mapping)?, mapping.begins)))
    }

    /// The original of the last mapping that is not behind `place`, if it is on the same line.
    pub fn at(&self, place: Place) -> Option<Original<'_>> {
        let behind = self
            .mappings
            .partition_point(|mapping| mapping.made <= place);
        let mapping = self.mappings.get(behind.checked_sub(1)?)?;
        (mapping.made.line == place.line).then(|| self.original(mapping))?
    }

    fn original(&self, mapping: &Mapping) -> Option<Original<'_>> {
        let (source, place) = mapping.original?;
        let source = self.sources.get(source as usize)?;
        Some(Original { source, place })
    }

    /// What a stretch of the made text stands for: UTF-16 units in the text, the end exclusive.
    pub fn stretch(&self, start: u32, end: u32) -> Stretch<'_> {
        let (first, last) = (
            self.lines.place(start),
            self.lines.place(end.saturating_sub(1)),
        );
        let from = self
            .mappings
            .partition_point(|mapping| mapping.made < first);
        let to = self
            .mappings
            .partition_point(|mapping| mapping.made <= last);
        let within = self.mappings.get(from..to).unwrap_or_default();
        let with_original = || within.iter().filter_map(|mapping| self.original(mapping));
        let exact = within.first().filter(|mapping| mapping.made == first);
        Stretch {
            start: exact.and_then(|mapping| self.original(mapping)),
            first: with_original().next(),
            last: with_original().next_back(),
        }
    }
}

fn mapping(token: &sourcemap::Token<'_>, begins: impl Fn(Place) -> bool) -> Mapping {
    let place = |(line, column)| Place { line, column };
    Mapping {
        made: place(token.get_dst()),
        begins: begins(place(token.get_dst())),
        original: token
            .has_source()
            .then(|| (token.get_src_id(), place(token.get_src()))),
        alike: None,
    }
}

/// The originals of a stretch of made text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch<'a> {
    /// Of exactly its start.
    pub start: Option<Original<'a>>,
    /// Of the first place in it that has one; `None`: all of it was made by a tool.
    pub first: Option<Original<'a>>,
    /// Of the last place in it that has one.
    pub last: Option<Original<'a>>,
}

/// The maps of the texts that ran, and of their originals where these were made by a tool too.
#[derive(Clone, Debug, Default)]
pub struct Maps {
    /// By hash of the text.
    by_text: FxHashMap<u64, Map>,
    /// By path of an original that has a map of its own: a chain that the bundler did not compose.
    by_source: FxHashMap<String, Map>,
}

/// A chain of maps longer than this goes in a circle.
const LONGEST_CHAIN: usize = 4;

impl Maps {
    /// Adds the map of a text.
    pub fn add(&mut self, text_hash: u64, map: Map) {
        self.by_text.insert(text_hash, map);
    }

    /// Adds the map of an original.
    pub fn chain(&mut self, source: String, map: Map) {
        self.by_source.insert(source, map);
    }

    /// The map of a text that was loaded.
    pub fn of(&self, text_hash: u64) -> Option<&Map> {
        self.by_text.get(&text_hash)
    }

    /// Follows an original that was itself made, to what a person wrote; `None`: it gets lost on the way.
    pub fn follow<'a>(&'a self, mut original: Original<'a>) -> Option<Original<'a>> {
        for _ in 0..LONGEST_CHAIN {
            match self.by_source.get(original.source) {
                None => return Some(original),
                Some(map) => original = map.at(original.place)?,
            }
        }
        None
    }

    /// Hash of an original's text that came with the map of `text_hash`, or with one of the chain.
    pub fn content(&self, text_hash: u64, source: &str) -> Option<u64> {
        let direct = self.of(text_hash).and_then(|map| map.content(source));
        direct.or_else(|| self.by_source.values().find_map(|map| map.content(source)))
    }
}

#[cfg(test)]
mod tests;
