//! Finds files by text, path and build, and the function around a place.

use rustc_hash::FxHashMap;

use crate::catalog::{Catalog, DefId, Definition, File, FileId};
use crate::function::Language;

/// A catalog, prepared for questions.
pub(super) struct Index<'a> {
    pub(super) catalog: &'a Catalog,
    by_text: FxHashMap<u64, Vec<FileId>>,
    by_path: FxHashMap<String, FileId>,
    by_base: FxHashMap<&'a str, Vec<FileId>>,
    by_build: FxHashMap<&'a str, FileId>,
    /// Definitions of each file in the order of the starts of their declarations.
    by_place: Vec<Vec<DefId>>,
    native: FxHashMap<(FileId, u64), DefId>,
    /// Files of Java by the outermost classes in them.
    classes: FxHashMap<&'a str, Vec<FileId>>,
    /// Functions of an executable that have no code but copies in others; `None` where several have the name.
    only_inlined: FxHashMap<(FileId, &'a str), Option<DefId>>,
}

impl<'a> Index<'a> {
    pub(super) fn of(catalog: &'a Catalog) -> Self {
        let mut index = Self {
            catalog,
            by_text: FxHashMap::default(),
            by_path: FxHashMap::default(),
            by_base: FxHashMap::default(),
            by_build: FxHashMap::default(),
            by_place: vec![Vec::new(); catalog.files.len()],
            native: FxHashMap::default(),
            classes: FxHashMap::default(),
            only_inlined: FxHashMap::default(),
        };
        for (id, file) in catalog.numbered_files() {
            index.add_file(id, file);
        }
        for (id, definition) in catalog.numbered() {
            index.add_definition(id, definition);
        }
        for piece in &catalog.pieces {
            let of = catalog.definition(piece.of);
            if let Some(of) = of.filter(|_| piece.host.is_none()) {
                index
                    .native
                    .entry((of.file, piece.file_offset))
                    .or_insert(piece.of);
            }
        }
        for list in &mut index.by_place {
            list.sort_by_key(|id| {
                catalog
                    .definition(*id)
                    .map(|definition| definition.span.declared.byte)
            });
        }
        index
    }

    fn add_file(&mut self, id: FileId, file: &'a File) {
        if file.text_hash != 0 {
            self.by_text.entry(file.text_hash).or_default().push(id);
        }
        if !file.build_id.is_empty() {
            self.by_build.insert(&file.build_id, id);
        }
        self.by_path.insert(self.catalog.path_of(file), id);
        self.by_base.entry(base(&file.path)).or_default().push(id);
    }

    fn add_definition(&mut self, id: DefId, definition: &'a Definition) {
        match &definition.native {
            Some(native) if native.address == 0 => {
                let name = (definition.file, native.raw_name.as_str());
                let one = self.only_inlined.entry(name);
                one.and_modify(|one| *one = None).or_insert(Some(id));
            }
            Some(native) => {
                self.native
                    .insert((definition.file, native.file_offset), id);
            }
            None => {
                let list = self.by_place.get_mut(definition.file.index());
                list.into_iter().for_each(|list| list.push(id));
                let file = self.catalog.file(definition.file);
                if file.is_some_and(|file| file.language == Language::Java) {
                    let class = definition.qualified.split('.').next().unwrap_or_default();
                    let files = self.classes.entry(class).or_default();
                    if files.last() != Some(&definition.file) {
                        files.push(definition.file);
                    }
                }
            }
        }
    }

    /// Files with this very text, the one at `path` first.
    pub(super) fn files_of_text(&self, text_hash: u64, path: &str) -> Vec<FileId> {
        let mut files = self.by_text.get(&text_hash).cloned().unwrap_or_default();
        let here = self.file_at(path);
        files.sort_by_key(|file| Some(*file) != here);
        files
    }

    /// The file at this path and no other.
    pub(super) fn file_exactly_at(&self, path: &str) -> Option<FileId> {
        self.by_path.get(path).copied()
    }

    /// The file at a path: at that very one, or the only one whose path from its root is the end of it.
    pub(super) fn file_at(&self, path: &str) -> Option<FileId> {
        if let Some(id) = self.file_exactly_at(path) {
            return Some(id);
        }
        let mut files = self.files_that_end(path);
        files.next().filter(|_| files.next().is_none())
    }

    /// The file at this very path, or all whose path from their root is the end of it.
    pub(super) fn files_that_may_be(&self, path: &str) -> Vec<FileId> {
        match self.file_exactly_at(path) {
            Some(id) => vec![id],
            None => self.files_that_end(path).collect(),
        }
    }

    fn files_that_end(&self, path: &str) -> impl Iterator<Item = FileId> {
        let ends = move |id: &FileId| {
            let file = self.catalog.file(*id);
            file.is_some_and(|file| {
                file.root.is_some()
                    && file.path.contains('/')
                    && path
                        .strip_suffix(&*file.path)
                        .is_some_and(|head| head.ends_with('/'))
            })
        };
        let files = self.by_base.get(base(path)).into_iter().flatten();
        files.copied().filter(ends)
    }

    /// The executable with this build-id.
    pub(super) fn image(&self, build_id: &str) -> Option<FileId> {
        self.by_build.get(build_id).copied()
    }

    /// The definition whose code begins at an offset of an executable.
    pub(super) fn code(&self, image: FileId, offset: u64) -> Option<DefId> {
        self.native.get(&(image, offset)).copied()
    }

    /// Files of Java with an outermost class of this name.
    pub(super) fn files_of_class(&self, name: &str) -> impl Iterator<Item = FileId> {
        self.classes.get(name).into_iter().flatten().copied()
    }

    /// The definition of this name that has no code of its own in an executable; `Some(None)`: one of several.
    pub(super) fn only_inlined(&self, image: FileId, raw_name: &str) -> Option<Option<DefId>> {
        self.only_inlined.get(&(image, raw_name)).copied()
    }

    /// Whether a path lies in one of the folders that were searched.
    pub(super) fn is_in_tree(&self, path: &str) -> bool {
        self.catalog.roots.iter().any(|root| {
            path.strip_prefix(root.trim_end_matches('/'))
                .is_some_and(|rest| rest.starts_with('/'))
        })
    }

    /// The definitions of a source file.
    pub(super) fn definitions(
        &self,
        file: FileId,
    ) -> impl Iterator<Item = (DefId, &'a Definition)> {
        let list = self.by_place.get(file.index()).into_iter().flatten();
        list.filter_map(|id| Some((*id, self.catalog.definition(*id)?)))
    }

    /// The innermost definition around a place, its decorators and modifiers included: line from 1, UTF-16 column.
    pub(super) fn around(&self, file: FileId, line: u32, column: u32) -> Option<DefId> {
        let list = self.by_place.get(file.index())?;
        let at = (line, column);
        let holds = |id: DefId| {
            self.catalog.definition(id).is_some_and(|definition| {
                let (from, to) = (definition.span.declared, definition.span.end);
                (from.line, from.column) <= at && at < (to.line, to.column)
            })
        };
        let behind = list.partition_point(|id| {
            self.catalog.definition(*id).is_some_and(|definition| {
                let from = definition.span.declared;
                (from.line, from.column) <= at
            })
        });
        let mut id = *list.get(behind.checked_sub(1)?)?;
        loop {
            if holds(id) {
                return Some(id);
            }
            id = self.catalog.definition(id)?.parent?;
        }
    }
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
