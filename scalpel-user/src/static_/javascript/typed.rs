//! What only TypeScript has and what becomes a function: enums and namespaces.

use tree_sitter::Node;

use super::super::facts::What;
use super::super::walk::{Open, Walk};
use super::{declared, has_token};
use crate::catalog::Kind;

pub(super) fn enumeration(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(name) = node.child_by_field_name("name") else {
        return;
    };
    if has_token(node, "const") || has_token(node, "declare") || is_ambient(node) {
        return;
    }
    let text = walk.str(name);
    walk.aside(&Open {
        name: Some(text.into()),
        declared: declared(node),
        name_at: Some(name),
        ..Open::of(node, Kind::Enum)
    });
    walk.bind(text, What::Opaque);
}

fn is_ambient(node: Node<'_>) -> bool {
    node.parent()
        .is_some_and(|parent| parent.kind() == "ambient_declaration")
}

pub(super) fn namespace(walk: &mut Walk<'_>, node: Node<'_>) {
    let name = node.child_by_field_name("name");
    let (Some(name), Some(_)) = (name, node.child_by_field_name("body")) else {
        return;
    };
    if name.kind() == "string" || is_ambient(node) {
        return;
    }
    let text = walk.str(name);
    let declared = node
        .parent()
        .filter(|parent| parent.kind() == "expression_statement")
        .map_or(declared(node), declared);
    let outer = walk.scope();
    let opened = walk.open(&Open {
        name: Some(text.into()),
        declared,
        name_at: Some(name),
        ..Open::of(node, Kind::Namespace)
    });
    if opened.is_some() {
        walk.bind_in(outer, text, What::Opaque);
    }
}
