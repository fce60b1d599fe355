//! Zig: definitions only: functions with a body, and tests.

use std::sync::OnceLock;

use tree_sitter::Node;

use super::dialect::Dialect;
use super::walk::{Open, Walk};
use crate::catalog::Kind;
use crate::function::Language;

/// The rules.
pub(super) static ZIG: Dialect = Dialect {
    language: Language::Zig,
    grammar: || tree_sitter_zig::LANGUAGE.into(),
    extensions: &["zig"],
    kinds: &[
        "function_declaration",
        "test_declaration",
        "struct_declaration",
        "union_declaration",
        "enum_declaration",
    ],
    enter,
    joint: ".",
    module: None,
    bare_members: true,
    seen: OnceLock::new(),
};

fn enter(walk: &mut Walk<'_>, node: Node<'_>) {
    match node.kind() {
        "function_declaration" => function(walk, node),
        "test_declaration" => test(walk, node),
        _ => container(walk, node),
    }
}

fn function(walk: &mut Walk<'_>, node: Node<'_>) {
    let (Some(name), Some(_)) = (
        node.child_by_field_name("name"),
        node.child_by_field_name("body"),
    ) else {
        return;
    };
    let mut cursor = node.walk();
    let start = node
        .children(&mut cursor)
        .find(|child| child.kind() == "fn")
        .unwrap_or(node);
    let kind = if walk.class().is_some() {
        Kind::Method
    } else {
        Kind::Function
    };
    walk.open(&Open {
        name: Some(walk.str(name).into()),
        start: start.start_byte(),
        name_at: Some(name),
        ..Open::of(node, kind)
    });
}

fn test(walk: &mut Walk<'_>, node: Node<'_>) {
    let mut cursor = node.walk();
    let name = node
        .named_children(&mut cursor)
        .find(|child| matches!(child.kind(), "string" | "identifier"));
    let name = name.map(|name| format!("test.{}", walk.str(name).trim_matches('"')));
    walk.open(&Open {
        name,
        made_up: "test",
        ..Open::of(node, Kind::Function)
    });
}

/// `const Name = struct { ... }`.
fn container(walk: &mut Walk<'_>, node: Node<'_>) {
    let declared = node
        .parent()
        .filter(|parent| parent.kind() == "variable_declaration");
    let mut cursor = node.walk();
    let name = declared.and_then(|parent| {
        parent
            .named_children(&mut cursor)
            .find(|it| it.kind() == "identifier")
    });
    let name = name.map_or("", |name| walk.str(name));
    walk.open_class(name, None, Vec::new());
}
