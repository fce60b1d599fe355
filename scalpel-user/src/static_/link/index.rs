//! Tables over all files by which names are found.

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::facts::{Binding, Class, What};
use super::lookup::Entity;
use super::{ModuleFiles, Unit};
use crate::function::Language;

/// A class: its file, and its place among the classes of the file.
type ClassAt = (u32, u32);

/// Root, package or crate, and name of classes.
type Family<'a> = (u32, String, &'a str);

/// All files and what can be looked up in them.
pub(super) struct Index<'a> {
    pub(super) units: &'a [Unit<'a>],
    pub(super) module_files: &'a ModuleFiles,
    /// By file: names as numbers.
    names: Vec<FxHashMap<&'a str, u32>>,
    /// By file: what is bound to a name in a scope, as a stretch of `bound`.
    bound: Vec<Vec<&'a Binding>>,
    /// Files by root and path.
    pub(super) paths: FxHashMap<(u32, &'a str), u32>,
    /// Files of a package: Go by folder and name, Java by name.
    pub(super) packages: FxHashMap<(u32, &'a str, &'a str), Vec<u32>>,
    /// Classes of one name in one package or crate, whose members belong together.
    pub(super) together: FxHashMap<Family<'a>, Vec<ClassAt>>,
    /// C and C++: definitions by qualified name, and names that are macros somewhere.
    pub(super) linkage: FxHashMap<String, Vec<(u32, u32)>>,
    pub(super) macros: FxHashSet<&'a str>,
    /// Members that are assigned somewhere, or virtual: no method of that name is certain.
    pub(super) uncertain: FxHashSet<(Language, &'a str)>,
    /// Classes directly below a class.
    below: FxHashMap<(u32, u32), Vec<(u32, u32)>>,
    /// Arguments that a definition takes.
    arity: FxHashMap<(u32, u32), (u8, u8)>,
}

impl<'a> Index<'a> {
    pub(super) fn new(units: &'a [Unit<'a>], module_files: &'a ModuleFiles) -> Self {
        let mut index = Self {
            units,
            module_files,
            names: Vec::with_capacity(units.len()),
            bound: Vec::with_capacity(units.len()),
            paths: FxHashMap::default(),
            packages: FxHashMap::default(),
            together: FxHashMap::default(),
            linkage: FxHashMap::default(),
            macros: FxHashSet::default(),
            uncertain: FxHashSet::default(),
            below: FxHashMap::default(),
            arity: FxHashMap::default(),
        };
        for (number, unit) in (0u32..).zip(units) {
            index.add(number, unit);
        }
        index.find_below();
        index
    }

    fn add(&mut self, number: u32, unit: &'a Unit<'a>) {
        let facts = unit.facts;
        self.names
            .push(facts.names.iter().map(AsRef::as_ref).zip(0..).collect());
        let mut bound: Vec<&Binding> = facts.bindings.iter().collect();
        bound.sort_by_key(|binding| (binding.scope, binding.name));
        self.bound.push(bound);
        self.paths.insert((unit.root, unit.path), number);
        let language = unit.dialect.language;
        if let Some(package) = facts.package.and_then(|name| unit.name(name)) {
            let folder = if language == Language::Go {
                unit.folder()
            } else {
                ""
            };
            self.packages
                .entry((unit.root, folder, package))
                .or_default()
                .push(number);
        }
        let assigned = facts.assigned.iter().filter_map(|&name| unit.name(name));
        self.uncertain.extend(assigned.map(|name| (language, name)));
        for &(definition, least, most) in &facts.arity {
            self.arity.insert((number, definition), (least, most));
        }
        match language {
            Language::C | Language::Cpp => self.add_linkage(number, unit),
            Language::Go | Language::Rust => self.add_together(number, unit),
            _ => {}
        }
    }

    /// Names that a linker sees, and macros, which hide them.
    fn add_linkage(&mut self, number: u32, unit: &'a Unit<'a>) {
        let macros = unit
            .facts
            .exports
            .iter()
            .filter_map(|export| unit.name(export.name));
        self.macros.extend(macros);
        for binding in &unit.facts.bindings {
            let What::Definition(definition) = binding.what else {
                continue;
            };
            if unit.facts.private.contains(&definition) {
                continue;
            }
            if let Some(name) = self.qualified(unit, binding) {
                self.linkage
                    .entry(name)
                    .or_default()
                    .push((number, definition));
            }
        }
    }

    /// The name with the namespaces around; `None` for members of classes.
    fn qualified(&self, unit: &Unit<'_>, binding: &Binding) -> Option<String> {
        let mut name = unit.name(binding.name)?.to_owned();
        let mut at = Some(binding.scope);
        while let Some(scope) = at.and_then(|at| unit.facts.scopes.get(at as usize)) {
            if let Some(class) = scope
                .class
                .and_then(|class| unit.facts.classes.get(class as usize))
            {
                if !class.module {
                    return None;
                }
                name = format!("{}::{name}", unit.name(class.name)?);
            }
            at = scope.parent;
        }
        Some(name)
    }

    fn add_together(&mut self, number: u32, unit: &'a Unit<'a>) {
        for (at, class) in (0u32..).zip(&unit.facts.classes) {
            if class.module {
                continue;
            }
            if let Some(name) = unit.name(class.name) {
                let key = (unit.root, group(unit), name);
                self.together.entry(key).or_default().push((number, at));
            }
        }
    }

    /// All parts of a class: blocks of methods stand apart from their type in Go and Rust.
    pub(super) fn parts(&self, unit: u32, class: u32) -> Vec<(u32, u32)> {
        let alone = vec![(unit, class)];
        let Some(of) = self.units.get(unit as usize) else {
            return alone;
        };
        let Some(name) = self
            .class(unit, class)
            .and_then(|class| of.name(class.name))
        else {
            return alone;
        };
        match of.dialect.language {
            Language::Go | Language::Rust => self
                .together
                .get(&(of.root, group(of), name))
                .cloned()
                .unwrap_or(alone),
            _ => alone,
        }
    }

    pub(super) fn class(&self, unit: u32, class: u32) -> Option<&'a Class> {
        self.units
            .get(unit as usize)?
            .facts
            .classes
            .get(class as usize)
    }

    /// What is bound to a name in a scope.
    pub(super) fn bindings(&self, unit: u32, scope: u32, name: &str) -> &[&'a Binding] {
        let name = self
            .names
            .get(unit as usize)
            .and_then(|names| names.get(name));
        let (Some(&name), Some(bound)) = (name, self.bound.get(unit as usize)) else {
            return &[];
        };
        let key = |binding: &&Binding| (binding.scope, binding.name);
        let first = bound.partition_point(|binding| key(binding) < (scope, name));
        let rest = bound.get(first..).unwrap_or_default();
        let count = rest
            .iter()
            .take_while(|binding| key(binding) == (scope, name))
            .count();
        rest.get(..count).unwrap_or_default()
    }

    /// Whether a call with so many arguments may be one of a definition.
    pub(super) fn takes(&self, unit: u32, definition: u32, arguments: u8) -> bool {
        match self.arity.get(&(unit, definition)) {
            Some(&(least, most)) if arguments != u8::MAX => (least..=most).contains(&arguments),
            _ => true,
        }
    }

    fn find_below(&mut self) {
        let mut below: FxHashMap<(u32, u32), Vec<(u32, u32)>> = FxHashMap::default();
        for (number, unit) in (0u32..).zip(self.units) {
            for (at, _) in (0u32..).zip(&unit.facts.classes) {
                for (base, _) in self.above(number, at, 0).0 {
                    below.entry(base).or_default().push((number, at));
                }
            }
        }
        self.below = below;
    }

    /// The classes that a class extends, with their order, and whether all of them are known.
    pub(super) fn above(&self, unit: u32, class: u32, depth: u32) -> (Vec<(ClassAt, usize)>, bool) {
        let Some(of) = self.class(unit, class) else {
            return (Vec::new(), false);
        };
        let scope = self
            .units
            .get(unit as usize)
            .and_then(|unit| unit.facts.scopes.get(of.scope as usize)?.parent)
            .unwrap_or(0);
        let (mut found, mut known) = (Vec::new(), !of.open);
        for (order, base) in of.bases.iter().enumerate() {
            match self.named_class(unit, scope, base, depth) {
                Some(base) if base != (unit, class) => found.push((base, order)),
                _ => known &= self.is_plain_base(unit, base),
            }
        }
        (found, known)
    }

    fn is_plain_base(&self, unit: u32, base: &[u32]) -> bool {
        let name = |name: &u32| {
            self.units
                .get(unit as usize)
                .and_then(|unit| unit.name(*name))
        };
        matches!(base, [one] if matches!(name(one), Some("object")))
    }

    /// The class that a path of names means in a scope.
    pub(super) fn named_class(
        &self,
        unit: u32,
        scope: u32,
        path: &[u32],
        depth: u32,
    ) -> Option<(u32, u32)> {
        let of = self.units.get(unit as usize)?;
        let path: Option<Vec<&str>> = path.iter().map(|&name| of.name(name)).collect();
        match self
            .path(unit, scope, &path?, depth + 1)
            .entities
            .as_slice()
        {
            [Entity::Class(unit, class)] => Some((*unit, *class)),
            _ => None,
        }
    }

    /// Whether a class below has a member of that name of its own.
    pub(super) fn is_overridden(&self, class: (u32, u32), name: &str) -> bool {
        let mut work = vec![class];
        let mut seen = FxHashSet::default();
        while let Some(above) = work.pop() {
            for &(unit, class) in self.below.get(&above).into_iter().flatten() {
                let Some(scope) = self.class(unit, class).map(|class| class.scope) else {
                    continue;
                };
                if !self.bindings(unit, scope, name).is_empty() {
                    return true;
                }
                if seen.insert((unit, class)) {
                    work.push((unit, class));
                }
            }
        }
        false
    }
}

/// What classes of one name must share to be one: a package of Go, a crate of Rust.
fn group(unit: &Unit<'_>) -> String {
    match unit.dialect.language {
        Language::Go => unit.folder().to_owned(),
        _ => super::languages::crate_folder(unit.path).to_owned(),
    }
}
