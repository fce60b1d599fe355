//! Lua: definitions only, named by what they are assigned to, as its debug hooks do.

use std::sync::OnceLock;

use tree_sitter::Node;

use super::dialect::Dialect;
use super::walk::{Open, Walk};
use crate::catalog::Kind;
use crate::function::Language;

/// The rules.
pub(super) static LUA: Dialect = Dialect {
    language: Language::Lua,
    grammar: || tree_sitter_lua::LANGUAGE.into(),
    extensions: &["lua"],
    kinds: &["function_declaration", "function_definition"],
    enter,
    joint: ".",
    module: Some("main chunk"),
    bare_members: false,
    seen: OnceLock::new(),
};

fn enter(walk: &mut Walk<'_>, node: Node<'_>) {
    let own = node.child_by_field_name("name");
    let is_method = own.is_some_and(|name| name.kind() == "method_index_expression");
    let kind = match node.kind() {
        "function_definition" => Kind::Closure,
        _ if is_method => Kind::Method,
        _ => Kind::Function,
    };
    let name = own
        .map(|name| walk.str(name).to_owned())
        .or_else(|| given_name(walk, node));
    let start = node.child(0).filter(|first| first.kind() == "local");
    let start = start.and_then(|first| first.next_sibling()).unwrap_or(node);
    walk.open(&Open {
        name,
        start: start.start_byte(),
        name_at: own,
        ..Open::of(node, kind)
    });
}

/// `name = function`, `local name = function`, `{ name = function }`: one name for one value.
fn given_name(walk: &Walk<'_>, node: Node<'_>) -> Option<String> {
    let parent = node.parent()?;
    if parent.kind() == "field" {
        return walk.field(parent, "name").map(str::to_owned);
    }
    let statement = parent
        .parent()
        .filter(|it| it.kind() == "assignment_statement")?;
    let mut cursor = statement.walk();
    let names = statement
        .named_children(&mut cursor)
        .find(|it| it.kind() == "variable_list")?;
    let at = (0..parent.named_child_count()).find(|at| {
        u32::try_from(*at)
            .ok()
            .and_then(|at| parent.named_child(at))
            .is_some_and(|it| it.id() == node.id())
    })?;
    names
        .named_child(u32::try_from(at).ok()?)
        .map(|name| walk.str(name).to_owned())
}
