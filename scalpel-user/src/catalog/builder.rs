//! Puts a catalog together file by file, and numbers what has the same name.

use rustc_hash::FxHashMap;

use super::{Catalog, DefId, Definition, Edge, File, FileId, Gap, Piece, RootId};

/// A catalog under construction. Definitions of a file are added right after the file.
#[derive(Debug, Default)]
pub struct Builder {
    catalog: Catalog,
    /// How many definitions of the last file have which qualified name.
    names: FxHashMap<String, u32>,
}

impl Builder {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a folder.
    pub fn root(&mut self, path: impl Into<String>) -> RootId {
        self.catalog.roots.push(path.into());
        RootId(last(self.catalog.roots.len()))
    }

    /// Adds a file.
    pub fn file(&mut self, file: File) -> FileId {
        self.names.clear();
        self.catalog.files.push(file);
        FileId(last(self.catalog.files.len()))
    }

    /// Adds a definition of the last file; its ordinal is counted here.
    pub fn definition(&mut self, mut definition: Definition) -> DefId {
        definition.ordinal = match self.names.get_mut(&definition.qualified) {
            Some(next) => {
                *next += 1;
                *next
            }
            None => {
                self.names.insert(definition.qualified.clone(), 0);
                0
            }
        };
        self.catalog.definitions.push(definition);
        DefId(last(self.catalog.definitions.len()))
    }

    /// The number that the next definition will have.
    pub fn next(&self) -> DefId {
        DefId(u32::try_from(self.catalog.definitions.len()).unwrap_or(u32::MAX))
    }

    /// Adds a stretch of machine code.
    pub fn piece(&mut self, piece: Piece) {
        self.catalog.pieces.push(piece);
    }

    /// Adds a call.
    pub fn edge(&mut self, edge: Edge) {
        self.catalog.edges.push(edge);
    }

    /// Adds a gap.
    pub fn gap(&mut self, gap: Gap) {
        self.catalog.gaps.push(gap);
    }

    /// How many calls a file has, and how many of them became edges.
    pub fn counts(&mut self, file: FileId, calls: u32, resolved: u32) {
        if let Some(file) = self.catalog.files.get_mut(file.index()) {
            (file.calls, file.resolved) = (calls, resolved);
        }
    }

    /// The catalog: edges in order of caller and place, each once.
    pub fn finish(mut self) -> Catalog {
        self.catalog.edges.sort_unstable();
        self.catalog.edges.dedup();
        self.catalog.pieces.sort_unstable();
        self.catalog
    }
}

fn last(length: usize) -> u32 {
    u32::try_from(length - 1).unwrap_or(u32::MAX)
}
