//! Java: methods, constructors, initialisers, lambdas, and what names stand for.

use std::sync::OnceLock;

use tree_sitter::Node;

use super::dialect::Dialect;
use super::facts::{Name, What};
use super::walk::{Open, Walk};
use crate::catalog::{Flags, Kind};
use crate::function::Language;

/// The rules.
pub(super) static JAVA: Dialect = Dialect {
    language: Language::Java,
    grammar: || tree_sitter_java::LANGUAGE.into(),
    extensions: &["java"],
    kinds: &[
        "package_declaration",
        "import_declaration",
        "class_declaration",
        "interface_declaration",
        "enum_declaration",
        "record_declaration",
        "annotation_type_declaration",
        "object_creation_expression",
        "method_declaration",
        "constructor_declaration",
        "compact_constructor_declaration",
        "static_initializer",
        "lambda_expression",
        "field_declaration",
        "local_variable_declaration",
        "formal_parameter",
        "catch_formal_parameter",
        "enhanced_for_statement",
        "resource",
        "method_invocation",
        "explicit_constructor_invocation",
    ],
    enter,
    joint: ".",
    module: None,
    bare_members: true,
    seen: OnceLock::new(),
};

fn enter(walk: &mut Walk<'_>, node: Node<'_>) {
    match node.kind() {
        "package_declaration" => {
            if let Some(name) = node.named_child(0) {
                let name = walk.name(walk.str(name));
                walk.facts().package = Some(name);
            }
        }
        "import_declaration" => import(walk, node),
        "class_declaration"
        | "interface_declaration"
        | "enum_declaration"
        | "record_declaration"
        | "annotation_type_declaration" => class(walk, node),
        "object_creation_expression" => creation(walk, node),
        "method_declaration" => method(walk, node),
        "constructor_declaration" | "compact_constructor_declaration" => constructor(walk, node),
        "static_initializer" => {
            walk.open(&Open {
                made_up: "<clinit>",
                flags: Flags {
                    is_static: true,
                    ..Flags::default()
                },
                body: node.named_child(0),
                ..Open::of(node, Kind::StaticBlock)
            });
        }
        "lambda_expression" => lambda(walk, node),
        "field_declaration" | "local_variable_declaration" => variables(walk, node),
        "formal_parameter" | "catch_formal_parameter" | "enhanced_for_statement" | "resource" => {
            let what = typed(walk, node.child_by_field_name("type"));
            if let Some(name) = walk.field(node, "name") {
                walk.bind(name, what);
            }
        }
        "method_invocation" => call(walk, node),
        "explicit_constructor_invocation" => walk.call(node, Vec::new(), None),
        _ => {}
    }
}

fn path_of<'t>(walk: &Walk<'t>, node: Node<'_>) -> Option<Vec<&'t str>> {
    match node.kind() {
        "identifier" | "type_identifier" | "this" | "super" => Some(vec![walk.str(node)]),
        "scoped_identifier" | "scoped_type_identifier" => {
            Some(walk.str(node).split('.').map(str::trim).collect())
        }
        "generic_type" => path_of(walk, node.named_child(0)?),
        "field_access" => {
            let mut path = path_of(walk, node.child_by_field_name("object")?)?;
            path.push(walk.field(node, "field")?);
            Some(path)
        }
        _ => None,
    }
}

fn typed(walk: &mut Walk<'_>, kind: Option<Node<'_>>) -> What {
    let path = kind.and_then(|kind| path_of(walk, kind));
    path.map_or(What::Opaque, |path| What::Typed(walk.path(&path)))
}

fn import(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(name) = node.named_child(0) else {
        return;
    };
    let parts: Vec<_> = walk.str(name).split('.').map(str::trim).collect();
    let path = walk.path(&parts);
    let mut cursor = node.walk();
    if node
        .children(&mut cursor)
        .any(|child| child.kind() == "asterisk")
    {
        walk.facts().globs.push(path);
    } else if let Some(last) = parts.last() {
        walk.bind(last, What::Import(path));
    }
}

fn modifiers<'n>(node: Node<'n>) -> Option<Node<'n>> {
    node.child(0).filter(|first| first.kind() == "modifiers")
}

fn has_modifier(walk: &Walk<'_>, node: Node<'_>, word: &str) -> bool {
    modifiers(node).is_some_and(|list| walk.str(list).split_whitespace().any(|it| it == word))
}

fn start(node: Node<'_>) -> usize {
    modifiers(node)
        .and_then(|list| list.next_sibling())
        .map_or(node.start_byte(), |next| next.start_byte())
}

fn class(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(name) = walk.field(node, "name") else {
        return;
    };
    let bases = node
        .child_by_field_name("superclass")
        .and_then(|clause| clause.named_child(0))
        .and_then(|base| path_of(walk, base));
    let bases = bases.map(|base| walk.path(&base)).into_iter().collect();
    let body = node.child_by_field_name("body");
    let implicit = body
        .filter(|body| node.kind() == "class_declaration" && !has_constructor(*body))
        .map(|_| {
            walk.aside(&Open {
                name: Some(name.into()),
                start: start(node),
                name_at: node.child_by_field_name("name"),
                ..Open::of(node, Kind::ImplicitConstructor)
            })
        });
    let outer = walk.scope();
    if let Some(class) = walk.open_class(name, None, bases) {
        walk.bind_in(outer, name, What::Class(class));
        walk.open_ended(class, node.kind() == "interface_declaration");
        if let Some(implicit) = implicit {
            walk.implicit(class, implicit);
        }
    }
}

fn has_constructor(body: Node<'_>) -> bool {
    let mut cursor = body.walk();
    body.named_children(&mut cursor)
        .any(|child| child.kind() == "constructor_declaration")
}

fn creation(walk: &mut Walk<'_>, node: Node<'_>) {
    let path = node
        .child_by_field_name("type")
        .and_then(|kind| path_of(walk, kind));
    let mut cursor = node.walk();
    let has_body = node
        .named_children(&mut cursor)
        .any(|child| child.kind() == "class_body");
    let path: Vec<Name> = path
        .filter(|_| !has_body)
        .map(|path| walk.path(&path))
        .unwrap_or_default();
    walk.call(node, path, node.child_by_field_name("arguments"));
    if has_body {
        let number = walk.next_number() + 1;
        let class = walk.open_class(&number.to_string(), None, Vec::new());
        if let Some(class) = class {
            walk.open_ended(class, true);
        }
    }
}

fn method(walk: &mut Walk<'_>, node: Node<'_>) {
    let (Some(name), Some(_)) = (
        node.child_by_field_name("name"),
        node.child_by_field_name("body"),
    ) else {
        return;
    };
    let text = walk.str(name);
    let is_static = has_modifier(walk, node, "static");
    opened(walk, node, text, Kind::Method, is_static, name);
}

fn constructor(walk: &mut Walk<'_>, node: Node<'_>) {
    if let Some(name) = node.child_by_field_name("name") {
        opened(walk, node, walk.str(name), Kind::Constructor, false, name);
    }
}

fn opened(
    walk: &mut Walk<'_>,
    node: Node<'_>,
    text: &str,
    kind: Kind,
    is_static: bool,
    name: Node<'_>,
) {
    let class = walk.class();
    let opened = walk.open(&Open {
        name: Some(text.into()),
        flags: Flags {
            is_static,
            ..Flags::default()
        },
        start: start(node),
        name_at: Some(name),
        ..Open::of(node, kind)
    });
    let Some((definition, scope)) = opened else {
        return;
    };
    takes(walk, definition, node);
    let Some(class) = class else { return };
    if !is_static {
        walk.bind_in(scope, "this", What::Instance(class));
    }
    walk.bind_in(scope, "super", What::Base(class));
    match kind {
        Kind::Constructor => walk.bind_member(class, "<init>", What::Definition(definition)),
        _ => walk.bind_member(class, text, What::Definition(definition)),
    }
}

fn takes(walk: &mut Walk<'_>, definition: u32, node: Node<'_>) {
    let Some(list) = node.child_by_field_name("parameters") else {
        return;
    };
    let mut cursor = list.walk();
    let (mut count, mut spread) = (0u8, false);
    for child in list.named_children(&mut cursor) {
        match child.kind() {
            "formal_parameter" => count = count.saturating_add(1),
            "spread_parameter" => spread = true,
            _ => {}
        }
    }
    walk.takes(definition, count, if spread { u8::MAX } else { count });
}

fn lambda(walk: &mut Walk<'_>, node: Node<'_>) {
    let opened = walk.open(&Open {
        made_up: "lambda",
        ..Open::of(node, Kind::Closure)
    });
    let single = node
        .child_by_field_name("parameters")
        .filter(|list| list.kind() == "identifier");
    if let (Some(_), Some(name)) = (opened, single) {
        let name = walk.str(name);
        walk.bind(name, What::Opaque);
    }
}

fn variables(walk: &mut Walk<'_>, node: Node<'_>) {
    let what = typed(walk, node.child_by_field_name("type"));
    let mut cursor = node.walk();
    let declarators: Vec<_> = node
        .children_by_field_name("declarator", &mut cursor)
        .collect();
    for declarator in declarators {
        if let Some(name) = walk.field(declarator, "name") {
            // Fields and methods of one name are two things in Java.
            match walk.class() {
                Some(class) => walk.bind_member(class, &format!(".{name}"), what.clone()),
                None => walk.bind(name, what.clone()),
            }
        }
    }
}

fn call(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(name) = walk.field(node, "name") else {
        return;
    };
    let path = match node.child_by_field_name("object") {
        None => Some(vec![name]),
        Some(object) => path_of(walk, object).map(|mut path| {
            path.push(name);
            path
        }),
    };
    let path: Vec<Name> = path.map(|path| walk.path(&path)).unwrap_or_default();
    walk.call(node, path, node.child_by_field_name("arguments"));
}
