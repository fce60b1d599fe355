//! How each language finds the file that an import names.

use super::super::facts::What;
use super::index::Index;
use super::lookup::{Entity, Seen};
use crate::catalog::How;

/// Ends that a JavaScript import may leave out.
const ENDS: [&str; 14] = [
    "",
    ".ts",
    ".tsx",
    ".js",
    ".mjs",
    ".cjs",
    ".jsx",
    ".mts",
    ".cts",
    "/index.ts",
    "/index.tsx",
    "/index.js",
    "/index.mjs",
    "/index.cjs",
];

impl Index<'_> {
    // Python

    pub(super) fn python_module(&self, unit: u32, name: &str) -> Option<Entity> {
        let of = self.units.get(unit as usize)?;
        let dots = name.len() - name.trim_start_matches('.').len();
        let inner = name.trim_start_matches('.').replace('.', "/");
        if dots > 0 {
            let mut folder = of.folder();
            for _ in 1..dots {
                folder = folder.rsplit_once('/').map_or("", |(above, _)| above);
            }
            return self.python_file(of.root, &join(folder, &inner));
        }
        let mut folder = of.folder();
        loop {
            // Inside a package, a bare name is never its sibling.
            let in_package = self.file(of.root, &join(folder, "__init__.py")).is_some();
            if let Some(found) = (!in_package)
                .then(|| self.python_file(of.root, &join(folder, &inner)))
                .flatten()
            {
                return Some(found);
            }
            if folder.is_empty() {
                break;
            }
            folder = folder.rsplit_once('/').map_or("", |(above, _)| above);
        }
        self.python_file(of.root, &join("src", &inner))
    }

    fn python_file(&self, root: u32, path: &str) -> Option<Entity> {
        let path = path.trim_end_matches('/');
        let module = self
            .file(root, &join(path, "__init__.py"))
            .or_else(|| self.file(root, &format!("{path}.py")));
        module.map(Entity::Module)
    }

    pub(super) fn python_submodule(&self, unit: u32, name: &str, depth: u32) -> Seen {
        let Some(of) = self.units.get(unit as usize) else {
            return Seen::NOTHING;
        };
        if of.path.ends_with("__init__.py")
            && let Some(module) = self.python_file(of.root, &join(of.folder(), name))
        {
            return Seen::one(module, How::Import);
        }
        self.globs(unit, name, depth + 1)
    }

    // JavaScript

    pub(super) fn javascript_module(&self, unit: u32, name: &str) -> Option<Entity> {
        let of = self.units.get(unit as usize)?;
        if !name.starts_with('.') {
            return None;
        }
        let path = normal(&join(of.folder(), name))?;
        let written = ENDS
            .iter()
            .find_map(|end| self.file(of.root, &format!("{path}{end}")));
        // TypeScript imports its sources by the names that they will have once compiled.
        let source = || {
            let (stem, end) = path.rsplit_once('.')?;
            let ends: &[&str] = match end {
                "js" => &[".ts", ".tsx"],
                "mjs" => &[".mts"],
                "cjs" => &[".cts"],
                _ => &[],
            };
            ends.iter()
                .find_map(|end| self.file(of.root, &format!("{stem}{end}")))
        };
        written.or_else(source).map(Entity::Module)
    }

    pub(super) fn javascript_export(&self, unit: u32, name: &str, depth: u32) -> Seen {
        let Some(of) = self.units.get(unit as usize).filter(|_| depth < 8) else {
            return Seen::NOTHING;
        };
        let named = |wanted: &str| {
            let exports = of.facts.exports.iter();
            exports
                .filter(|export| of.name(export.name) == Some(wanted))
                .collect::<Vec<_>>()
        };
        match named(name).as_slice() {
            [one] => return self.of(unit, 0, &one.what, depth + 1),
            [] if name == "=" => return Seen::one(Entity::Module(unit), How::Import),
            [] => {}
            _ => return Seen::NOTHING,
        }
        let mut found = Vec::new();
        for export in named("") {
            if let (What::Import(_), [Entity::Module(from)]) = (
                &export.what,
                self.of(unit, 0, &export.what, depth + 1)
                    .entities
                    .as_slice(),
            ) {
                found.extend(self.javascript_export(*from, name, depth + 1).entities);
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

    // Go

    pub(super) fn go_package(&self, unit: u32, path: &str) -> Option<Entity> {
        let of = self.units.get(unit as usize)?;
        let (folder, inner) = self
            .module_files
            .iter()
            .filter(|((root, _), _)| *root == of.root)
            .find_map(|((_, folder), module)| {
                let rest = path.strip_prefix(module.as_str())?;
                (rest.is_empty() || rest.starts_with('/'))
                    .then(|| (folder.as_str(), rest.trim_start_matches('/')))
            })?;
        let folder = join(folder, inner);
        let packages = self.packages.iter().filter(|((root, at, name), _)| {
            *root == of.root && *at == folder.trim_end_matches('/') && !name.ends_with("_test")
        });
        let units: Vec<Vec<u32>> = packages.map(|(_, units)| units.clone()).collect();
        match units.as_slice() {
            [units] => Some(Entity::Package(units.clone())),
            _ => None,
        }
    }

    // Java

    pub(super) fn java_class(&self, unit: u32, path: &[&str]) -> Seen {
        let (Some(of), Some((name, package))) = (self.units.get(unit as usize), path.split_last())
        else {
            return Seen::NOTHING;
        };
        let package = package.join(".");
        match self.packages.get(&(of.root, "", package.as_str())) {
            Some(units) => self.of_package(units, name, How::Import, 1),
            None => Seen::NOTHING,
        }
    }

    // Rust

    pub(super) fn rust_import(&self, unit: u32, scope: u32, path: &[&str], depth: u32) -> Seen {
        if depth > 8 {
            return Seen::NOTHING;
        }
        match path {
            ["crate" | "self" | "super", ..] => self.rust_path(unit, path, depth),
            // A path of `use` begins in the module it stands in.
            [first, ..] if !self.bindings(unit, scope, first).is_empty() && path.len() > 1 => {
                self.path(unit, scope, path, depth + 1)
            }
            _ => Seen::NOTHING,
        }
    }

    /// `crate::a::b`, `super::b`, `self::b`, by files; inline modules are left to their file.
    pub(super) fn rust_path(&self, unit: u32, path: &[&str], depth: u32) -> Seen {
        let Some(of) = self.units.get(unit as usize).filter(|_| depth < 8) else {
            return Seen::NOTHING;
        };
        let mut folder = children(of.path);
        let mut rest = path;
        while let Some((first, after)) = rest.split_first() {
            match *first {
                "crate" => folder = crate_folder(of.path).to_owned(),
                "self" => {}
                "super" => {
                    folder = folder
                        .rsplit_once('/')
                        .map_or("", |(above, _)| above)
                        .to_owned()
                }
                _ => break,
            }
            rest = after;
        }
        self.rust_names(of.root, &folder, rest, depth)
    }

    fn rust_names(&self, root: u32, folder: &str, path: &[&str], depth: u32) -> Seen {
        let mut folder = folder.to_owned();
        let mut rest = path;
        while let Some((first, after)) = rest.split_first() {
            let inner = join(&folder, first);
            let is_module = self.rust_file(root, &inner).is_some();
            if !is_module {
                break;
            }
            folder = inner;
            rest = after;
        }
        let Some(file) = self.rust_file(root, &folder) else {
            return Seen::NOTHING;
        };
        self.members(Entity::Module(file), rest, depth + 1)
    }

    fn rust_file(&self, root: u32, folder: &str) -> Option<u32> {
        ["/mod.rs", ".rs", "/lib.rs", "/main.rs"]
            .iter()
            .find_map(|end| self.file(root, format!("{folder}{end}").trim_start_matches('/')))
    }

    // C and C++

    /// The one definition that a linker can bind a name to.
    pub(super) fn linked(&self, name: &str) -> Seen {
        match self.linkage.get(name).map(Vec::as_slice) {
            Some([(unit, definition)]) if !self.macros.contains(name) => {
                Seen::one(Entity::Definition(*unit, *definition), How::Unique)
            }
            _ => Seen::NOTHING,
        }
    }

    /// Free functions by their namespaces: from the innermost one around outwards.
    pub(super) fn qualified_call(&self, unit: u32, scope: u32, path: &[&str]) -> Option<Seen> {
        let of = self.units.get(unit as usize)?;
        let name = path.join("::");
        if path.len() == 1 && !self.bindings_around(unit, scope, &name).is_empty() {
            return None;
        }
        if self.macros.contains(name.as_str()) {
            return Some(Seen::NOTHING);
        }
        let mut spaces = Vec::new();
        let mut at = Some(scope);
        while let Some(here) = at.and_then(|at| of.facts.scopes.get(at as usize)) {
            if let Some(class) = here
                .class
                .and_then(|class| of.facts.classes.get(class as usize))
            {
                if !class.module {
                    // Members of the class, and of what it extends, come first.
                    return None;
                }
                spaces.push(of.name(class.name)?);
            }
            at = here.parent;
        }
        spaces.reverse();
        loop {
            let full = spaces
                .iter()
                .copied()
                .chain([name.as_str()])
                .collect::<Vec<_>>()
                .join("::");
            if let Some(found) = self.linkage.get(&full) {
                let entities = found
                    .iter()
                    .map(|&(unit, definition)| Entity::Definition(unit, definition));
                return Some(Seen {
                    entities: entities.collect(),
                    how: How::Unique,
                });
            }
            spaces.pop()?;
        }
    }
}

fn join(folder: &str, name: &str) -> String {
    match (folder.is_empty(), name.is_empty()) {
        (true, _) => name.to_owned(),
        (_, true) => folder.to_owned(),
        _ => format!("{folder}/{name}"),
    }
}

/// `a/./b/../c` -> `a/c`; `None` = above the root.
fn normal(path: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The folder of a crate's sources: up to its last `src`.
pub(super) fn crate_folder(path: &str) -> &str {
    match path.rfind("/src/") {
        Some(at) => path.get(..at + 4).unwrap_or_default(),
        None if path.starts_with("src/") => "src",
        None => "",
    }
}

/// Where the modules inside of a file of Rust lie.
fn children(path: &str) -> String {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    match file {
        "mod.rs" | "lib.rs" | "main.rs" => folder.to_owned(),
        _ => join(folder, file.strip_suffix(".rs").unwrap_or(file)),
    }
}
