//! C#: definitions only.

use std::sync::OnceLock;

use tree_sitter::Node;

use super::dialect::Dialect;
use super::walk::{Open, Walk};
use crate::catalog::{Flags, Kind};
use crate::function::Language;

/// The rules.
pub(super) static CSHARP: Dialect = Dialect {
    language: Language::Dotnet,
    grammar: || tree_sitter_c_sharp::LANGUAGE.into(),
    extensions: &["cs"],
    kinds: &[
        "method_declaration",
        "constructor_declaration",
        "destructor_declaration",
        "operator_declaration",
        "conversion_operator_declaration",
        "accessor_declaration",
        "property_declaration",
        "indexer_declaration",
        "local_function_statement",
        "lambda_expression",
        "anonymous_method_expression",
        "class_declaration",
        "struct_declaration",
        "interface_declaration",
        "record_declaration",
        "namespace_declaration",
        "yield_statement",
    ],
    enter,
    joint: ".",
    module: None,
    bare_members: true,
    seen: OnceLock::new(),
};

fn enter(walk: &mut Walk<'_>, node: Node<'_>) {
    match node.kind() {
        "method_declaration" => named(walk, node, Kind::Method, None),
        "constructor_declaration" if has_word(walk, node, "static") => {
            named(walk, node, Kind::StaticBlock, Some(".cctor"));
        }
        "constructor_declaration" => named(walk, node, Kind::Constructor, Some(".ctor")),
        "destructor_declaration" => named(walk, node, Kind::Destructor, Some("Finalize")),
        "operator_declaration" | "conversion_operator_declaration" => operator(walk, node),
        "accessor_declaration" => accessor(walk, node),
        "property_declaration" | "indexer_declaration" => property(walk, node),
        "local_function_statement" => named(walk, node, Kind::Function, None),
        "lambda_expression" | "anonymous_method_expression" => {
            walk.open(&Open {
                made_up: "lambda",
                flags: Flags {
                    is_async: has_word(walk, node, "async"),
                    ..Flags::default()
                },
                ..Open::of(node, Kind::Closure)
            });
        }
        "yield_statement" => walk.mark_generator(),
        _ => {
            if let Some(name) = walk.field(node, "name") {
                walk.open_class(name, None, Vec::new());
            }
        }
    }
}

fn has_word(walk: &Walk<'_>, node: Node<'_>, word: &str) -> bool {
    let mut cursor = node.walk();
    node.children(&mut cursor)
        .any(|child| child.kind() == "modifier" && walk.str(child) == word)
}

fn start(node: Node<'_>) -> usize {
    let mut cursor = node.walk();
    node.children(&mut cursor)
        .find(|child| !matches!(child.kind(), "modifier" | "attribute_list"))
        .map_or(node.start_byte(), |child| child.start_byte())
}

/// Only what has a body, as a block or behind `=>`.
fn body(node: Node<'_>) -> Option<Node<'_>> {
    let mut cursor = node.walk();
    let arrow = |child: &Node<'_>| child.kind() == "arrow_expression_clause";
    node.child_by_field_name("body")
        .or_else(|| node.children(&mut cursor).find(arrow))
}

fn named(walk: &mut Walk<'_>, node: Node<'_>, kind: Kind, as_runtime: Option<&str>) {
    let (Some(name), Some(body)) = (node.child_by_field_name("name"), body(node)) else {
        return;
    };
    opened(
        walk,
        node,
        kind,
        as_runtime.unwrap_or(walk.str(name)),
        Some(name),
        body,
    );
}

fn opened(
    walk: &mut Walk<'_>,
    node: Node<'_>,
    kind: Kind,
    name: &str,
    at: Option<Node<'_>>,
    body: Node<'_>,
) {
    walk.open(&Open {
        name: Some(name.into()),
        flags: Flags {
            is_async: has_word(walk, node, "async"),
            is_static: has_word(walk, node, "static"),
            ..Flags::default()
        },
        start: start(node),
        name_at: at,
        body: Some(body),
        ..Open::of(node, kind)
    });
}

fn operator(walk: &mut Walk<'_>, node: Node<'_>) {
    if let Some(body) = body(node) {
        let sign = walk
            .field(node, "operator")
            .or(walk.field(node, "type"))
            .unwrap_or("?");
        let name = format!("operator {sign}");
        opened(walk, node, Kind::Method, &name, None, body);
    }
}

fn accessor(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(body) = body(node) else { return };
    let Some(word) = walk.field(node, "name") else {
        return;
    };
    let owner = node.parent().and_then(|list| list.parent());
    let owner = owner
        .and_then(|owner| walk.field(owner, "name"))
        .unwrap_or("Item");
    let kind = match word {
        "get" => Kind::Getter,
        "set" | "init" => Kind::Setter,
        _ => Kind::Method,
    };
    let prefix = if word == "init" { "set" } else { word };
    opened(walk, node, kind, &format!("{prefix}_{owner}"), None, body);
}

/// `int X => 1;` is a getter.
fn property(walk: &mut Walk<'_>, node: Node<'_>) {
    let value = node.child_by_field_name("value").or_else(|| body(node));
    let Some(value) = value.filter(|value| value.kind() == "arrow_expression_clause") else {
        return;
    };
    let name = format!("get_{}", walk.field(node, "name").unwrap_or("Item"));
    opened(
        walk,
        node,
        Kind::Getter,
        &name,
        node.child_by_field_name("name"),
        value,
    );
}
