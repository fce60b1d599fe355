//! PHP: definitions only, under the names that its Observer shows.

use std::sync::OnceLock;

use tree_sitter::Node;

use super::dialect::Dialect;
use super::walk::{Open, Walk};
use crate::catalog::{Flags, Kind};
use crate::function::Language;

/// The rules.
pub(super) static PHP: Dialect = Dialect {
    language: Language::Php,
    grammar: || tree_sitter_php::LANGUAGE_PHP.into(),
    extensions: &["php", "phtml", "inc"],
    kinds: &[
        "function_definition",
        "method_declaration",
        "anonymous_function",
        "arrow_function",
        "property_hook",
        "class_declaration",
        "interface_declaration",
        "trait_declaration",
        "enum_declaration",
        "anonymous_class",
        "namespace_definition",
        "yield_expression",
    ],
    enter,
    joint: "::",
    module: Some("{main}"),
    bare_members: false,
    seen: OnceLock::new(),
};

fn enter(walk: &mut Walk<'_>, node: Node<'_>) {
    match node.kind() {
        "function_definition" => named(walk, node, Kind::Function),
        "method_declaration" => method(walk, node),
        "anonymous_function" | "arrow_function" => {
            walk.open(&Open {
                made_up: "{closure}",
                ..Open::of(node, Kind::Closure)
            });
        }
        "property_hook" => hook(walk, node),
        "namespace_definition" => {
            if node.child_by_field_name("body").is_some() {
                scope(walk, node);
            }
        }
        "anonymous_class" => {
            walk.open_class("class@anonymous", None, Vec::new());
        }
        "yield_expression" => walk.mark_generator(),
        _ => scope(walk, node),
    }
}

fn scope(walk: &mut Walk<'_>, node: Node<'_>) {
    if let Some(name) = walk.field(node, "name") {
        walk.open_class(name, None, Vec::new());
    }
}

fn method(walk: &mut Walk<'_>, node: Node<'_>) {
    if node.child_by_field_name("body").is_none() {
        return;
    }
    let kind = match walk.field(node, "name") {
        Some("__construct") => Kind::Constructor,
        Some("__destruct") => Kind::Destructor,
        _ => Kind::Method,
    };
    named(walk, node, kind);
}

fn named(walk: &mut Walk<'_>, node: Node<'_>, kind: Kind) {
    let Some(name) = node.child_by_field_name("name") else {
        return;
    };
    let mut cursor = node.walk();
    let modifiers =
        |child: &Node<'_>| child.kind().ends_with("_modifier") || child.kind() == "attribute_list";
    let start = node
        .children(&mut cursor)
        .find(|child| !modifiers(child))
        .map_or(node.start_byte(), |child| child.start_byte());
    let mut cursor = node.walk();
    let is_static = node
        .children(&mut cursor)
        .any(|child| child.kind() == "static_modifier");
    walk.open(&Open {
        name: Some(walk.str(name).into()),
        flags: Flags {
            is_static,
            ..Flags::default()
        },
        start,
        name_at: Some(name),
        ..Open::of(node, kind)
    });
}

fn hook(walk: &mut Walk<'_>, node: Node<'_>) {
    let property = node
        .parent()
        .and_then(|list| list.parent())
        .and_then(|element| element.child_by_field_name("name"));
    let mut cursor = node.walk();
    let which = node
        .named_children(&mut cursor)
        .find(|child| child.kind() == "name");
    let (Some(which), Some(property)) = (which, property) else {
        return;
    };
    let word = walk.str(which);
    let kind = if word == "get" {
        Kind::Getter
    } else {
        Kind::Setter
    };
    walk.open(&Open {
        name: Some(format!("{}::{word}", walk.str(property))),
        name_at: Some(which),
        ..Open::of(node, kind)
    });
}
