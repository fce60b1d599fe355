//! How the rules of a language write down what they find: names, classes, calls.

use tree_sitter::Node;

use super::facts::{Binding, Call, Class, Export, Name, What};
use super::walk::Walk;
use crate::catalog::Kind;

impl Walk<'_> {
    /// A name in the innermost scope.
    pub(super) fn bind(&mut self, name: &str, what: What) {
        let scope = self.scope();
        self.bind_in(scope, name, what);
    }

    /// A name in a scope.
    pub(super) fn bind_in(&mut self, scope: u32, name: &str, what: What) {
        if name.is_empty() {
            return;
        }
        let name = self.name(name);
        self.facts().bindings.push(Binding { scope, name, what });
    }

    /// A name that has its meaning from the end of its declaration on, as locals have it where programs are read from top to
    /// bottom: calls of that name before it, and within it, mean something else, and what is not certain.
    pub(super) fn bind_from(&mut self, declaration: Node<'_>, name: &str, what: What) {
        let scope = self.scope();
        if scope > 0 && !name.is_empty() {
            let known = self.name(name);
            let before = self.before.get(scope as usize).copied();
            let (calls, bindings) = before.unwrap_or_default();
            // A local of another block that is the same takes nothing away from the calls there.
            let is_new = !self
                .facts()
                .bindings
                .iter()
                .skip(bindings)
                .any(|it| it.scope == scope && it.name == known && it.what == what);
            if is_new {
                let calls = self.facts().calls.iter_mut().skip(calls);
                calls
                    .filter(|call| call.path.first() == Some(&known))
                    .for_each(|call| call.path.clear());
            }
            let end = u32::try_from(declaration.end_byte()).unwrap_or(u32::MAX);
            self.declaring.push((known, end));
        }
        self.bind(name, what);
    }

    /// The scope outside the innermost one.
    pub(super) fn outer_scope(&self) -> u32 {
        let frames = self.frames.len();
        frames
            .checked_sub(2)
            .and_then(|at| self.frames.get(at))
            .map_or(0, |frame| frame.scope)
    }

    /// A name in a class's own scope.
    pub(super) fn bind_member(&mut self, class: u32, name: &str, what: What) {
        let scope = self
            .parsed
            .facts
            .classes
            .get(class as usize)
            .map(|class| class.scope);
        if let Some(scope) = scope {
            self.bind_in(scope, name, what);
        }
    }

    /// A member of some object is assigned: whose is not known.
    pub(super) fn assigned_elsewhere(&mut self, name: &str) {
        let name = self.name(name);
        self.facts().assigned.push(name);
    }

    /// What runs when an object of a class is made.
    pub(super) fn constructor(&mut self, class: u32, definition: u32) {
        if let Some(class) = self.class_mut(class) {
            class.constructor = Some(definition);
        }
    }

    /// Whether a class may have members that are not seen.
    pub(super) fn open_ended(&mut self, class: u32, open: bool) {
        if let Some(class) = self.class_mut(class) {
            class.open |= open;
        }
    }

    /// The innermost open function can be suspended.
    pub(super) fn mark_generator(&mut self) {
        let definition = self.definition();
        if let Some(found) = definition.and_then(|at| self.parsed.definitions.get_mut(at as usize))
        {
            found.flags.generator = found.kind != Kind::Module;
        }
    }

    /// Whether the first of these parameters is bound already, as the object of a method.
    pub(super) fn is_own_object(&mut self, parameters: &[Node<'_>]) -> bool {
        let Some(name) = parameters.first().map(|first| self.str(*first)) else {
            return false;
        };
        let (scope, name) = (self.scope(), self.name(name));
        let last = self.parsed.facts.bindings.last();
        last.is_some_and(|last| last.scope == scope && last.name == name)
    }

    /// What a definition is.
    pub(super) fn kind_of(&self, definition: u32) -> Option<Kind> {
        self.parsed
            .definitions
            .get(definition as usize)
            .map(|found| found.kind)
    }

    fn class_mut(&mut self, class: u32) -> Option<&mut Class> {
        self.parsed.facts.classes.get_mut(class as usize)
    }

    /// The name that a class goes by where it is looked up.
    pub(super) fn rename_class(&mut self, class: u32, name: &str) {
        let name = self.name(name);
        if let Some(class) = self.class_mut(class) {
            class.name = name;
        }
    }

    /// The name of a class.
    pub(super) fn class_name(&self, class: u32) -> Option<String> {
        let facts = &self.parsed.facts;
        let name = facts.classes.get(class as usize)?.name;
        facts.names.get(name as usize).map(ToString::to_string)
    }

    /// A class that is a module: its functions have no object.
    pub(super) fn is_module(&mut self, class: u32) {
        if let Some(class) = self.class_mut(class) {
            class.module = true;
        }
    }

    /// Whether a named scope is a type.
    pub(super) fn is_type(&self, class: u32) -> bool {
        self.parsed
            .facts
            .classes
            .get(class as usize)
            .is_some_and(|class| !class.module)
    }

    /// Methods that a type has by a trait: its own come first.
    pub(super) fn of_trait(&mut self, class: u32, of_trait: bool) {
        if let Some(class) = self.class_mut(class) {
            class.of_trait = of_trait;
        }
    }

    /// How many arguments a definition takes; 255 = any number.
    pub(super) fn takes(&mut self, definition: u32, least: u8, most: u8) {
        self.facts().arity.push((definition, least, most));
    }

    /// No other file means this definition by its name.
    pub(super) fn keep_private(&mut self, definition: u32) {
        self.facts().private.push(definition);
    }

    /// The number that the next class will have.
    pub(super) fn next_class(&self) -> u32 {
        self.parsed.facts.classes.len() as u32
    }

    /// The constructor that a class has of itself, which runs only if no class above has one.
    pub(super) fn implicit(&mut self, class: u32, definition: u32) {
        if let Some(class) = self.class_mut(class) {
            class.implicit = Some(definition);
        }
    }

    /// Moves a definition's end.
    pub(super) fn extend_to(&mut self, definition: u32, byte: usize) {
        let end = self.text.position(byte);
        if let Some(found) = self.parsed.definitions.get_mut(definition as usize) {
            found.span.end = end;
        }
    }

    /// A name is assigned here: whatever scope it is of, it may be anything.
    pub(super) fn reassigned(&mut self, name: &str) {
        let (scope, name) = (self.scope(), self.name(name));
        self.facts().reassigned.push((scope, name));
    }

    /// A call of the function that is written there.
    pub(super) fn immediate_call(&mut self, node: Node<'_>, definition: u32) {
        self.call(node, Vec::new(), None);
        if let Some(call) = self.facts().calls.last_mut() {
            call.definition = Some(definition);
        }
    }

    /// The number that the next definition will have.
    pub(super) const fn next_definition(&self) -> u32 {
        self.parsed.definitions.len() as u32
    }

    /// A name that other files see.
    pub(super) fn export(&mut self, name: &str, what: What) {
        let name = self.name(name);
        self.facts().exports.push(Export { name, what });
    }

    /// A call; without a path it is only counted.
    pub(super) fn call(&mut self, node: Node<'_>, path: Vec<Name>, arguments: Option<Node<'_>>) {
        let at = self.text.position(node.start_byte());
        let arguments = arguments.map_or(255, |list| count_arguments(list));
        let scope = self.scope();
        self.declaring.retain(|&(_, end)| at.byte < end);
        let declaring = |name: &Name| self.declaring.iter().any(|(known, _)| known == name);
        let path = match path.first().is_some_and(declaring) {
            true => Vec::new(),
            false => path,
        };
        self.facts().calls.push(Call {
            scope,
            byte: at.byte,
            line: at.line,
            column: at.column,
            arguments,
            path,
            definition: None,
        });
    }
}

impl Walk<'_> {
    /// As [`Self::call`]. Before the body of the innermost definition stand default values and bases: they are worked out where
    /// it is made, by what is around it.
    pub(super) fn call_outside_of_heads(&mut self, node: Node<'_>, path: Vec<Name>) {
        self.call(node, path, None);
        let definition = self.definition().map(|id| id as usize);
        let found = definition.and_then(|id| self.parsed.definitions.get(id));
        let body = found.map_or(0, |found| found.span.body.byte);
        let outer = self.outer_scope();
        let call = self.facts().calls.last_mut();
        if let Some(call) = call.filter(|call| call.byte < body) {
            call.scope = outer;
        }
    }
}

fn count_arguments(list: Node<'_>) -> u8 {
    let mut cursor = list.walk();
    let named = list
        .named_children(&mut cursor)
        .filter(|child| !child.is_extra())
        .count();
    u8::try_from(named).unwrap_or(u8::MAX - 1)
}

/// The parts of a path of names, `a.b.c`, innermost object first; `None` if anything else stands in it.
/// `steps` are kinds of nodes that join, with the fields of their object and of their name; `leaves` are names.
pub(super) fn dotted<'t>(
    walk: &Walk<'t>,
    node: Node<'_>,
    steps: &[(&str, &str, &str)],
    leaves: &[&str],
) -> Option<Vec<&'t str>> {
    let mut parts = Vec::new();
    let mut at = node;
    loop {
        let kind = at.kind();
        if leaves.contains(&kind) {
            parts.push(walk.str(at));
            parts.reverse();
            return Some(parts);
        }
        let &(_, object, name) = steps.iter().find(|(step, ..)| *step == kind)?;
        let name = at.child_by_field_name(name)?;
        if name.child_count() > 0 && !leaves.contains(&name.kind()) {
            return None;
        }
        parts.push(walk.str(name));
        at = at.child_by_field_name(object)?;
        if parts.len() > 16 {
            return None;
        }
    }
}
