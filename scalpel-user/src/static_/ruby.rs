//! Ruby: definitions only. Methods as `Class#method` and `Class.method`, and lambdas; other blocks run as a part of
//! the method around them.

use std::sync::OnceLock;

use tree_sitter::Node;

use super::dialect::Dialect;
use super::walk::{Open, Walk};
use crate::catalog::{Flags, Kind};
use crate::function::Language;

/// The rules.
pub(super) static RUBY: Dialect = Dialect {
    language: Language::Ruby,
    grammar: || tree_sitter_ruby::LANGUAGE.into(),
    extensions: &["rb", "rake", "gemspec"],
    kinds: &[
        "method",
        "singleton_method",
        "lambda",
        "class",
        "module",
        "singleton_class",
        "block",
        "do_block",
    ],
    enter,
    joint: "::",
    module: Some("<main>"),
    bare_members: false,
    seen: OnceLock::new(),
};

fn enter(walk: &mut Walk<'_>, node: Node<'_>) {
    match node.kind() {
        "method" => method(walk, node, false),
        "singleton_method" => method(walk, node, true),
        "lambda" => closure(walk, node),
        "class" | "module" => {
            if let Some(name) = walk.field(node, "name") {
                walk.open_class(name, None, Vec::new());
            }
        }
        "singleton_class" => {
            walk.open_class("singleton", None, Vec::new());
        }
        _ => made_block(walk, node),
    }
}

fn method(walk: &mut Walk<'_>, node: Node<'_>, is_static: bool) {
    let Some(name) = node.child_by_field_name("name") else {
        return;
    };
    let text = walk.str(name);
    let kind = match (walk.class().is_some(), text) {
        (true, "initialize") => Kind::Constructor,
        (true, _) => Kind::Method,
        (false, _) if is_static => Kind::Method,
        (false, _) => Kind::Function,
    };
    walk.open(&Open {
        name: Some(text.into()),
        flags: Flags {
            is_static,
            ..Flags::default()
        },
        name_at: Some(name),
        ..Open::of(node, kind)
    });
}

fn closure(walk: &mut Walk<'_>, node: Node<'_>) {
    walk.open(&Open {
        made_up: "lambda",
        ..Open::of(node, Kind::Closure)
    });
}

/// The block of `lambda`, `proc`, `Proc.new` and `define_method` is a function; others are loops.
fn made_block(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(call) = node.parent().filter(|parent| parent.kind() == "call") else {
        return;
    };
    match (walk.field(call, "receiver"), walk.field(call, "method")) {
        (None, Some("lambda" | "proc")) | (Some("Proc"), Some("new")) => closure(walk, node),
        (None, Some("define_method" | "define_singleton_method")) => {
            let first = call
                .child_by_field_name("arguments")
                .and_then(|list| list.named_child(0));
            let name = first.map(|name| walk.str(name).trim_matches([':', '"', '\'']).to_owned());
            walk.open(&Open {
                name,
                ..Open::of(node, Kind::Method)
            });
        }
        _ => {}
    }
}
