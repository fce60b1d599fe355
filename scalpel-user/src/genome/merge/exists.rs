//! What exists, of several catalogs: files by place and content, each once, with everything that is said of them.

use rustc_hash::FxHashMap;

use crate::catalog::{Catalog, DefId, Edge, File, FileId, Gap, Piece, RootId};

/// Takes in the files of `other` that are not there yet, and the calls between any of them; tells where all of it is.
pub(super) fn join(catalog: &mut Catalog, other: Catalog) -> Taken {
    if catalog.is_empty() || *catalog == other {
        *catalog = other;
        return Taken::as_it_was(catalog);
    }
    let mut taken = Taken::of(catalog, &other);
    taken.files(catalog, &other);
    taken.definitions(catalog, &other);
    taken.rest(catalog, &other);
    taken
}

/// Where the parts of the other catalog are in this one, and which files are new.
pub(super) struct Taken {
    roots: Vec<RootId>,
    files: Vec<FileId>,
    is_new: Vec<bool>,
    definitions: Vec<Option<DefId>>,
}

impl Taken {
    fn of(catalog: &mut Catalog, other: &Catalog) -> Self {
        let root = |path: &String| {
            let known = catalog.roots.iter().position(|known| known == path);
            let at = known.unwrap_or_else(|| {
                catalog.roots.push(path.clone());
                catalog.roots.len() - 1
            });
            RootId(at as u32)
        };
        Self {
            roots: other.roots.iter().map(root).collect(),
            files: Vec::new(),
            is_new: Vec::new(),
            definitions: Vec::new(),
        }
    }

    /// Everything has the number that it had.
    fn as_it_was(catalog: &Catalog) -> Self {
        Self {
            roots: (0..catalog.roots.len() as u32).map(RootId).collect(),
            files: catalog.numbered_files().map(|(id, _)| id).collect(),
            is_new: vec![false; catalog.files.len()],
            definitions: catalog.numbered().map(|(id, _)| Some(id)).collect(),
        }
    }

    fn root(&self, root: Option<RootId>) -> Option<RootId> {
        self.roots.get(root?.index()).copied()
    }

    pub(super) fn file(&self, id: FileId) -> FileId {
        self.files.get(id.index()).copied().unwrap_or(id)
    }

    pub(super) fn definition(&self, id: DefId) -> Option<DefId> {
        self.definitions.get(id.index()).copied().flatten()
    }

    fn files(&mut self, catalog: &mut Catalog, other: &Catalog) {
        let place = |root: Option<RootId>, file: &File| (root, file.path.clone(), file.content);
        let mut known: FxHashMap<_, FileId> = catalog
            .numbered_files()
            .map(|(id, file)| (place(file.root, file), id))
            .collect();
        for file in &other.files {
            let root = self.root(file.root);
            let next = FileId(catalog.files.len() as u32);
            let id = *known.entry(place(root, file)).or_insert(next);
            if id == next {
                let file = file.clone();
                catalog.files.push(File { root, ..file });
            } else if let Some(known) = catalog.files.get_mut(id.index()) {
                // How many of its calls are resolved depends on what else was read with it.
                known.resolved = known.resolved.max(file.resolved);
            }
            self.is_new.push(id == next);
            self.files.push(id);
        }
    }

    /// Definitions of new files are added; those of known files are found again by their order in the file.
    fn definitions(&mut self, catalog: &mut Catalog, other: &Catalog) {
        let mut of_file: FxHashMap<FileId, Vec<DefId>> = FxHashMap::default();
        for (id, definition) in catalog.numbered() {
            of_file.entry(definition.file).or_default().push(id);
        }
        let mut seen: FxHashMap<FileId, usize> = FxHashMap::default();
        for definition in &other.definitions {
            let file = self.file(definition.file);
            let nth = seen.entry(file).or_default();
            let at = *nth;
            *nth += 1;
            let is_new = self.is_new.get(definition.file.index());
            let id = if is_new.copied().unwrap_or(false) {
                let mut definition = definition.clone();
                definition.file = file;
                definition.parent = definition.parent.and_then(|id| self.definition(id));
                catalog.definitions.push(definition);
                Some(DefId(catalog.definitions.len() as u32 - 1))
            } else {
                of_file.get(&file).and_then(|ids| ids.get(at)).copied()
            };
            self.definitions.push(id);
        }
    }

    fn rest(&self, catalog: &mut Catalog, other: &Catalog) {
        for piece in &other.pieces {
            if let Some(of) = self.definition(piece.of) {
                let host = piece.host.and_then(|host| self.definition(host));
                catalog.pieces.push(Piece { of, host, ..*piece });
            }
        }
        catalog.pieces.sort_unstable();
        catalog.pieces.dedup();
        for edge in &other.edges {
            if let (Some(caller), Some(callee)) =
                (self.definition(edge.caller), self.definition(edge.callee))
            {
                catalog.edges.push(Edge {
                    caller,
                    callee,
                    ..*edge
                });
            }
        }
        catalog.edges.sort_unstable();
        catalog.edges.dedup();
        for gap in &other.gaps {
            let gap = Gap {
                file: gap.file.map(|file| self.file(file)),
                ..gap.clone()
            };
            if !catalog.gaps.contains(&gap) {
                catalog.gaps.push(gap);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::join;
    use crate::catalog::Catalog;
    use crate::catalog::tests::example;

    #[test]
    fn what_is_known_already_is_not_added_again() {
        let mut catalog = Catalog::default();
        join(&mut catalog, example());
        join(&mut catalog, example());
        assert_eq!(catalog, example());
    }

    #[test]
    fn a_file_that_was_edited_is_another_file_with_functions_of_its_own() {
        let mut edited = example();
        edited.files[0].content[0] ^= 1;
        let (files, definitions) = (edited.files.len(), edited.definitions.len());
        let of_first = edited.definitions.iter();
        let of_first = of_first.filter(|definition| definition.file.0 == 0).count();
        let mut catalog = example();
        join(&mut catalog, edited);
        assert_eq!(catalog.files.len(), files + 1);
        assert_eq!(catalog.definitions.len(), definitions + of_first);
        let last = catalog.definitions.last().unwrap();
        assert_eq!(last.file.0 as usize, files);
    }
}
