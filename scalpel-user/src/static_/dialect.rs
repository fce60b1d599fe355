//! The languages: by which names their files go, and who knows their rules.

use std::path::Path;
use std::sync::OnceLock;

use tree_sitter::Node;

use super::walk::Walk;
use super::{c, csharp, go, java, javascript, lua, php, python, ruby, rust, zig};
use crate::function::Language;

/// The rules of one grammar.
pub(super) struct Dialect {
    pub(super) language: Language,
    pub(super) grammar: fn() -> tree_sitter::Language,
    /// Ends of file names.
    pub(super) extensions: &'static [&'static str],
    /// Kinds of nodes that `enter` wants to see.
    pub(super) kinds: &'static [&'static str],
    /// Looks at a node, and writes down what it is.
    pub(super) enter: fn(&mut Walk<'_>, Node<'_>),
    /// What joins names.
    pub(super) joint: &'static str,
    /// Name of the file's top level, if it runs.
    pub(super) module: Option<&'static str>,
    /// Whether members of the classes around are called by their bare names.
    pub(super) bare_members: bool,
    pub(super) seen: OnceLock<Vec<bool>>,
}

impl Dialect {
    /// By number of kind: whether `enter` wants to see it.
    pub(super) fn interesting(&self) -> &[bool] {
        self.seen.get_or_init(|| {
            let grammar = (self.grammar)();
            let kinds = 0..u16::try_from(grammar.node_kind_count()).unwrap_or(u16::MAX);
            kinds
                .map(|id| {
                    let name = grammar.node_kind_for_id(id).unwrap_or_default();
                    grammar.node_kind_is_named(id) && self.kinds.contains(&name)
                })
                .collect()
        })
    }
}

/// All of them.
pub(super) static DIALECTS: [&Dialect; 14] = [
    &python::PYTHON,
    &javascript::JAVASCRIPT,
    &javascript::TYPESCRIPT,
    &javascript::TSX,
    &go::GO,
    &rust::RUST,
    &c::C,
    &c::CPP,
    &java::JAVA,
    &php::PHP,
    &ruby::RUBY,
    &csharp::CSHARP,
    &lua::LUA,
    &zig::ZIG,
];

/// The dialect of a file, by its name. Of `.h` files only the text tells whether they are C++: see [`of_header`].
pub(super) fn of_path(path: &Path) -> Option<&'static Dialect> {
    let extension = path.extension()?.to_str()?;
    DIALECTS
        .iter()
        .copied()
        .find(|dialect| dialect.extensions.contains(&extension))
}

/// A header is C++ if it says so with a word that C does not have.
pub(super) fn of_header(text: &str) -> &'static Dialect {
    const WORDS: [&str; 5] = [
        "\nclass ",
        "\nnamespace ",
        "\ntemplate",
        "std::",
        "\nusing ",
    ];
    if WORDS.iter().any(|word| text.contains(word)) {
        &c::CPP
    } else {
        &c::C
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_grammar_loads_and_has_the_kinds_that_are_asked_for() {
        for dialect in DIALECTS {
            let grammar = (dialect.grammar)();
            let mut parser = tree_sitter::Parser::new();
            parser.set_language(&grammar).unwrap();
            for kind in dialect.kinds {
                assert_ne!(
                    grammar.id_for_node_kind(kind, true),
                    0,
                    "{:?} has no {kind}",
                    dialect.language
                );
            }
        }
    }
}
