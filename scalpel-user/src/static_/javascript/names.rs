//! What names stand for: variables, parameters, imports and exports of both kinds of modules, and the calls.

use tree_sitter::Node;

use super::super::facts::What;
use super::super::note::dotted;
use super::super::walk::Walk;
use super::{LEAVES, STEPS, has_token, is_function};

/// `new Class()` and `: Class` tell what a name stands for.
pub(super) fn made_or_typed(
    walk: &mut Walk<'_>,
    value: Option<Node<'_>>,
    annotation: Option<Node<'_>>,
) -> What {
    let made = value
        .filter(|value| value.kind() == "new_expression")
        .and_then(|value| value.child_by_field_name("constructor"));
    let told = annotation.and_then(|annotation| annotation.named_child(0));
    let path = match (made, told) {
        (Some(made), _) => dotted(walk, made, STEPS, LEAVES),
        (None, Some(told)) if told.kind() == "type_identifier" => Some(vec![walk.str(told)]),
        _ => None,
    };
    path.map_or(What::Opaque, |path| What::Typed(walk.path(&path)))
}

/// Every name that a pattern declares may be anything.
pub(super) fn pattern(walk: &mut Walk<'_>, node: Option<Node<'_>>) {
    each_target(walk, node, &mut |walk, name| walk.bind(name, What::Opaque));
}

/// Every name that a pattern assigns may be anything from then on.
pub(super) fn reassigned(walk: &mut Walk<'_>, node: Option<Node<'_>>) {
    each_target(walk, node, &mut |walk, name| walk.reassigned(name));
}

fn each_target(
    walk: &mut Walk<'_>,
    node: Option<Node<'_>>,
    each: &mut impl FnMut(&mut Walk<'_>, &str),
) {
    let Some(node) = node else { return };
    match node.kind() {
        "identifier" | "shorthand_property_identifier_pattern" => {
            let name = walk.str(node);
            each(walk, name);
        }
        "member_expression" => member_assigned(walk, node, None),
        "pair_pattern" => each_target(walk, node.child_by_field_name("value"), each),
        "assignment_pattern" | "object_assignment_pattern" => {
            each_target(walk, node.child_by_field_name("left"), each);
        }
        "subscript_expression" | "call_expression" => {}
        _ => {
            let mut cursor = node.walk();
            let children: Vec<_> = node.named_children(&mut cursor).collect();
            for child in children {
                each_target(walk, Some(child), each);
            }
        }
    }
}

pub(super) fn parameters(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(list) = node.child_by_field_name("parameters") else {
        return;
    };
    let mut cursor = list.walk();
    let children: Vec<_> = list.named_children(&mut cursor).collect();
    for parameter in children {
        let name = parameter
            .child_by_field_name("pattern")
            .unwrap_or(parameter);
        if name.kind() == "identifier" {
            let what = made_or_typed(walk, None, parameter.child_by_field_name("type"));
            let name = walk.str(name);
            walk.bind(name, what);
        } else {
            pattern(walk, Some(name));
        }
    }
}

pub(super) fn variable(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(name) = node.child_by_field_name("name") else {
        return;
    };
    let value = node.child_by_field_name("value");
    if let Some(module) = value.and_then(|value| required(walk, value)) {
        return bind_required(walk, name, &module);
    }
    if name.kind() != "identifier" {
        return pattern(walk, Some(name));
    }
    let text = walk.str(name);
    let what = match value {
        Some(value) if is_function(value) => What::Definition(walk.next_definition()),
        Some(value) if value.kind() == "class" => What::Class(walk.next_class()),
        _ => made_or_typed(walk, value, node.child_by_field_name("type")),
    };
    if let Some(declaration) = node.parent() {
        exported(walk, declaration, text, what.clone());
    }
    walk.bind(text, what);
}

/// The path of `require('x')`, `require('x').y`.
pub(super) fn required<'t>(walk: &Walk<'t>, value: Node<'_>) -> Option<Vec<&'t str>> {
    match value.kind() {
        "call_expression" if walk.field(value, "function") == Some("require") => {
            let module = value.child_by_field_name("arguments")?.named_child(0)?;
            (module.kind() == "string").then(|| vec![unquoted(walk, module), "="])
        }
        "member_expression" => {
            let mut path = required(walk, value.child_by_field_name("object")?)?;
            path.push(walk.field(value, "property")?);
            Some(path)
        }
        _ => None,
    }
}

fn unquoted<'t>(walk: &Walk<'t>, node: Node<'_>) -> &'t str {
    walk.str(node).trim_matches(['"', '\'', '`'])
}

fn bind_required(walk: &mut Walk<'_>, name: Node<'_>, module: &[&str]) {
    if name.kind() == "identifier" {
        let (path, name) = (walk.path(module), walk.str(name));
        return walk.bind(name, What::Import(path));
    }
    let mut cursor = name.walk();
    let children: Vec<_> = name.named_children(&mut cursor).collect();
    for child in children {
        let (key, local) = match child.kind() {
            "shorthand_property_identifier_pattern" => {
                (Some(walk.str(child)), Some(walk.str(child)))
            }
            "pair_pattern" => (walk.field(child, "key"), walk.field(child, "value")),
            _ => (None, None),
        };
        if let (Some(key), Some(local)) = (key, local) {
            let mut path = walk.path(module);
            path.push(walk.name(key));
            walk.bind(local, What::Import(path));
        }
    }
}

pub(super) fn assignment(walk: &mut Walk<'_>, node: Node<'_>) {
    let (Some(left), right) = (
        node.child_by_field_name("left"),
        node.child_by_field_name("right"),
    ) else {
        return;
    };
    if left.kind() == "member_expression" {
        member_assigned(walk, left, right);
    } else {
        reassigned(walk, Some(left));
    }
}

pub(super) fn member_assigned(walk: &mut Walk<'_>, left: Node<'_>, right: Option<Node<'_>>) {
    let Some(path) = dotted(walk, left, STEPS, LEAVES) else {
        return;
    };
    match (path.as_slice(), walk.class_around()) {
        (["exports", name] | ["module", "exports", name], _) => {
            let what = assigned(walk, right);
            walk.export(name, what);
        }
        (["module", "exports"], _) => module_exports(walk, right),
        (["this", name], Some(class)) => {
            let what = made_or_typed(walk, right, None);
            walk.bind_member(class, name, what);
        }
        (["this", _], None) => {}
        ([.., name], _) => walk.assigned_elsewhere(name),
        ([], _) => {}
    }
}

fn assigned(walk: &mut Walk<'_>, value: Option<Node<'_>>) -> What {
    let Some(value) = value else {
        return What::Opaque;
    };
    if is_function(value) {
        return What::Definition(walk.next_definition());
    }
    if value.kind() == "class" {
        return What::Class(walk.next_class());
    }
    if let Some(path) = required(walk, value) {
        return What::Import(walk.path(&path));
    }
    match dotted(walk, value, STEPS, LEAVES) {
        Some(path) if path.len() == 1 => What::Local(walk.path(&path)),
        _ => What::Opaque,
    }
}

/// `module.exports = f`, or `= { a, b: c }`.
fn module_exports(walk: &mut Walk<'_>, value: Option<Node<'_>>) {
    let Some(object) = value.filter(|value| value.kind() == "object") else {
        let what = assigned(walk, value);
        return walk.export("=", what);
    };
    let mut cursor = object.walk();
    let children: Vec<_> = object.named_children(&mut cursor).collect();
    for child in children {
        match child.kind() {
            "shorthand_property_identifier" => {
                let name = walk.str(child);
                let what = What::Local(walk.path(&[name]));
                walk.export(name, what);
            }
            "pair" => {
                let value = child
                    .child_by_field_name("value")
                    .filter(|value| !is_function(*value));
                let what = assigned(walk, value);
                if let Some(key) = walk.field(child, "key") {
                    walk.export(key, what);
                }
            }
            _ => {}
        }
    }
}

pub(super) fn imports(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(source) = node.child_by_field_name("source") else {
        return;
    };
    let module = unquoted(walk, source);
    let mut cursor = node.walk();
    let Some(clause) = node
        .children(&mut cursor)
        .find(|child| child.kind() == "import_clause")
    else {
        return;
    };
    let mut cursor = clause.walk();
    let children: Vec<_> = clause.named_children(&mut cursor).collect();
    for child in children {
        match child.kind() {
            "identifier" => bind_import(walk, walk.str(child), &[module, "default"]),
            "namespace_import" => {
                if let Some(name) = child.named_child(0) {
                    bind_import(walk, walk.str(name), &[module]);
                }
            }
            _ => named_imports(walk, child, module),
        }
    }
}

fn bind_import(walk: &mut Walk<'_>, local: &str, path: &[&str]) {
    let path = walk.path(path);
    walk.bind(local, What::Import(path));
}

fn named_imports(walk: &mut Walk<'_>, list: Node<'_>, module: &str) {
    let mut cursor = list.walk();
    let children: Vec<_> = list.named_children(&mut cursor).collect();
    for child in children {
        if let Some(name) = walk.field(child, "name") {
            let local = walk.field(child, "alias").unwrap_or(name);
            bind_import(walk, local, &[module, name]);
        }
    }
}

/// `export { a as b }`, `export { a } from 'x'`, `export * from 'x'`, `export default x`.
pub(super) fn exports(walk: &mut Walk<'_>, node: Node<'_>) {
    let source = node
        .child_by_field_name("source")
        .map(|source| unquoted(walk, source));
    if let Some(value) = node.child_by_field_name("value") {
        let what = assigned(walk, Some(value));
        return walk.export("default", what);
    }
    let mut cursor = node.walk();
    let clause = node
        .children(&mut cursor)
        .find(|child| child.kind() == "export_clause");
    match (clause, source) {
        (Some(clause), source) => export_clause(walk, clause, source),
        (None, Some(module)) if !has_token(node, "namespace_export") => {
            let path = walk.path(&[module]);
            walk.export("", What::Import(path));
        }
        _ => {}
    }
}

fn export_clause(walk: &mut Walk<'_>, clause: Node<'_>, source: Option<&str>) {
    let mut cursor = clause.walk();
    let children: Vec<_> = clause.named_children(&mut cursor).collect();
    for child in children {
        let Some(name) = walk.field(child, "name") else {
            continue;
        };
        let seen = walk.field(child, "alias").unwrap_or(name);
        let what = match source {
            Some(module) => What::Import(walk.path(&[module, name])),
            None => What::Local(walk.path(&[name])),
        };
        walk.export(seen, what);
    }
}

/// A declaration behind `export` or `export default`.
pub(super) fn exported(walk: &mut Walk<'_>, node: Node<'_>, name: &str, what: What) {
    let Some(parent) = node
        .parent()
        .filter(|parent| parent.kind() == "export_statement")
    else {
        return;
    };
    let name = if has_token(parent, "default") {
        "default"
    } else {
        name
    };
    walk.export(name, what);
}

pub(super) fn call(walk: &mut Walk<'_>, node: Node<'_>) {
    let Some(function) = node.child_by_field_name("function") else {
        return;
    };
    if function.kind() == "super" {
        let path = walk.path(&["super", "constructor"]);
        return walk.call(node, path, None);
    }
    if is_function(function) || is_wrapped_function(function) {
        let definition = walk.next_definition();
        return walk.immediate_call(node, definition);
    }
    let path = match required(walk, function) {
        Some(_) => None,
        None => dotted(walk, function, STEPS, LEAVES),
    };
    let path = path.map(|path| walk.path(&path)).unwrap_or_default();
    walk.call(node, path, None);
}

/// `(function () {})()`.
fn is_wrapped_function(node: Node<'_>) -> bool {
    node.kind() == "parenthesized_expression" && node.named_child(0).is_some_and(is_function)
}

pub(super) fn creation(walk: &mut Walk<'_>, node: Node<'_>) {
    let path = node
        .child_by_field_name("constructor")
        .and_then(|constructor| dotted(walk, constructor, STEPS, LEAVES))
        .map(|path| walk.path(&path))
        .unwrap_or_default();
    walk.call(node, path, None);
}
