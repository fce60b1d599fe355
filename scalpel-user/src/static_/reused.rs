//! What an earlier build found in texts that did not change.

use std::ops::Range;
use std::path::Path;

use rustc_hash::FxHashMap;

use super::facts::{self, Facts, Found, Parsed};
use crate::catalog::{Definition, FileId, Kept};

/// An earlier build, prepared for questions.
pub(super) struct Reused<'a> {
    before: &'a Kept,
    by_content: FxHashMap<[u8; 32], Vec<FileId>>,
    /// The definitions of each file.
    definitions: FxHashMap<FileId, Range<usize>>,
}

impl<'a> Reused<'a> {
    pub(super) fn of(before: &'a Kept) -> Self {
        let mut reused = Self {
            before,
            by_content: FxHashMap::default(),
            definitions: FxHashMap::default(),
        };
        for (id, file) in before.catalog.numbered_files() {
            reused.by_content.entry(file.content).or_default().push(id);
        }
        for (at, definition) in before.catalog.definitions.iter().enumerate() {
            let stretch = reused.definitions.entry(definition.file);
            stretch.or_insert(at..at).end = at + 1;
        }
        reused
    }

    /// What was found in the same bytes, under a name of the same language.
    pub(super) fn parsed(&self, content: [u8; 32], path: &str) -> Option<Parsed> {
        let mut files = self.by_content.get(&content)?.iter();
        files.find_map(|old| self.of_file(*old, path))
    }

    fn of_file(&self, old: FileId, path: &str) -> Option<Parsed> {
        let file = self.before.catalog.file(old)?;
        let (version, facts) = self.before.facts.get(&old)?;
        let same_end = Path::new(&file.path).extension() == Path::new(path).extension();
        if *version != facts::FACTS_VERSION || !same_end {
            return None;
        }
        let range = self.definitions.get(&old).cloned().unwrap_or_default();
        let first = range.start as u32;
        let rows = self.before.catalog.definitions.get(range)?;
        let gaps = self.before.catalog.gaps.iter();
        Some(Parsed {
            definitions: rows
                .iter()
                .map(|row| found(row, first))
                .collect::<Option<_>>()?,
            gaps: gaps.filter(|gap| gap.file == Some(old)).cloned().collect(),
            lines: file.lines,
            facts: postcard::from_bytes::<Facts>(facts).ok()?,
        })
    }
}

fn found(row: &Definition, first: u32) -> Option<Found> {
    let parent = match row.parent {
        Some(parent) => Some(parent.0.checked_sub(first)?),
        None => None,
    };
    Some(Found {
        parent,
        kind: row.kind,
        name: row.name.clone(),
        qualified: row.qualified.clone(),
        flags: row.flags,
        body_hash: row.body_hash,
        span: row.span,
    })
}
