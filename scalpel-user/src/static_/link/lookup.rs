//! What a path of names leads to from a place in a text.

use super::super::facts::{Binding, What};
use super::index::Index;
use crate::catalog::How;
use crate::function::Language;

/// Longest chain of imports, aliases and base classes that is followed: chains can run in a circle.
const MOST_STEPS: u32 = 12;

/// What a name can mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entity {
    Definition(u32, u32),
    Class(u32, u32),
    /// An object of that class or of one below.
    Instance(u32, u32),
    /// An object of exactly that class, as seen from below: `super`.
    Exact(u32, u32),
    /// The top level of a file.
    Module(u32),
    /// A folder or package: its files' top levels together.
    Package(Vec<u32>),
}

/// What was found: several for overloads, none where it is not certain.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) entities: Vec<Entity>,
    pub(super) how: How,
}

impl Seen {
    pub(super) const NOTHING: Self = Self {
        entities: Vec::new(),
        how: How::Scope,
    };

    pub(super) fn one(entity: Entity, how: How) -> Self {
        Self {
            entities: vec![entity],
            how,
        }
    }
}

impl Index<'_> {
    /// What `path` means in a scope.
    pub(super) fn path(&self, unit: u32, scope: u32, path: &[&str], depth: u32) -> Seen {
        let Some((first, rest)) = path.split_first() else {
            return Seen::NOTHING;
        };
        if depth > MOST_STEPS {
            return Seen::NOTHING;
        }
        if let Some(seen) = self.by_language(unit, scope, path, depth) {
            return seen;
        }
        let mut seen = self.lookup(unit, scope, first, !rest.is_empty(), depth);
        // Whoever is asked to make an object of its own class may be a class below.
        if let ("cls", true, &[Entity::Class(of, class)]) =
            (*first, rest.is_empty(), seen.entities.as_slice())
            && ["__init__", "__new__"]
                .iter()
                .any(|name| self.is_overridden((of, class), name))
        {
            return Seen::NOTHING;
        }
        for (at, name) in rest.iter().enumerate() {
            let [entity] = seen.entities.as_slice() else {
                return Seen::NOTHING;
            };
            let is_last = at + 1 == rest.len();
            let own = matches!(*first, "self" | "this" | "cls" | "super") && at == 0;
            seen = self.member(&entity.clone(), name, is_last, seen.how, depth);
            if own && is_last {
                seen.how = How::Receiver;
            }
        }
        seen
    }

    /// What a bare name means in a scope. `object`: something follows it.
    fn lookup(&self, unit: u32, scope: u32, name: &str, object: bool, depth: u32) -> Seen {
        let Some(of) = self.units.get(unit as usize) else {
            return Seen::NOTHING;
        };
        let language = of.dialect.language;
        let mut at = Some(scope);
        while let Some(here) = at {
            let Some(data) = of.facts.scopes.get(here as usize) else {
                break;
            };
            let class = data
                .class
                .filter(|&class| self.class(unit, class).is_some_and(|it| !it.module));
            match class {
                Some(class) if name == "this" && language == Language::JavaScript => {
                    return Seen::one(Entity::Instance(unit, class), How::Receiver);
                }
                Some(class) if of.dialect.bare_members => {
                    let seen = self.bare_member(unit, class, name, object, depth);
                    if let Some(seen) = seen {
                        return seen;
                    }
                }
                Some(_) if here != scope || language != Language::Python => {}
                _ => {
                    let bound = self.bindings(unit, here, name);
                    if !bound.is_empty() {
                        return self.bound(unit, here, bound, depth);
                    }
                }
            }
            let is_module = data.class.is_some() && class.is_none();
            if is_module && language == Language::Rust {
                return Seen::NOTHING;
            }
            at = data.parent;
        }
        self.beyond(unit, name, depth)
    }

    /// A member by its bare name; `None` if the class has none and can have none that is not seen.
    fn bare_member(
        &self,
        unit: u32,
        class: u32,
        name: &str,
        object: bool,
        depth: u32,
    ) -> Option<Seen> {
        if object {
            let field = self.member(
                &Entity::Instance(unit, class),
                &format!(".{name}"),
                false,
                How::Receiver,
                depth,
            );
            if !field.entities.is_empty() {
                return Some(field);
            }
        }
        let mut seen = self.member(
            &Entity::Instance(unit, class),
            name,
            true,
            How::Receiver,
            depth,
        );
        if seen.entities.is_empty() {
            let scope = self.class(unit, class)?.scope;
            let has_own = !self.bindings(unit, scope, name).is_empty();
            let all_known = self.above(unit, class, depth).1 && !self.class(unit, class)?.open;
            return (has_own || !all_known).then_some(Seen::NOTHING);
        }
        seen.how = How::Receiver;
        Some(seen)
    }

    /// What bindings of one name in one scope mean together.
    fn bound(&self, unit: u32, scope: u32, bound: &[&Binding], depth: u32) -> Seen {
        let (Some(first), Some(of)) = (bound.first(), self.units.get(unit as usize)) else {
            return Seen::NOTHING;
        };
        let all_same = bound.iter().all(|binding| binding.what == first.what);
        let overloads = bound
            .iter()
            .all(|binding| matches!(binding.what, What::Definition(_)));
        let may_overload = matches!(of.dialect.language, Language::Java | Language::Cpp);
        let is_type = matches!(first.what, What::Typed(_) | What::Instance(_));
        // A variable of a type keeps it when it is assigned, where types are checked.
        let keeps = is_type
            && matches!(
                of.dialect.language,
                Language::Go | Language::Rust | Language::Java | Language::Cpp
            );
        if !keeps
            && of
                .facts
                .reassigned
                .iter()
                .any(|&(from, name)| name == first.name && self.means(unit, from, name, scope))
        {
            return Seen::NOTHING;
        }
        if all_same {
            return self.of(unit, scope, &first.what, depth);
        }
        if overloads && may_overload {
            let entities = bound.iter().filter_map(|binding| match binding.what {
                What::Definition(definition) => Some(Entity::Definition(unit, definition)),
                _ => None,
            });
            return Seen {
                entities: entities.collect(),
                how: How::Scope,
            };
        }
        Seen::NOTHING
    }

    /// Whether a name that is assigned in scope `from` is the one bound in `scope`.
    fn means(&self, unit: u32, from: u32, name: u32, scope: u32) -> bool {
        let Some(of) = self.units.get(unit as usize) else {
            return true;
        };
        let Some(text) = of.name(name) else {
            return true;
        };
        let mut at = Some(from);
        while let Some(here) = at {
            if here == scope {
                return true;
            }
            if !self.bindings(unit, here, text).is_empty() {
                return false;
            }
            at = of
                .facts
                .scopes
                .get(here as usize)
                .and_then(|scope| scope.parent);
        }
        false
    }

    /// What a binding stands for.
    pub(super) fn of(&self, unit: u32, scope: u32, what: &What, depth: u32) -> Seen {
        let text = |path: &[u32]| -> Option<Vec<&str>> {
            let of = self.units.get(unit as usize)?;
            path.iter().map(|&name| of.name(name)).collect()
        };
        match what {
            What::Definition(definition) => {
                Seen::one(Entity::Definition(unit, *definition), How::Scope)
            }
            What::Class(class) => Seen::one(Entity::Class(unit, *class), How::Scope),
            What::Instance(class) => Seen::one(Entity::Instance(unit, *class), How::Receiver),
            What::Base(class) => match self.above(unit, *class, depth) {
                (above, true) => match above.as_slice() {
                    [((unit, class), _)] => Seen::one(Entity::Exact(*unit, *class), How::Receiver),
                    _ => Seen::NOTHING,
                },
                _ => Seen::NOTHING,
            },
            What::Typed(path) => match self.named_class(unit, scope, path, depth) {
                Some((unit, class)) => Seen::one(Entity::Instance(unit, class), How::Type),
                None => Seen::NOTHING,
            },
            What::Import(path) => match text(path) {
                Some(path) => Seen {
                    how: How::Import,
                    ..self.import(unit, scope, &path, depth + 1)
                },
                None => Seen::NOTHING,
            },
            What::Local(path) => match text(path) {
                Some(path) => self.path(unit, scope, &path, depth + 1),
                None => Seen::NOTHING,
            },
            What::Opaque => Seen::NOTHING,
        }
    }

    /// What `name` means behind `entity`.
    pub(super) fn member(
        &self,
        entity: &Entity,
        name: &str,
        is_last: bool,
        how: How,
        depth: u32,
    ) -> Seen {
        if depth > MOST_STEPS {
            return Seen::NOTHING;
        }
        match entity {
            Entity::Class(unit, class) | Entity::Exact(unit, class) => {
                let seen = self.class_member(*unit, *class, name, depth);
                Seen {
                    how: if how == How::Import { how } else { How::Type },
                    ..seen
                }
            }
            Entity::Instance(unit, class) => {
                let mut name = name.to_owned();
                if !is_last
                    && self.language_of(*unit) == Some(Language::Java)
                    && !name.starts_with('.')
                {
                    name = format!(".{name}");
                }
                self.instance_member(*unit, *class, &name, how, depth)
            }
            Entity::Module(unit) => Seen {
                how,
                ..self.exported(*unit, name, depth + 1)
            },
            Entity::Package(units) => self.of_package(units, name, how, depth),
            Entity::Definition(..) => Seen::NOTHING,
        }
    }

    pub(super) fn language_of(&self, unit: u32) -> Option<Language> {
        self.units
            .get(unit as usize)
            .map(|unit| unit.dialect.language)
    }

    fn instance_member(&self, unit: u32, class: u32, name: &str, how: How, depth: u32) -> Seen {
        let Some(language) = self.language_of(unit) else {
            return Seen::NOTHING;
        };
        if self.uncertain.contains(&(language, name)) || self.is_overridden((unit, class), name) {
            return Seen::NOTHING;
        }
        Seen {
            how,
            ..self.class_member(unit, class, name, depth)
        }
    }

    /// A member of a class, or of the nearest class above that has one.
    fn class_member(&self, unit: u32, class: u32, name: &str, depth: u32) -> Seen {
        if depth > MOST_STEPS {
            return Seen::NOTHING;
        }
        let own = self.own_member(unit, class, name, depth);
        if let Some(own) = own {
            return own;
        }
        let (mut above, known) = self.above(unit, class, depth);
        above.sort_by_key(|&(_, order)| order);
        for ((unit, class), _) in above {
            let seen = self.class_member(unit, class, name, depth + 1);
            if !seen.entities.is_empty() {
                return seen;
            }
            if !known {
                return Seen::NOTHING;
            }
        }
        Seen::NOTHING
    }

    /// A member of the class itself; `None` = it has none of that name.
    fn own_member(&self, unit: u32, class: u32, name: &str, depth: u32) -> Option<Seen> {
        let parts = self.parts(unit, class);
        for by_trait in [false, true] {
            let mut found = Vec::new();
            for &(unit, class) in &parts {
                let Some(part) = self
                    .class(unit, class)
                    .filter(|part| part.of_trait == by_trait)
                else {
                    continue;
                };
                let bound = self.bindings(unit, part.scope, name);
                if !bound.is_empty() {
                    found.push(self.bound(unit, part.scope, bound, depth));
                }
            }
            match found.len() {
                0 => {}
                1 => return found.pop(),
                _ => return Some(Seen::NOTHING),
            }
        }
        None
    }

    /// What runs when an object of a class is made.
    pub(super) fn constructors(&self, unit: u32, class: u32, depth: u32) -> Vec<(u32, u32)> {
        let Some(of) = self.class(unit, class).filter(|_| depth < MOST_STEPS) else {
            return Vec::new();
        };
        let spelled = self.bindings(unit, of.scope, "<init>");
        if !spelled.is_empty() {
            let definitions = spelled.iter().filter_map(|binding| match binding.what {
                What::Definition(definition) => Some((unit, definition)),
                _ => None,
            });
            return definitions.collect();
        }
        if let Some(own) = of.constructor.or(of.implicit) {
            return vec![(unit, own)];
        }
        match self.above(unit, class, depth) {
            (above, true) if above.len() == 1 => above
                .into_iter()
                .flat_map(|((unit, class), _)| self.constructors(unit, class, depth + 1))
                .collect(),
            _ => Vec::new(),
        }
    }
}
