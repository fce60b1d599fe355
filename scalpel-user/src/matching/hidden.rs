//! Where functions may have run without being seen, as the probes of a run have told: laid over what exists.

use rustc_hash::FxHashMap;

use crate::catalog::{Blindness, Catalog, File, FileId};
use crate::function::Language;
use crate::genome::Genome;
use crate::genome::unseen::Unseen;

use super::index::Index;

/// Files, folders and languages.
#[derive(Default)]
pub(super) struct Hidden {
    languages: FxHashMap<Language, Blindness>,
    files: FxHashMap<FileId, Blindness>,
    folders: Vec<(String, Blindness)>,
    /// Only what triggers kept of the run is known.
    parts: bool,
}

impl Hidden {
    pub(super) fn of(genome: &Genome, index: &Index<'_>) -> Self {
        let mut hidden = Self {
            parts: !genome.triggers.is_empty(),
            ..Self::default()
        };
        for (language, Unseen { path, why }) in Unseen::among(&genome.blind_spots) {
            match path {
                None => drop(hidden.languages.insert(language, why)),
                Some(folder) if folder.ends_with('/') => hidden.folders.push((folder, why)),
                Some(path) => hidden.file(language, &path, why, index),
            }
        }
        hidden
    }

    fn file(&mut self, language: Language, path: &str, why: Blindness, index: &Index<'_>) {
        let files = index.files_that_may_be(path);
        // What a bundle was made of is only known of one that was seen.
        let is_bundle =
            language == Language::JavaScript && path.starts_with('/') && !is_package(path);
        if files.is_empty() && is_bundle {
            self.languages.insert(language, why);
        }
        self.files.extend(files.into_iter().map(|file| (file, why)));
    }

    /// Why a function of a file may have run unseen; `None` = it cannot have.
    pub(super) fn why(&self, catalog: &Catalog, id: FileId, file: &File) -> Option<Blindness> {
        let known = self.files.get(&id).copied();
        let below = || {
            let path = catalog.path_of(file);
            let is_in = |folder: &str| {
                path.strip_prefix(folder)
                    .is_some_and(|rest| !is_package(rest))
            };
            let found = self.folders.iter().find(|(folder, _)| is_in(folder));
            found.map(|(_, why)| *why)
        };
        let of_language = || self.languages.get(&file.language).copied();
        let of_the_run = || self.parts.then_some(Blindness::Unwatched);
        known
            .or_else(below)
            .or_else(of_language)
            .or_else(of_the_run)
    }
}

/// Installed packages may lie below the folder of the language's own library.
fn is_package(path: &str) -> bool {
    let folders = ["node_modules", "site-packages", "dist-packages"];
    path.split('/').any(|part| folders.contains(&part))
}
