//! Python: what runs as a code object, and what its names stand for. Names are those of `co_qualname`.

use std::sync::OnceLock;

use tree_sitter::Node;

use super::dialect::Dialect;
use super::facts::{Name, What};
use super::note::dotted;
use super::walk::{Open, Walk};
use crate::catalog::{Flags, Kind};
use crate::function::Language;

/// The rules.
pub(super) static PYTHON: Dialect = Dialect {
    language: Language::Python,
    grammar: || tree_sitter_python::LANGUAGE.into(),
    extensions: &["py", "pyw"],
    kinds: &[
        "function_definition",
        "lambda",
        "class_definition",
        "list_comprehension",
        "set_comprehension",
        "dictionary_comprehension",
        "generator_expression",
        "yield",
        "await",
        "import_statement",
        "import_from_statement",
        "assignment",
        "augmented_assignment",
        "named_expression",
        "for_statement",
        "for_in_clause",
        "as_pattern_target",
        "global_statement",
        "nonlocal_statement",
        "delete_statement",
        "call",
    ],
    enter,
    joint: ".",
    module: Some("<module>"),
    bare_members: false,
    seen: OnceLock::new(),
};

const STEPS: &[(&str, &str, &str)] = &[("attribute", "object", "attribute")];
const LEAVES: &[&str] = &["identifier"];

fn enter(walk: &mut Walk<'_>, node: Node<'_>) {
    match node.kind() {
        "function_definition" => function(walk, node),
        "lambda" => closure(walk, node, "<lambda>"),
        "class_definition" => class(walk, node),
        "list_comprehension" => comprehension(walk, node, "<listcomp>"),
        "set_comprehension" => comprehension(walk, node, "<setcomp>"),
        "dictionary_comprehension" => comprehension(walk, node, "<dictcomp>"),
        "generator_expression" => comprehension(walk, node, "<genexpr>"),
        "yield" => walk.mark_generator(),
        "import_statement" => imports(walk, node),
        "import_from_statement" => imports_from(walk, node),
        "assignment" => assignment(walk, node),
        "augmented_assignment" | "for_statement" | "for_in_clause" => {
            let left = node.child_by_field_name("left");
            targets(walk, left);
        }
        "named_expression" => targets(walk, node.child_by_field_name("name")),
        "as_pattern_target" | "delete_statement" => targets(walk, Some(node)),
        "global_statement" | "nonlocal_statement" => outer_names(walk, node),
        "call" => call(walk, node),
        _ => {}
    }
}

fn function(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(name) = node.child_by_field_name("name") else {
        return;
    };
    let decorated = node
        .parent()
        .filter(|parent| parent.kind() == "decorated_definition");
    let decorators = decorated
        .map(|parent| decorators(walk, parent))
        .unwrap_or_default();
    let class = walk.class();
    let has = |word: &str| decorators.contains(&word);
    let is_async = node.child(0).is_some_and(|first| first.kind() == "async");
    let text = walk.str(name);
    let opened = walk.open(&Open {
        name: Some(text.into()),
        flags: Flags {
            is_async,
            is_static: has("staticmethod") || has("classmethod"),
            ..Flags::default()
        },
        declared: decorated.unwrap_or(node).start_byte(),
        name_at: Some(name),
        inner: "<locals>",
        ..Open::of(node, kind_of(text, class.is_some(), &decorators))
    });
    let Some((definition, scope)) = opened else {
        return;
    };
    let outer = walk.outer_scope();
    walk.bind_in(outer, text, as_called(definition, &decorators));
    own_object(walk, node, class, scope, &decorators);
    parameters(walk, node);
    if let Some(class) = class.filter(|_| text == "__init__" && decorators.is_empty()) {
        walk.constructor(class, definition);
    }
}

fn kind_of(name: &str, in_class: bool, decorators: &[&str]) -> Kind {
    let is_setter = |text: &&str| text.ends_with(".setter") || text.ends_with(".deleter");
    match in_class {
        false => Kind::Function,
        true if name == "__init__" => Kind::Constructor,
        true if decorators.contains(&"property") => Kind::Getter,
        true if decorators.iter().any(is_setter) => Kind::Setter,
        true => Kind::Method,
    }
}

/// A decorator may put anything in the place of a function: only some are known to leave its calls alone.
fn as_called(definition: u32, decorators: &[&str]) -> What {
    const PLAIN: [&str; 5] = [
        "staticmethod",
        "classmethod",
        "abstractmethod",
        "abc.abstractmethod",
        "override",
    ];
    if decorators.iter().all(|decorator| PLAIN.contains(decorator)) {
        What::Definition(definition)
    } else {
        What::Opaque
    }
}

fn decorators<'t>(walk: &Walk<'t>, decorated: Node<'_>) -> Vec<&'t str> {
    let mut cursor = decorated.walk();
    decorated
        .named_children(&mut cursor)
        .filter(|child| child.kind() == "decorator")
        .map(|child| walk.str(child).trim_start_matches('@').trim())
        .collect()
}

/// The first parameter of a method is its object, or its class.
fn own_object(
    walk: &mut Walk<'_>,
    node: Node<'_>,
    class: Option<u32>,
    scope: u32,
    decorators: &[&str],
) {
    let Some(class) = class else { return };
    walk.bind_in(scope, "super", What::Base(class));
    let first = node
        .child_by_field_name("parameters")
        .and_then(|list| list.named_child(0))
        .filter(|first| first.kind() == "identifier");
    let what = match decorators {
        _ if decorators.contains(&"staticmethod") => return,
        _ if decorators.contains(&"classmethod") => What::Class(class),
        _ => What::Instance(class),
    };
    if let Some(first) = first {
        let name = walk.str(first);
        walk.bind_in(scope, name, what);
    }
}

fn parameters(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(list) = node.child_by_field_name("parameters") else {
        return;
    };
    let mut cursor = list.walk();
    let children: Vec<_> = list.named_children(&mut cursor).collect();
    let is_own = walk.is_own_object(&children);
    for parameter in children.into_iter().skip(usize::from(is_own)) {
        let (name, kind) = match parameter.kind() {
            "identifier" => (Some(parameter), None),
            "typed_parameter" => (
                parameter.named_child(0),
                parameter.child_by_field_name("type"),
            ),
            "default_parameter" => (parameter.child_by_field_name("name"), None),
            "typed_default_parameter" => (
                parameter.child_by_field_name("name"),
                parameter.child_by_field_name("type"),
            ),
            _ => (parameter.named_child(0), None),
        };
        if let Some(name) = name.filter(|name| name.kind() == "identifier") {
            let what = typed(walk, kind.and_then(|kind| kind.named_child(0)));
            let name = walk.str(name);
            walk.bind(name, what);
        }
    }
}

/// What an annotation or the callee of a value says of a name.
fn typed(walk: &mut Walk<'_>, class: Option<Node<'_>>) -> What {
    match class.and_then(|class| dotted(walk, class, STEPS, LEAVES)) {
        Some(path) => What::Typed(walk.path(&path)),
        None => What::Opaque,
    }
}

fn closure(walk: &mut Walk<'_>, node: Node<'_>, made_up: &'static str) {
    let opened = walk.open(&Open {
        made_up,
        inner: "<locals>",
        in_head: is_in_head(node),
        ..Open::of(node, Kind::Closure)
    });
    if opened.is_some() {
        parameters(walk, node);
    }
}

/// Whether it is part of a default value, an annotation or a list of bases: these run outside of what they belong to.
fn is_in_head(node: Node<'_>) -> bool {
    let mut at = node;
    while let Some(parent) = at.parent() {
        let fields: &[&str] = match parent.kind() {
            "function_definition" | "lambda" => &["parameters", "return_type"],
            "class_definition" => &["superclasses"],
            _ => &[],
        };
        if matches!(
            parent.kind(),
            "function_definition" | "lambda" | "class_definition"
        ) {
            let is_here = |field: &&str| parent.child_by_field_name(field) == Some(at);
            return fields.iter().any(is_here);
        }
        at = parent;
    }
    false
}

fn comprehension(walk: &mut Walk<'_>, node: Node<'_>, made_up: &'static str) {
    walk.open(&Open {
        made_up,
        inner: "<locals>",
        in_head: is_in_head(node),
        flags: Flags {
            generator: made_up == "<genexpr>",
            ..Flags::default()
        },
        ..Open::of(node, Kind::Comprehension)
    });
}

fn class(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(name) = node.child_by_field_name("name") else {
        return;
    };
    let decorated = node
        .parent()
        .filter(|parent| parent.kind() == "decorated_definition");
    let text = walk.str(name);
    let definition = walk.aside(&Open {
        name: Some(text.into()),
        declared: decorated.unwrap_or(node).start_byte(),
        name_at: Some(name),
        ..Open::of(node, Kind::Class)
    });
    let (bases, open) = bases(walk, node);
    let outer = walk.scope();
    if let Some(class) = walk.open_class(text, Some(definition), bases) {
        walk.open_ended(class, open || decorated.is_some());
        walk.bind_in(outer, text, What::Class(class));
    }
}

/// Paths of the classes above, and whether there is more above than they say.
fn bases(walk: &mut Walk<'_>, node: Node<'_>) -> (Vec<Vec<Name>>, bool) {
    let Some(list) = node.child_by_field_name("superclasses") else {
        return (Vec::new(), false);
    };
    let mut cursor = list.walk();
    let (mut bases, mut open) = (Vec::new(), false);
    for base in list.named_children(&mut cursor) {
        match dotted(walk, base, STEPS, LEAVES) {
            Some(path) => bases.push(walk.path(&path)),
            None => open |= base.kind() != "comment",
        }
    }
    (bases, open)
}

fn imports(walk: &mut Walk<'_>, node: Node<'_>) {
    let mut cursor = node.walk();
    for child in node.children_by_field_name("name", &mut cursor) {
        if child.kind() == "aliased_import" {
            if let (Some(module), Some(alias)) =
                (walk.field(child, "name"), walk.field(child, "alias"))
            {
                let path = walk.path(&[module]);
                walk.bind(alias, What::Import(path));
            }
            continue;
        }
        let module = walk.str(child);
        let head = module.split('.').next().unwrap_or(module);
        let path = walk.path(&[head]);
        walk.bind(head, What::Import(path));
    }
}

fn imports_from(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(module) = walk.field(node, "module_name") else {
        return;
    };
    let mut cursor = node.walk();
    if node
        .children(&mut cursor)
        .any(|child| child.kind() == "wildcard_import")
    {
        let path = walk.path(&[module]);
        walk.facts().globs.push(path);
        return;
    }
    let mut cursor = node.walk();
    let names: Vec<_> = node.children_by_field_name("name", &mut cursor).collect();
    for child in names {
        let (name, alias) = match child.kind() {
            "aliased_import" => (walk.field(child, "name"), walk.field(child, "alias")),
            _ => (Some(walk.str(child)), Some(walk.str(child))),
        };
        if let (Some(name), Some(alias)) = (name, alias) {
            let path = walk.path(&[module, name]);
            walk.bind(alias, What::Import(path));
        }
    }
}

fn assignment(walk: &mut Walk<'_>, node: Node<'_>) {
    let left = node.child_by_field_name("left");
    let value = node.child_by_field_name("right");
    let made = value
        .filter(|value| value.kind() == "call")
        .and_then(|value| value.child_by_field_name("function"));
    let Some(left) = left else { return };
    match left.kind() {
        "identifier" => {
            let what = alias_or_typed(walk, value, made);
            let name = walk.str(left);
            walk.bind(name, what);
        }
        "attribute" => attribute(walk, left, made),
        _ => targets(walk, Some(left)),
    }
}

/// `x = Class()` makes an object; a lambda is known too; all else is not.
fn alias_or_typed(walk: &mut Walk<'_>, value: Option<Node<'_>>, made: Option<Node<'_>>) -> What {
    match value {
        Some(value) if value.kind() == "lambda" => What::Definition(walk.next_definition()),
        _ => typed(walk, made),
    }
}

/// `self.x = ...` gives the class a member that may hide a method.
fn attribute(walk: &mut Walk<'_>, left: Node<'_>, made: Option<Node<'_>>) {
    let Some(path) = dotted(walk, left, STEPS, LEAVES) else {
        return;
    };
    let [object, name] = path.as_slice() else {
        return;
    };
    match (*object, walk.class_around()) {
        ("self" | "cls", Some(class)) => {
            let what = typed(walk, made);
            walk.bind_member(class, name, what);
        }
        _ => walk.assigned_elsewhere(name),
    }
}

fn targets(walk: &mut Walk<'_>, node: Option<Node<'_>>) {
    let Some(node) = node else { return };
    match node.kind() {
        "identifier" => {
            let name = walk.str(node);
            walk.bind(name, What::Opaque);
        }
        "attribute" => attribute(walk, node, None),
        "subscript" | "call" => {}
        _ => {
            let mut cursor = node.walk();
            let children: Vec<_> = node.named_children(&mut cursor).collect();
            for child in children {
                targets(walk, Some(child));
            }
        }
    }
}

/// A name of an outer scope may be assigned here.
fn outer_names(walk: &mut Walk<'_>, node: Node<'_>) {
    let mut cursor = node.walk();
    let children: Vec<_> = node.named_children(&mut cursor).collect();
    for child in children {
        let name = walk.str(child);
        walk.bind_in(0, name, What::Opaque);
        walk.bind(name, What::Opaque);
    }
}

fn call(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(function) = node.child_by_field_name("function") else {
        return;
    };
    let path = match dotted(walk, function, STEPS, LEAVES) {
        Some(path) => walk.path(&path),
        None => above(walk, function),
    };
    walk.call_outside_of_heads(node, path);
}

/// `super().name`.
fn above(walk: &mut Walk<'_>, function: Node<'_>) -> Vec<Name> {
    let object = function.child_by_field_name("object");
    let is_super = object.is_some_and(|object| walk.str(object) == "super()");
    match walk.field(function, "attribute") {
        Some(name) if is_super => walk.path(&["super", name]),
        _ => Vec::new(),
    }
}
