//! C and C++: functions wherever a body stands, lambdas, and the names that calls may mean.

use std::sync::OnceLock;

use tree_sitter::Node;

use super::dialect::Dialect;
use super::facts::{Name, What};
use super::walk::{Open, Walk};
use crate::catalog::{Flags, Kind};
use crate::function::Language;

/// The rules of C.
pub(super) static C: Dialect = Dialect {
    language: Language::C,
    grammar: || tree_sitter_c::LANGUAGE.into(),
    extensions: &["c", "h"],
    kinds: &[
        "function_definition",
        "parameter_declaration",
        "declaration",
        "preproc_function_def",
        "preproc_def",
        "call_expression",
    ],
    enter,
    joint: "::",
    module: None,
    bare_members: false,
    seen: OnceLock::new(),
};

/// The rules of C++.
pub(super) static CPP: Dialect = Dialect {
    language: Language::Cpp,
    grammar: || tree_sitter_cpp::LANGUAGE.into(),
    extensions: &[
        "cc", "cpp", "cxx", "c++", "C", "hh", "hpp", "hxx", "h++", "inl", "ipp", "tcc", "cu",
    ],
    kinds: &[
        "function_definition",
        "lambda_expression",
        "class_specifier",
        "struct_specifier",
        "union_specifier",
        "namespace_definition",
        "using_declaration",
        "field_declaration",
        "parameter_declaration",
        "optional_parameter_declaration",
        "declaration",
        "for_range_loop",
        "preproc_function_def",
        "preproc_def",
        "call_expression",
    ],
    enter,
    joint: "::",
    module: None,
    bare_members: true,
    seen: OnceLock::new(),
};

fn enter(walk: &mut Walk<'_>, node: Node<'_>) {
    match node.kind() {
        "function_definition" => function(walk, node),
        "lambda_expression" => lambda(walk, node),
        "class_specifier" | "struct_specifier" | "union_specifier" => class(walk, node),
        "namespace_definition" => namespace(walk, node),
        "using_declaration" => using(walk, node),
        "field_declaration" => declared_member(walk, node),
        "parameter_declaration"
        | "optional_parameter_declaration"
        | "declaration"
        | "for_range_loop" => {
            declared(walk, node);
        }
        "preproc_function_def" | "preproc_def" => {
            if let Some(name) = walk.field(node, "name") {
                walk.bind_in(0, name, What::Opaque);
                // Another file may include it.
                walk.export(name, What::Opaque);
            }
        }
        "call_expression" => call(walk, node),
        _ => {}
    }
}

/// The innermost function declarator under a declarator, and whether it is one of a pointer to a function.
fn function_declarator(node: Node<'_>) -> Option<Node<'_>> {
    let mut at = node.child_by_field_name("declarator")?;
    let mut found = None;
    for _ in 0..16 {
        if at.kind() == "function_declarator" {
            found = Some(at);
        }
        let inner = at.child_by_field_name("declarator").or_else(|| {
            matches!(
                at.kind(),
                "reference_declarator" | "parenthesized_declarator" | "attributed_declarator"
            )
            .then(|| at.named_child(0))
            .flatten()
        });
        match inner {
            Some(inner) => at = inner,
            None => break,
        }
    }
    found
}

/// The parts of `a::b<c>::d`.
fn parts<'t>(walk: &Walk<'t>, node: Node<'_>) -> Option<Vec<&'t str>> {
    match node.kind() {
        "identifier"
        | "field_identifier"
        | "type_identifier"
        | "namespace_identifier"
        | "destructor_name"
        | "operator_name"
        | "operator_cast"
        | "this" => Some(vec![walk.str(node)]),
        "template_function" | "template_type" | "template_method" => {
            parts(walk, node.child_by_field_name("name")?)
        }
        "qualified_identifier" => {
            let mut path = match node.child_by_field_name("scope") {
                Some(scope) => parts(walk, scope)?,
                None => Vec::new(),
            };
            path.extend(parts(walk, node.child_by_field_name("name")?)?);
            Some(path)
        }
        _ => None,
    }
}

fn function(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(declarator) = function_declarator(node) else {
        return;
    };
    let Some(name_at) = declarator.child_by_field_name("declarator") else {
        return;
    };
    let Some(path) = parts(walk, name_at).filter(|path| !path.is_empty()) else {
        return;
    };
    // `= default` and `= delete` have no body of their own.
    if node.child_by_field_name("body").is_none() {
        return;
    }
    let class = walk.class().filter(|class| walk.is_type(*class));
    let kind = kind_of(walk, &path, class);
    let is_static = has_storage(walk, node, "static");
    let declared = node
        .parent()
        .filter(|parent| parent.kind() == "template_declaration")
        .unwrap_or(node);
    let opened = walk.open(&Open {
        name: Some(path.join("::")),
        flags: Flags {
            is_static: is_static && class.is_some(),
            ..Flags::default()
        },
        declared: declared.start_byte(),
        name_at: Some(name_at),
        ..Open::of(node, kind)
    });
    let Some((definition, scope)) = opened else {
        return;
    };
    takes(walk, definition, declarator);
    let outer = walk.outer_scope();
    let is_virtual = is_virtual(walk, node, declarator);
    match path.as_slice() {
        [name] => {
            let what = if is_virtual {
                What::Opaque
            } else {
                What::Definition(definition)
            };
            walk.bind_in(outer, name, what);
            if is_static && class.is_none() {
                walk.keep_private(definition);
            }
        }
        _ => walk.keep_private(definition),
    }
    if let Some(class) = class {
        walk.bind_in(scope, "this", What::Instance(class));
        if kind == Kind::Constructor {
            walk.constructor(class, definition);
        }
    }
}

/// A class is left before its functions that stand outside it: they are told by their path alone.
fn kind_of(walk: &Walk<'_>, path: &[&str], class: Option<u32>) -> Kind {
    let name = path.last().copied().unwrap_or_default();
    let owner = match path.len().checked_sub(2).and_then(|at| path.get(at)) {
        Some(owner) => Some((*owner).to_owned()),
        None => class.and_then(|class| walk.class_name(class)),
    };
    match owner {
        _ if name.starts_with('~') => Kind::Destructor,
        Some(owner) if owner == name => Kind::Constructor,
        Some(_) => Kind::Method,
        None => Kind::Function,
    }
}

fn has_storage(walk: &Walk<'_>, node: Node<'_>, word: &str) -> bool {
    let mut cursor = node.walk();
    node.children(&mut cursor)
        .any(|child| child.kind() == "storage_class_specifier" && walk.str(child) == word)
}

/// Calls of it may go to another: `virtual`, `override`, `final`.
fn is_virtual(walk: &Walk<'_>, node: Node<'_>, declarator: Node<'_>) -> bool {
    let mut cursor = node.walk();
    let is_virtual = node
        .children(&mut cursor)
        .any(|child| walk.str(child) == "virtual");
    let mut cursor = declarator.walk();
    is_virtual
        || declarator
            .children(&mut cursor)
            .any(|child| child.kind() == "virtual_specifier")
}

fn takes(walk: &mut Walk<'_>, definition: u32, declarator: Node<'_>) {
    let Some(list) = declarator.child_by_field_name("parameters") else {
        return;
    };
    let mut cursor = list.walk();
    let (mut least, mut most) = (0u8, 0u8);
    for child in list.children(&mut cursor) {
        match child.kind() {
            "parameter_declaration" if walk.str(child) == "void" => {}
            "parameter_declaration" => {
                least = least.saturating_add(1);
                most = most.saturating_add(1);
            }
            "optional_parameter_declaration" => most = most.saturating_add(1),
            "variadic_parameter" | "variadic_parameter_declaration" | "..." => most = u8::MAX,
            _ => {}
        }
    }
    walk.takes(definition, least, most);
}

fn lambda(walk: &mut Walk<'_>, node: Node<'_>) {
    let number = walk.next_number() + 1;
    walk.open(&Open {
        name: Some(format!("{{lambda#{number}}}")),
        flags: Flags {
            anonymous: true,
            ..Flags::default()
        },
        ..Open::of(node, Kind::Closure)
    });
}

fn class(walk: &mut Walk<'_>, node: Node<'_>) {
    let (Some(name), Some(_)) = (
        node.child_by_field_name("name"),
        node.child_by_field_name("body"),
    ) else {
        return;
    };
    let Some(path) = parts(walk, name) else {
        return;
    };
    let outer = walk.scope();
    let shown = path.join("::");
    if let Some(class) = walk.open_class(&shown, None, Vec::new()) {
        let mut cursor = node.walk();
        let derives = node
            .children(&mut cursor)
            .any(|child| child.kind() == "base_class_clause");
        walk.open_ended(class, derives);
        walk.bind_in(outer, &shown, What::Class(class));
    }
}

fn namespace(walk: &mut Walk<'_>, node: Node<'_>) {
    let name = walk.field(node, "name").unwrap_or("(anonymous namespace)");
    let outer = walk.scope();
    if let Some(class) = walk.open_class(name, None, Vec::new()) {
        walk.is_module(class);
        walk.bind_in(outer, name, What::Class(class));
    }
}

/// `using namespace x;` and `using x::y;` make bare names mean more than can be told here.
fn using(walk: &mut Walk<'_>, node: Node<'_>) {
    let path = node.named_child(0).and_then(|name| parts(walk, name));
    if let Some(path) = path.filter(|_| !walk.str(node).contains("namespace"))
        && let Some(last) = path.last()
    {
        walk.bind(last, What::Opaque);
    }
}

fn declared_member(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(declarator) = function_declarator(node) else {
        return;
    };
    let name = declarator
        .child_by_field_name("declarator")
        .and_then(|name| parts(walk, name));
    if let Some([name]) = name.as_deref()
        && is_virtual(walk, node, declarator)
    {
        // No call of a method of that name is certain, in any file.
        walk.assigned_elsewhere(name);
    }
}

/// What a variable or parameter hides.
fn declared(walk: &mut Walk<'_>, node: Node<'_>) {
    let mut cursor = node.walk();
    let declarators: Vec<_> = node
        .children_by_field_name("declarator", &mut cursor)
        .collect();
    // A prototype hides nothing.
    if node.kind() == "declaration" && function_declarator(node).is_some_and(is_prototype) {
        return;
    }
    let kind = node
        .child_by_field_name("type")
        .filter(|kind| kind.kind() == "type_identifier");
    for declarator in declarators {
        let mut at = declarator;
        let mut direct = true;
        for _ in 0..16 {
            match at.child_by_field_name("declarator").or_else(|| {
                matches!(
                    at.kind(),
                    "reference_declarator" | "parenthesized_declarator"
                )
                .then(|| at.named_child(0))
                .flatten()
            }) {
                Some(inner) => {
                    direct &= at.kind() != "function_declarator" && at.kind() != "array_declarator";
                    at = inner;
                }
                None => break,
            }
        }
        if at.kind() == "identifier" {
            let what = match kind.filter(|_| direct) {
                Some(kind) => What::Typed(walk.path(&[walk.str(kind)])),
                None => What::Opaque,
            };
            let name = walk.str(at);
            walk.bind_from(declarator, name, what);
        }
    }
}

fn is_prototype(declarator: Node<'_>) -> bool {
    declarator
        .child_by_field_name("declarator")
        .is_some_and(|name| {
            matches!(
                name.kind(),
                "identifier" | "qualified_identifier" | "field_identifier"
            )
        })
}

fn call(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(function) = node.child_by_field_name("function") else {
        return;
    };
    if function.kind() == "lambda_expression" {
        let definition = walk.next_definition();
        return walk.immediate_call(node, definition);
    }
    let path = match function.kind() {
        "field_expression" => {
            let object = function
                .child_by_field_name("argument")
                .and_then(|object| parts(walk, object));
            let field = function
                .child_by_field_name("field")
                .and_then(|field| parts(walk, field));
            object.zip(field).map(|(mut path, field)| {
                path.extend(field);
                path
            })
        }
        _ => parts(walk, function),
    };
    let path: Vec<Name> = path.map(|path| walk.path(&path)).unwrap_or_default();
    walk.call(node, path, node.child_by_field_name("arguments"));
}
