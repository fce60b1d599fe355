//! Rust: functions, methods of types and traits, closures, and what paths lead to.

use std::sync::OnceLock;

use tree_sitter::Node;

use super::dialect::Dialect;
use super::facts::{Name, What};
use super::walk::{Open, Walk};
use crate::catalog::{Flags, Kind};
use crate::function::Language;

/// The rules.
pub(super) static RUST: Dialect = Dialect {
    language: Language::Rust,
    grammar: || tree_sitter_rust::LANGUAGE.into(),
    extensions: &["rs"],
    kinds: &[
        "function_item",
        "closure_expression",
        "impl_item",
        "trait_item",
        "struct_item",
        "enum_item",
        "union_item",
        "mod_item",
        "use_declaration",
        "let_declaration",
        "let_condition",
        "for_expression",
        "match_pattern",
        "macro_definition",
        "call_expression",
    ],
    enter,
    joint: "::",
    module: None,
    bare_members: false,
    seen: OnceLock::new(),
};

fn enter(walk: &mut Walk<'_>, node: Node<'_>) {
    match node.kind() {
        "function_item" => function(walk, node),
        "closure_expression" => closure(walk, node),
        "impl_item" => implementation(walk, node),
        "trait_item" => named_scope(walk, node, true),
        "struct_item" | "enum_item" | "union_item" => named_scope(walk, node, false),
        "mod_item" => module(walk, node),
        "use_declaration" => {
            if let Some(tree) = node.child_by_field_name("argument") {
                uses(walk, tree, &[]);
            }
        }
        "let_declaration" => local(walk, node),
        "let_condition" | "for_expression" => pattern(walk, node.child_by_field_name("pattern")),
        "match_pattern" => pattern(walk, Some(node)),
        "macro_definition" => {}
        "call_expression" => call(walk, node),
        _ => {}
    }
}

/// Where the attributes before an item start.
fn declared(node: Node<'_>) -> usize {
    let mut first = node;
    while let Some(before) = first
        .prev_named_sibling()
        .filter(|it| it.kind() == "attribute_item")
    {
        first = before;
    }
    first.start_byte()
}

/// Where `fn` and what belongs to it start: behind the visibility.
fn start(node: Node<'_>) -> usize {
    let first = node
        .child(0)
        .filter(|first| first.kind() == "visibility_modifier");
    first
        .and_then(|first| first.next_sibling())
        .map_or(node.start_byte(), |next| next.start_byte())
}

fn function(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(name) = node.child_by_field_name("name") else {
        return;
    };
    let class = walk.class().filter(|class| walk.is_type(*class));
    let text = walk.str(name);
    let takes_self = walk.field(node, "parameters").is_some_and(has_self);
    let is_async =
        modifiers(walk, node).is_some_and(|words| words.split_whitespace().any(|w| w == "async"));
    let opened = walk.open(&Open {
        name: Some(text.into()),
        flags: Flags {
            is_async,
            is_static: class.is_some() && !takes_self,
            ..Flags::default()
        },
        start: start(node),
        declared: declared(node),
        name_at: Some(name),
        ..Open::of(
            node,
            if class.is_some() {
                Kind::Method
            } else {
                Kind::Function
            },
        )
    });
    let Some((definition, scope)) = opened else {
        return;
    };
    let outer = walk.outer_scope();
    walk.bind_in(outer, text, What::Definition(definition));
    if let Some(class) = class {
        walk.bind_in(scope, "Self", What::Class(class));
        if takes_self {
            walk.bind_in(scope, "self", What::Instance(class));
        }
    }
    parameters(walk, node);
}

fn has_self(parameters: &str) -> bool {
    let first = parameters
        .trim_start_matches('(')
        .split([',', ')', ':'])
        .next();
    first.is_some_and(|first| first.split([' ', '&']).any(|word| word == "self"))
}

fn modifiers<'t>(walk: &Walk<'t>, node: Node<'_>) -> Option<&'t str> {
    let mut cursor = node.walk();
    let found = node
        .children(&mut cursor)
        .find(|child| child.kind() == "function_modifiers");
    found.map(|child| walk.str(child))
}

fn parameters(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(list) = node.child_by_field_name("parameters") else {
        return;
    };
    let mut cursor = list.walk();
    let children: Vec<_> = list.named_children(&mut cursor).collect();
    for parameter in children {
        match parameter.child_by_field_name("pattern") {
            Some(name) if name.kind() == "identifier" => {
                let what = typed(walk, parameter.child_by_field_name("type"));
                let name = walk.str(name);
                walk.bind(name, what);
            }
            other => pattern(
                walk,
                other
                    .or(Some(parameter))
                    .filter(|it| it.kind() != "self_parameter"),
            ),
        }
    }
}

/// A name of type `T`, `&T`, `&mut T`; anything else may have methods of its own.
fn typed(walk: &mut Walk<'_>, kind: Option<Node<'_>>) -> What {
    let path = kind.and_then(|kind| type_path(walk, kind));
    path.map_or(What::Opaque, |path| What::Typed(walk.path(&path)))
}

fn type_path<'t>(walk: &Walk<'t>, kind: Node<'_>) -> Option<Vec<&'t str>> {
    match kind.kind() {
        "reference_type" => type_path(walk, kind.child_by_field_name("type")?),
        "generic_type" => type_path(walk, kind.child_by_field_name("type")?),
        "type_identifier" | "scoped_type_identifier" => path_of(walk, kind),
        _ => None,
    }
}

/// `a::b::c`, without generic arguments; `a.b` for fields.
fn path_of<'t>(walk: &Walk<'t>, node: Node<'_>) -> Option<Vec<&'t str>> {
    let mut parts = Vec::new();
    let mut at = node;
    loop {
        match at.kind() {
            "identifier" | "type_identifier" | "self" | "super" | "crate" | "metavariable" => {
                parts.push(walk.str(at));
                parts.reverse();
                return Some(parts);
            }
            "scoped_identifier" | "scoped_type_identifier" => {
                parts.push(walk.field(at, "name")?);
                at = at.child_by_field_name("path")?;
            }
            "field_expression" => {
                parts.push(walk.field(at, "field")?);
                at = at.child_by_field_name("value")?;
            }
            "generic_function" => at = at.child_by_field_name("function")?,
            "generic_type" => at = at.child_by_field_name("type")?,
            _ => return None,
        }
    }
}

fn closure(walk: &mut Walk<'_>, node: Node<'_>) {
    let number = walk.next_number();
    let opened = walk.open(&Open {
        name: Some(format!("{{closure#{number}}}")),
        flags: Flags {
            anonymous: true,
            is_async: walk.str(node).starts_with("async"),
            ..Flags::default()
        },
        ..Open::of(node, Kind::Closure)
    });
    if opened.is_some() {
        pattern(walk, node.child_by_field_name("parameters"));
    }
}

fn implementation(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(kind) = node.child_by_field_name("type") else {
        return;
    };
    let path = type_path(walk, kind).unwrap_or_default();
    let owner = path.last().copied().unwrap_or("_");
    let trait_name = node.child_by_field_name("trait").map(|it| walk.str(it));
    let shown = match trait_name {
        Some(name) => format!("<{} as {name}>", walk.str(kind)),
        None => walk.str(kind).to_owned(),
    };
    if let Some(class) = walk.open_class(&shown, None, Vec::new()) {
        walk.rename_class(class, owner);
        walk.of_trait(class, trait_name.is_some());
    }
}

fn named_scope(walk: &mut Walk<'_>, node: Node<'_>, is_trait: bool) {
    let Some(name) = walk.field(node, "name") else {
        return;
    };
    let outer = walk.scope();
    if let Some(class) = walk.open_class(name, None, Vec::new()) {
        // Calls through a trait go anywhere.
        let what = if is_trait {
            What::Opaque
        } else {
            What::Class(class)
        };
        walk.bind_in(outer, name, what);
        walk.open_ended(class, is_trait);
        if node.kind() == "struct_item" {
            fields(walk, node, class);
        }
    }
}

fn fields(walk: &mut Walk<'_>, node: Node<'_>, class: u32) {
    let Some(list) = node.child_by_field_name("body") else {
        return;
    };
    let mut cursor = list.walk();
    let fields: Vec<_> = list.named_children(&mut cursor).collect();
    for field in fields {
        if let Some(name) = walk.field(field, "name") {
            let what = typed(walk, field.child_by_field_name("type"));
            // A field is reached by another name than a method of that name: calls of it need brackets.
            let name = format!(".{name}");
            walk.bind_member(class, &name, what);
        }
    }
}

fn module(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(name) = walk.field(node, "name") else {
        return;
    };
    if node.child_by_field_name("body").is_none() {
        let path = walk.path(&["self", name]);
        return walk.bind(name, What::Import(path));
    }
    let outer = walk.scope();
    if let Some(class) = walk.open_class(name, None, Vec::new()) {
        walk.is_module(class);
        walk.bind_in(outer, name, What::Class(class));
    }
}

/// The tree behind `use`.
fn uses(walk: &mut Walk<'_>, node: Node<'_>, before: &[&str]) {
    match node.kind() {
        "use_as_clause" => {
            let path = node
                .child_by_field_name("path")
                .and_then(|path| path_of(walk, path));
            if let (Some(path), Some(alias)) = (path, walk.field(node, "alias")) {
                used(walk, &joined(before, &path), alias);
            }
        }
        "scoped_use_list" => {
            let path = node
                .child_by_field_name("path")
                .and_then(|path| path_of(walk, path));
            let path = joined(before, &path.unwrap_or_default());
            if let Some(list) = node.child_by_field_name("list") {
                uses(walk, list, &path);
            }
        }
        "use_list" => {
            let mut cursor = node.walk();
            let children: Vec<_> = node.named_children(&mut cursor).collect();
            for child in children {
                uses(walk, child, before);
            }
        }
        "use_wildcard" => {
            let path = node.named_child(0).and_then(|path| path_of(walk, path));
            let path = joined(before, &path.unwrap_or_default());
            let path = walk.path(&path);
            walk.facts().globs.push(path);
        }
        "self" => {
            if let Some(last) = before.last() {
                used(walk, before, last);
            }
        }
        _ => {
            if let Some(path) = path_of(walk, node) {
                let path = joined(before, &path);
                if let Some(last) = path.last() {
                    used(walk, &path, last);
                }
            }
        }
    }
}

fn joined<'t>(before: &[&'t str], after: &[&'t str]) -> Vec<&'t str> {
    before.iter().chain(after).copied().collect()
}

fn used(walk: &mut Walk<'_>, path: &[&str], alias: &str) {
    if alias != "_" {
        let path = walk.path(path);
        walk.bind(alias, What::Import(path));
    }
}

fn local(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(name) = node.child_by_field_name("pattern") else {
        return;
    };
    if name.kind() != "identifier" {
        return pattern(walk, Some(name));
    }
    let value = node.child_by_field_name("value");
    let what = match (value, node.child_by_field_name("type")) {
        (Some(value), None) if value.kind() == "closure_expression" => {
            What::Definition(walk.next_definition())
        }
        (_, Some(kind)) => typed(walk, Some(kind)),
        (Some(value), None) if value.kind() == "struct_expression" => {
            typed(walk, value.child_by_field_name("name"))
        }
        _ => What::Opaque,
    };
    let name = walk.str(name);
    walk.bind_from(node, name, what);
}

fn pattern(walk: &mut Walk<'_>, node: Option<Node<'_>>) {
    let Some(node) = node else { return };
    if matches!(node.kind(), "identifier" | "shorthand_field_identifier") {
        let name = walk.str(node);
        return walk.bind_from(node, name, What::Opaque);
    }
    if matches!(
        node.kind(),
        "scoped_identifier" | "type_identifier" | "block"
    ) {
        return;
    }
    let mut cursor = node.walk();
    let children: Vec<_> = node.named_children(&mut cursor).collect();
    for child in children {
        pattern(walk, Some(child));
    }
}

fn call(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(function) = node.child_by_field_name("function") else {
        return;
    };
    let path: Option<Vec<&str>> = path_of(walk, function);
    let path: Vec<Name> = match path {
        Some(path) if function.kind() == "field_expression" => method_path(walk, &path),
        Some(path) => walk.path(&path),
        None => Vec::new(),
    };
    walk.call(node, path, None);
}

/// `self.field.method()`: all but the first and the last are fields.
fn method_path(walk: &mut Walk<'_>, path: &[&str]) -> Vec<Name> {
    let last = path.len().saturating_sub(1);
    let spelled = path.iter().enumerate();
    spelled
        .map(|(at, part)| match at {
            0 => walk.name(part),
            at if at == last => walk.name(part),
            _ => {
                let field = format!(".{part}");
                walk.name(&field)
            }
        })
        .collect()
}
