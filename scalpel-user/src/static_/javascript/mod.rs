//! JavaScript, TypeScript and TSX: what an engine runs as a function, classes without a constructor, enums and
//! namespaces included, and what names stand for.

use std::sync::OnceLock;

use tree_sitter::Node;

mod names;
mod typed;

use self::names::{
    assignment, call, creation, exported, exports, imports, made_or_typed, parameters, pattern,
    reassigned, variable,
};
use self::typed::{enumeration, namespace};
use super::dialect::Dialect;
use super::facts::{Name, What};
use super::note::dotted;
use super::walk::{Open, Walk};
use crate::catalog::{Flags, Kind};
use crate::function::Language;

macro_rules! dialect {
    ($name:ident, $grammar:expr, $extensions:expr, [$($more:literal),*]) => {
        /// The rules.
        pub(super) static $name: Dialect = Dialect {
            language: Language::JavaScript,
            grammar: || $grammar.into(),
            extensions: $extensions,
            kinds: &[
                "function_declaration", "generator_function_declaration", "function_expression", "generator_function",
                "arrow_function", "method_definition", "class_declaration", "class", "class_static_block",
                "import_statement", "export_statement", "variable_declarator", "assignment_expression",
                "augmented_assignment_expression", "update_expression", "catch_clause", "for_in_statement",
                "call_expression", "new_expression", $($more),*
            ],
            enter,
            joint: ".",
            module: Some("(module)"),
            bare_members: false,
                    seen: OnceLock::new(),
        };
    };
}

dialect!(
    JAVASCRIPT,
    tree_sitter_javascript::LANGUAGE,
    &["js", "mjs", "cjs", "jsx"],
    ["field_definition"]
);
dialect!(
    TYPESCRIPT,
    tree_sitter_typescript::LANGUAGE_TYPESCRIPT,
    &["ts", "mts", "cts"],
    [
        "public_field_definition",
        "abstract_class_declaration",
        "enum_declaration",
        "internal_module",
        "module"
    ]
);
dialect!(
    TSX,
    tree_sitter_typescript::LANGUAGE_TSX,
    &["tsx"],
    [
        "public_field_definition",
        "abstract_class_declaration",
        "enum_declaration",
        "internal_module",
        "module"
    ]
);

const STEPS: &[(&str, &str, &str)] = &[("member_expression", "object", "property")];
const LEAVES: &[&str] = &[
    "identifier",
    "property_identifier",
    "private_property_identifier",
    "this",
    "super",
];

fn enter(walk: &mut Walk<'_>, node: Node<'_>) {
    match node.kind() {
        "function_declaration" | "generator_function_declaration" => declaration(walk, node),
        "function_expression" | "generator_function" => expression(walk, node),
        "arrow_function" => arrow(walk, node),
        "method_definition" => method(walk, node),
        "class_declaration" | "abstract_class_declaration" | "class" => class(walk, node),
        "class_static_block" => static_block(walk, node),
        "field_definition" | "public_field_definition" => field(walk, node),
        "enum_declaration" => enumeration(walk, node),
        "internal_module" | "module" => namespace(walk, node),
        "import_statement" => imports(walk, node),
        "export_statement" => exports(walk, node),
        "variable_declarator" => variable(walk, node),
        "assignment_expression" => assignment(walk, node),
        "augmented_assignment_expression" => reassigned(walk, node.child_by_field_name("left")),
        "for_in_statement" if node.child_by_field_name("kind").is_some() => {
            pattern(walk, node.child_by_field_name("left"));
        }
        "for_in_statement" => reassigned(walk, node.child_by_field_name("left")),
        "update_expression" => reassigned(walk, node.child_by_field_name("argument")),
        "catch_clause" => pattern(walk, node.child_by_field_name("parameter")),
        "call_expression" => call(walk, node),
        "new_expression" => creation(walk, node),
        _ => {}
    }
}

fn has_token(node: Node<'_>, token: &str) -> bool {
    let mut cursor = node.walk();
    node.children(&mut cursor)
        .any(|child| child.kind() == token)
}

fn flags(node: Node<'_>) -> Flags {
    Flags {
        is_async: has_token(node, "async"),
        generator: node.kind().starts_with("generator") || has_token(node, "*"),
        is_static: has_token(node, "static"),
        ..Flags::default()
    }
}

/// Where `export` and the decorators before a declaration start.
fn declared(node: Node<'_>) -> usize {
    let outer = node
        .parent()
        .filter(|parent| parent.kind() == "export_statement");
    let mut first = outer.unwrap_or(node);
    while let Some(before) = first
        .prev_named_sibling()
        .filter(|it| it.kind() == "decorator")
    {
        first = before;
    }
    first.start_byte()
}

fn declaration(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(name) = node.child_by_field_name("name") else {
        return;
    };
    let text = walk.str(name);
    let opened = walk.open(&Open {
        name: Some(text.into()),
        flags: flags(node),
        declared: declared(node),
        name_at: Some(name),
        ..Open::of(node, Kind::Function)
    });
    if let Some((definition, scope)) = opened {
        let outer = walk.outer_scope();
        walk.bind_in(outer, text, What::Definition(definition));
        exported(walk, node, text, What::Definition(definition));
        walk.bind_in(scope, "this", What::Opaque);
        parameters(walk, node);
    }
}

fn expression(walk: &mut Walk<'_>, node: Node<'_>) {
    let own = node.child_by_field_name("name");
    let name = own
        .map(|name| walk.str(name).to_owned())
        .or_else(|| given_name(walk, node));
    let opened = walk.open(&Open {
        name,
        flags: flags(node),
        declared: declared(node),
        name_at: own,
        ..Open::of(node, Kind::Closure)
    });
    if let Some((definition, scope)) = opened {
        if let Some(own) = own {
            let text = walk.str(own);
            walk.bind_in(scope, text, What::Definition(definition));
        }
        walk.bind_in(scope, "this", What::Opaque);
        parameters(walk, node);
    }
}

fn arrow(walk: &mut Walk<'_>, node: Node<'_>) {
    let name = given_name(walk, node);
    let opened = walk.open(&Open {
        name,
        flags: flags(node),
        declared: declared(node),
        ..Open::of(node, Kind::Closure)
    });
    if opened.is_some() {
        if let Some(single) = node.child_by_field_name("parameter") {
            pattern(walk, Some(single));
        }
        parameters(walk, node);
    }
}

/// The name that an engine gives a function without one: that of what it is assigned to.
fn given_name(walk: &Walk<'_>, node: Node<'_>) -> Option<String> {
    let parent = node.parent()?;
    let target = match parent.kind() {
        "variable_declarator" | "public_field_definition" => parent.child_by_field_name("name")?,
        "field_definition" => parent.child_by_field_name("property")?,
        "pair" => parent.child_by_field_name("key")?,
        "assignment_expression" | "assignment_pattern" => parent.child_by_field_name("left")?,
        "export_statement" => return Some("default".into()),
        _ => return None,
    };
    let target = target.child_by_field_name("property").unwrap_or(target);
    let is_name = matches!(
        target.kind(),
        "identifier" | "property_identifier" | "private_property_identifier" | "string" | "number"
    );
    is_name.then(|| walk.str(target).trim_matches(['"', '\'']).to_owned())
}

fn method(walk: &mut Walk<'_>, node: Node<'_>) {
    let class = walk.class();
    let Some(name) = node.child_by_field_name("name") else {
        return;
    };
    let text = walk.str(name);
    let flags = flags(node);
    let kind = match () {
        () if has_token(node, "get") && text != "get" => Kind::Getter,
        () if has_token(node, "set") && text != "set" => Kind::Setter,
        () if text == "constructor" && class.is_some() => Kind::Constructor,
        () => Kind::Method,
    };
    let opened = walk.open(&Open {
        name: Some(text.trim_matches(['"', '\'']).into()),
        flags,
        start: past_modifiers(node),
        declared: declared(node),
        name_at: Some(name),
        ..Open::of(node, kind)
    });
    let Some((definition, scope)) = opened else {
        return;
    };
    match class {
        Some(class) => member(walk, class, (definition, scope), text, (kind, flags)),
        None => walk.bind_in(scope, "this", What::Opaque),
    }
    parameters(walk, node);
}

fn member(
    walk: &mut Walk<'_>,
    class: u32,
    (definition, scope): (u32, u32),
    name: &str,
    (kind, flags): (Kind, Flags),
) {
    let this = if flags.is_static {
        What::Class(class)
    } else {
        What::Instance(class)
    };
    walk.bind_in(scope, "this", this);
    walk.bind_in(scope, "super", What::Base(class));
    match kind {
        Kind::Constructor => walk.constructor(class, definition),
        Kind::Method => walk.bind_member(class, name, What::Definition(definition)),
        _ => walk.bind_member(class, name, What::Opaque),
    }
}

/// Where a member starts for an engine: behind decorators, `static`, `public` and the like.
fn past_modifiers(node: Node<'_>) -> usize {
    let mut cursor = node.walk();
    node.children(&mut cursor)
        .find(|child| {
            !matches!(
                child.kind(),
                "decorator"
                    | "static"
                    | "accessibility_modifier"
                    | "override_modifier"
                    | "readonly"
                    | "abstract"
                    | "declare"
                    | "comment"
            )
        })
        .map_or(node.start_byte(), |child| child.start_byte())
}

fn class(walk: &mut Walk<'_>, node: Node<'_>) {
    let own = node.child_by_field_name("name");
    let name = own
        .map(|name| walk.str(name).to_owned())
        .or_else(|| given_name(walk, node));
    let Some(body) = node.child_by_field_name("body") else {
        return;
    };
    let implicit = (!has_constructor(walk, body)).then(|| {
        walk.aside(&Open {
            name: Some(name.clone().unwrap_or_default()),
            flags: Flags {
                anonymous: name.is_none(),
                ..Flags::default()
            },
            declared: declared(node),
            name_at: own,
            ..Open::of(node, Kind::ImplicitConstructor)
        })
    });
    let (bases, open) = heritage(walk, node);
    let outer = walk.scope();
    let shown = name.unwrap_or_default();
    let Some(class) = walk.open_class(&shown, None, bases) else {
        return;
    };
    walk.open_ended(class, open);
    if let Some(implicit) = implicit {
        walk.implicit(class, implicit);
    }
    if own.is_some() {
        walk.bind_in(outer, &shown, What::Class(class));
        exported(walk, node, &shown, What::Class(class));
    }
    initialisers(walk, body);
}

fn has_constructor(walk: &Walk<'_>, body: Node<'_>) -> bool {
    let mut cursor = body.walk();
    body.named_children(&mut cursor).any(|child| {
        child.kind() == "method_definition"
            && walk.field(child, "name") == Some("constructor")
            && child.child_by_field_name("body").is_some()
    })
}

/// Path of the class above, and whether it is something else than a path.
fn heritage(walk: &mut Walk<'_>, node: Node<'_>) -> (Vec<Vec<Name>>, bool) {
    let mut cursor = node.walk();
    let Some(clause) = node
        .children(&mut cursor)
        .find(|child| child.kind() == "class_heritage")
    else {
        return (Vec::new(), false);
    };
    let mut cursor = clause.walk();
    let extends = clause
        .named_children(&mut cursor)
        .find(|child| child.kind() != "implements_clause");
    let Some(value) = extends.map(|it| it.child_by_field_name("value").unwrap_or(it)) else {
        return (Vec::new(), false);
    };
    match dotted(walk, value, STEPS, LEAVES) {
        Some(path) => (vec![walk.path(&path)], false),
        None => (Vec::new(), true),
    }
}

/// The values of fields run as one function of the class, those of static fields as another.
fn initialisers(walk: &mut Walk<'_>, body: Node<'_>) {
    let mut cursor = body.walk();
    let fields: Vec<_> = body
        .named_children(&mut cursor)
        .filter(|child| matches!(child.kind(), "field_definition" | "public_field_definition"))
        .filter(|child| child.child_by_field_name("value").is_some())
        .collect();
    for is_static in [false, true] {
        let mut of_kind = fields
            .iter()
            .filter(|field| has_token(**field, "static") == is_static);
        let (Some(first), last) = (of_kind.next(), of_kind.next_back()) else {
            continue;
        };
        let made_up = if is_static {
            "<static_initializer>"
        } else {
            "<instance_members_initializer>"
        };
        let definition = walk.aside(&Open {
            made_up,
            flags: Flags {
                is_static,
                ..Flags::default()
            },
            body: None,
            ..Open::of(*first, Kind::FieldInitialiser)
        });
        walk.extend_to(definition, last.unwrap_or(first).end_byte());
    }
}

fn static_block(walk: &mut Walk<'_>, node: Node<'_>) {
    let class = walk.class();
    let opened = walk.open(&Open {
        made_up: "<static_initializer>",
        flags: Flags {
            is_static: true,
            ..Flags::default()
        },
        ..Open::of(node, Kind::StaticBlock)
    });
    if let (Some((_, scope)), Some(class)) = (opened, class) {
        walk.bind_in(scope, "this", What::Class(class));
    }
}

fn field(walk: &mut Walk<'_>, node: Node<'_>) {
    let name = node
        .child_by_field_name("name")
        .or_else(|| node.child_by_field_name("property"));
    let (Some(class), Some(name)) = (walk.class(), name) else {
        return;
    };
    let value = node.child_by_field_name("value");
    let what = match value {
        Some(value) if is_function(value) => What::Definition(walk.next_definition()),
        _ => made_or_typed(walk, value, node.child_by_field_name("type")),
    };
    let name = walk.str(name);
    walk.bind_member(class, name, what);
}

fn is_function(node: Node<'_>) -> bool {
    matches!(
        node.kind(),
        "arrow_function" | "function_expression" | "generator_function"
    )
}
