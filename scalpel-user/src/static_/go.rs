//! Go: functions and methods under the names that its linker gives them within their package, closures numbered as it
//! numbers them, and what names stand for.

use std::sync::OnceLock;

use tree_sitter::Node;

use super::dialect::Dialect;
use super::facts::{Name, What};
use super::note::dotted;
use super::walk::{Open, Walk};
use crate::catalog::Kind;
use crate::function::Language;

/// The rules.
pub(super) static GO: Dialect = Dialect {
    language: Language::Go,
    grammar: || tree_sitter_go::LANGUAGE.into(),
    extensions: &["go"],
    kinds: &[
        "package_clause",
        "import_spec",
        "function_declaration",
        "method_declaration",
        "func_literal",
        "type_spec",
        "short_var_declaration",
        "var_spec",
        "const_spec",
        "assignment_statement",
        "range_clause",
        "receive_statement",
        "type_switch_statement",
        "call_expression",
    ],
    enter,
    joint: ".",
    module: None,
    bare_members: false,
    seen: OnceLock::new(),
};

const STEPS: &[(&str, &str, &str)] = &[("selector_expression", "operand", "field")];
const LEAVES: &[&str] = &[
    "identifier",
    "field_identifier",
    "type_identifier",
    "package_identifier",
];

fn enter(walk: &mut Walk<'_>, node: Node<'_>) {
    match node.kind() {
        "package_clause" => package(walk, node),
        "import_spec" => import(walk, node),
        "function_declaration" => function(walk, node),
        "method_declaration" => method(walk, node),
        "func_literal" => literal(walk, node),
        "type_spec" => type_spec(walk, node),
        "short_var_declaration" => variables(walk, node, "left", "right"),
        "var_spec" => declared(walk, node),
        "const_spec" | "range_clause" | "receive_statement" => {
            let left = node
                .child_by_field_name("left")
                .or_else(|| node.child_by_field_name("name"));
            names(walk, left, &What::Opaque);
        }
        "type_switch_statement" => names(walk, node.child_by_field_name("alias"), &What::Opaque),
        "assignment_statement" => reassigned(walk, node),
        "call_expression" => call(walk, node),
        _ => {}
    }
}

fn package(walk: &mut Walk<'_>, node: Node<'_>) {
    if let Some(name) = node.named_child(0) {
        let name = walk.name(walk.str(name));
        walk.facts().package = Some(name);
    }
}

fn import(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(path) = walk
        .field(node, "path")
        .map(|path| path.trim_matches(['"', '`']))
    else {
        return;
    };
    let module = walk.path(&[path]);
    match walk.field(node, "name") {
        Some(".") => walk.facts().globs.push(module),
        Some("_") => {}
        Some(name) => walk.bind(name, What::Import(module)),
        None => walk.bind(package_name(path), What::Import(module)),
    }
}

/// The name of a package is mostly the last part of its path; a version is none.
fn package_name(path: &str) -> &str {
    let mut parts = path.rsplit('/');
    let last = parts.next().unwrap_or(path);
    let is_version = last
        .strip_prefix('v')
        .is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
    let name = if is_version {
        parts.next().unwrap_or(last)
    } else {
        last
    };
    name.split('.').next().unwrap_or(name)
}

fn function(walk: &mut Walk<'_>, node: Node<'_>) {
    let (Some(name), Some(_)) = (
        node.child_by_field_name("name"),
        node.child_by_field_name("body"),
    ) else {
        return;
    };
    let text = walk.str(name);
    let opened = walk.open(&Open {
        name: Some(text.into()),
        name_at: Some(name),
        ..Open::of(node, Kind::Function)
    });
    if let Some((definition, _)) = opened {
        if text != "init" && text != "_" {
            walk.bind_in(0, text, What::Definition(definition));
        }
        parameters(walk, node);
    }
}

fn method(walk: &mut Walk<'_>, node: Node<'_>) {
    let (Some(name), Some(receiver)) = (node.child_by_field_name("name"), receiver(node)) else {
        return;
    };
    let (text, owner) = (walk.str(name), walk.str(receiver.class));
    let shown = if receiver.pointer {
        format!("(*{owner}).{text}")
    } else {
        format!("{owner}.{text}")
    };
    let Some(class) = walk.open_class("", None, Vec::new()) else {
        return;
    };
    walk.rename_class(class, owner);
    let opened = walk.open(&Open {
        name: Some(shown),
        name_at: Some(name),
        ..Open::of(node, Kind::Method)
    });
    if let Some((definition, _)) = opened {
        walk.bind_member(class, text, What::Definition(definition));
        if let Some(own) = receiver.name {
            let path = walk.path(&[owner]);
            let own = walk.str(own);
            walk.bind(own, What::Typed(path));
        }
        parameters(walk, node);
    }
}

struct Receiver<'n> {
    name: Option<Node<'n>>,
    class: Node<'n>,
    pointer: bool,
}

fn receiver(node: Node<'_>) -> Option<Receiver<'_>> {
    let declared = node.child_by_field_name("receiver")?.named_child(0)?;
    let kind = declared.child_by_field_name("type")?;
    let pointer = kind.kind() == "pointer_type";
    Some(Receiver {
        name: declared.child_by_field_name("name"),
        class: type_name(kind)?,
        pointer,
    })
}

/// The name in `*T`, `T[U]`, `p.T`.
fn type_name(kind: Node<'_>) -> Option<Node<'_>> {
    match kind.kind() {
        "type_identifier" | "qualified_type" => Some(kind),
        "pointer_type" | "parenthesized_type" => type_name(kind.named_child(0)?),
        "generic_type" => type_name(kind.child_by_field_name("type")?),
        _ => None,
    }
}

fn parameters(walk: &mut Walk<'_>, node: Node<'_>) {
    for field in ["parameters", "result"] {
        let Some(list) = node.child_by_field_name(field) else {
            continue;
        };
        let mut cursor = list.walk();
        let declared: Vec<_> = list.named_children(&mut cursor).collect();
        for parameter in declared {
            let kind = parameter
                .child_by_field_name("type")
                .filter(|_| parameter.kind() == "parameter_declaration");
            let what = typed(walk, kind);
            let mut cursor = parameter.walk();
            let names: Vec<_> = parameter
                .children_by_field_name("name", &mut cursor)
                .collect();
            for name in names {
                let name = walk.str(name);
                walk.bind(name, what.clone());
            }
        }
    }
}

fn typed(walk: &mut Walk<'_>, kind: Option<Node<'_>>) -> What {
    let Some(name) = kind.and_then(type_name) else {
        return What::Opaque;
    };
    let parts: Vec<_> = walk.str(name).split('.').collect();
    What::Typed(walk.path(&parts))
}

/// The linker's names: `outer.func1`, and `outer.func1.2` within that.
fn literal(walk: &mut Walk<'_>, node: Node<'_>) {
    let number = walk.next_number() + 1;
    let nested = walk
        .definition()
        .is_some_and(|outer| walk.kind_of(outer) == Some(Kind::Closure));
    let name = match (walk.definition(), nested) {
        (None, _) => format!("glob..func{number}"),
        (_, true) => number.to_string(),
        (_, false) => format!("func{number}"),
    };
    let opened = walk.open(&Open {
        name: Some(name),
        flags: crate::catalog::Flags {
            anonymous: true,
            ..Default::default()
        },
        ..Open::of(node, Kind::Closure)
    });
    if opened.is_some() {
        parameters(walk, node);
    }
}

fn type_spec(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(name) = walk.field(node, "name") else {
        return;
    };
    let is_interface = node
        .child_by_field_name("type")
        .is_some_and(|kind| kind.kind() == "interface_type");
    let outer = walk.scope();
    if let Some(class) = walk.open_class("", None, Vec::new()) {
        walk.rename_class(class, name);
        // Calls through an interface go anywhere.
        let what = if is_interface {
            What::Opaque
        } else {
            What::Class(class)
        };
        walk.bind_in(outer, name, what);
        embedded(walk, node, class);
    }
}

/// An embedded type gives its methods to the outer one.
fn embedded(walk: &mut Walk<'_>, node: Node<'_>, class: u32) {
    let fields = node
        .child_by_field_name("type")
        .filter(|kind| kind.kind() == "struct_type");
    let Some(list) = fields.and_then(|kind| kind.named_child(0)) else {
        return;
    };
    let mut cursor = list.walk();
    let fields: Vec<_> = list.named_children(&mut cursor).collect();
    for field in fields {
        let kind = field.child_by_field_name("type");
        let Some(name) = walk.field(field, "name") else {
            walk.open_ended(class, true);
            continue;
        };
        let what = typed(walk, kind);
        walk.bind_member(class, name, what);
    }
}

fn variables(walk: &mut Walk<'_>, node: Node<'_>, left: &str, right: &str) {
    let (Some(left), right) = (
        node.child_by_field_name(left),
        node.child_by_field_name(right),
    ) else {
        return;
    };
    let single = left.named_child_count() == 1;
    let value = right
        .filter(|_| single)
        .and_then(|list| list.named_child(0));
    let what = match value {
        Some(value) if value.kind() == "func_literal" => What::Definition(walk.next_definition()),
        _ => made(walk, value),
    };
    names(walk, Some(left), &what);
}

/// `T{}`, `&T{}`, `new(T)`.
fn made(walk: &mut Walk<'_>, value: Option<Node<'_>>) -> What {
    let Some(value) = value else {
        return What::Opaque;
    };
    match value.kind() {
        "composite_literal" => typed(walk, value.child_by_field_name("type")),
        "unary_expression" if walk.str(value).starts_with('&') => {
            made(walk, value.child_by_field_name("operand"))
        }
        _ => What::Opaque,
    }
}

fn declared(walk: &mut Walk<'_>, node: Node<'_>) {
    let kind = node.child_by_field_name("type");
    let value = node
        .child_by_field_name("value")
        .and_then(|list| list.named_child(0));
    let what = match kind {
        Some(_) => typed(walk, kind),
        None => made(walk, value),
    };
    let mut cursor = node.walk();
    let found: Vec<_> = node.children_by_field_name("name", &mut cursor).collect();
    for name in found {
        let name = walk.str(name);
        walk.bind_from(node, name, what.clone());
    }
}

fn names(walk: &mut Walk<'_>, node: Option<Node<'_>>, what: &What) {
    let Some(node) = node else { return };
    if node.kind() == "identifier" {
        let name = walk.str(node);
        if name != "_" {
            let declaration = node.parent().and_then(|list| list.parent());
            walk.bind_from(declaration.unwrap_or(node), name, what.clone());
        }
        return;
    }
    let mut cursor = node.walk();
    let children: Vec<_> = node
        .named_children(&mut cursor)
        .filter(|c| c.kind() == "identifier")
        .collect();
    for child in children {
        names(walk, Some(child), what);
    }
}

/// Only functions in variables change what a call means: a variable of a type keeps it.
fn reassigned(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(left) = node.child_by_field_name("left") else {
        return;
    };
    let mut cursor = left.walk();
    let children: Vec<_> = left
        .named_children(&mut cursor)
        .filter(|c| c.kind() == "identifier")
        .collect();
    for child in children {
        let name = walk.str(child);
        walk.reassigned(name);
    }
}

fn call(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(function) = node.child_by_field_name("function") else {
        return;
    };
    if function.kind() == "func_literal" {
        let definition = walk.next_definition();
        return walk.immediate_call(node, definition);
    }
    let path: Option<Vec<&str>> = dotted(walk, function, STEPS, LEAVES);
    let path: Vec<Name> = path.map(|path| walk.path(&path)).unwrap_or_default();
    walk.call(node, path, None);
}
