//! Where names lead beyond a file: the import rules of each language.

use super::index::Index;
use super::lookup::{Entity, Seen};
use crate::catalog::How;
use crate::function::Language;

impl Index<'_> {
    /// Names that a language looks up in its own way.
    pub(super) fn by_language(
        &self,
        unit: u32,
        scope: u32,
        path: &[&str],
        depth: u32,
    ) -> Option<Seen> {
        match self.language_of(unit)? {
            Language::Cpp => self.qualified_call(unit, scope, path),
            Language::Rust if matches!(path, ["crate" | "super", ..] | ["self", _, ..]) => {
                let is_object = !self.bindings_around(unit, scope, "self").is_empty();
                (path.first() != Some(&"self") || !is_object)
                    .then(|| self.rust_path(unit, path, depth))
            }
            _ => None,
        }
    }

    pub(super) fn bindings_around(&self, unit: u32, scope: u32, name: &str) -> Vec<u32> {
        let mut found = Vec::new();
        let mut at = Some(scope);
        while let Some(here) = at {
            if !self.bindings(unit, here, name).is_empty() {
                found.push(here);
            }
            let of = self.units.get(unit as usize);
            at = of.and_then(|of| of.facts.scopes.get(here as usize)?.parent);
        }
        found
    }

    /// What an import binds.
    pub(super) fn import(&self, unit: u32, scope: u32, path: &[&str], depth: u32) -> Seen {
        let Some((first, rest)) = path.split_first() else {
            return Seen::NOTHING;
        };
        let start = match self.language_of(unit) {
            Some(Language::Python) => self.python_module(unit, first),
            Some(Language::JavaScript) => self.javascript_module(unit, first),
            Some(Language::Go) => self.go_package(unit, first),
            Some(Language::Java) => return self.java_class(unit, path),
            Some(Language::Rust) => return self.rust_import(unit, scope, path, depth),
            _ => None,
        };
        let Some(start) = start else {
            return Seen::NOTHING;
        };
        self.members(start, rest, depth)
    }

    /// What a path of members leads to, as an import goes along it.
    pub(super) fn members(&self, start: Entity, path: &[&str], depth: u32) -> Seen {
        let mut seen = Seen::one(start, How::Import);
        for (at, name) in path.iter().enumerate() {
            let [entity] = seen.entities.as_slice() else {
                return Seen::NOTHING;
            };
            let is_last = at + 1 == path.len();
            seen = self.member(&entity.clone(), name, is_last, How::Import, depth);
        }
        seen
    }

    /// What other files see of a file under a name.
    pub(super) fn exported(&self, unit: u32, name: &str, depth: u32) -> Seen {
        let language = self.language_of(unit);
        if language == Some(Language::JavaScript) {
            return self.javascript_export(unit, name, depth);
        }
        let bound = self.bindings(unit, 0, name);
        if !bound.is_empty() {
            return match bound {
                [one] => self.of(unit, 0, &one.what, depth),
                _ => self.path(unit, 0, &[name], depth),
            };
        }
        match language {
            Some(Language::Python) => self.python_submodule(unit, name, depth),
            Some(Language::Rust) => self.globs(unit, name, depth),
            _ => Seen::NOTHING,
        }
    }

    /// Names that are bound nowhere around.
    pub(super) fn beyond(&self, unit: u32, name: &str, depth: u32) -> Seen {
        let Some(of) = self.units.get(unit as usize) else {
            return Seen::NOTHING;
        };
        match of.dialect.language {
            Language::Python | Language::Rust => self.globs(unit, name, depth),
            Language::Go => {
                let package = of
                    .facts
                    .package
                    .and_then(|name| of.name(name))
                    .unwrap_or_default();
                let units = self.packages.get(&(of.root, of.folder(), package));
                let others = units
                    .into_iter()
                    .flatten()
                    .copied()
                    .filter(|&other| other != unit);
                self.of_package(&others.collect::<Vec<_>>(), name, How::Scope, depth)
            }
            Language::Java => {
                let package = of
                    .facts
                    .package
                    .and_then(|name| of.name(name))
                    .unwrap_or_default();
                let units = self
                    .packages
                    .get(&(of.root, "", package))
                    .cloned()
                    .unwrap_or_default();
                self.of_package(&units, name, How::Type, depth)
            }
            Language::C => self.linked(name),
            _ => Seen::NOTHING,
        }
    }

    /// Names that `import *` and `use x::*` bring.
    pub(super) fn globs(&self, unit: u32, name: &str, depth: u32) -> Seen {
        let Some(of) = self.units.get(unit as usize).filter(|_| depth < 8) else {
            return Seen::NOTHING;
        };
        let mut found: Vec<Entity> = Vec::new();
        for glob in &of.facts.globs {
            let path: Option<Vec<&str>> = glob.iter().map(|&part| of.name(part)).collect();
            let module = path.map_or(Seen::NOTHING, |path| self.import(unit, 0, &path, depth + 1));
            if let [module] = module.entities.as_slice() {
                found.extend(
                    self.member(module, name, true, How::Import, depth + 1)
                        .entities,
                );
            }
        }
        found.dedup();
        match found.len() {
            1 => Seen {
                entities: found,
                how: How::Import,
            },
            _ => Seen::NOTHING,
        }
    }

    /// The top level names of several files together.
    pub(super) fn of_package(&self, units: &[u32], name: &str, how: How, depth: u32) -> Seen {
        let bound: Vec<_> = units
            .iter()
            .filter_map(|&unit| match self.bindings(unit, 0, name) {
                [one] => Some((unit, one)),
                _ => None,
            })
            .collect();
        match bound.as_slice() {
            [(unit, one)] => Seen {
                how,
                ..self.of(*unit, 0, &one.what, depth + 1)
            },
            _ => Seen::NOTHING,
        }
    }

    pub(super) fn file(&self, root: u32, path: &str) -> Option<u32> {
        self.paths.get(&(root, path)).copied()
    }
}
