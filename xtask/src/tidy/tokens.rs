//! Rust source as a flat list of tokens with lines: no comments, no tests, strings as literals.
//!
//! Rules look for short sequences of tokens, and so see into macros, where a syntax tree ends.
use std::str::FromStr;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// One token: a word, a literal, `::`, or a single character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// Text.
    pub(super) text: String,
    /// Line from 1.
    pub(super) line: usize,
}

/// The tokens of `source`; none if it is not Rust, which the compiler tells better.
pub(super) fn tokens(source: &str) -> Vec<Token> {
    let mut list = Vec::new();
    if let Ok(stream) = TokenStream::from_str(source) {
        flatten(stream, &mut list);
    }
    list
}

/// Whether `list` goes on with `words`.
pub(super) fn starts_with(list: &[Token], words: &[&str]) -> bool {
    list.len() >= words.len()
        && list
            .iter()
            .zip(words)
            .all(|(token, word)| token.text == *word)
}

/// The first words of the paths that follow a `::`: one, or each of a group.
pub(super) fn heads(list: &[Token]) -> Vec<&Token> {
    match list.first() {
        Some(open) if open.text == "{" => heads_of_group(list.get(1..).unwrap_or_default()),
        Some(word) => vec![word],
        None => Vec::new(),
    }
}

fn heads_of_group(list: &[Token]) -> Vec<&Token> {
    let mut found = Vec::new();
    let mut depth = 0;
    let mut at_head = true;
    for token in list {
        match token.text.as_str() {
            "{" => depth += 1,
            "}" if depth == 0 => break,
            "}" => depth -= 1,
            "," if depth == 0 => at_head = true,
            _ if at_head && depth == 0 => {
                found.push(token);
                at_head = false;
            }
            _ => {}
        }
    }
    found
}

fn flatten(stream: TokenStream, list: &mut Vec<Token>) {
    let mut trees = stream.into_iter().peekable();
    while let Some(tree) = trees.next() {
        if is_pound(&tree) && trees.peek().is_some_and(is_cfg_test) {
            skip_item(&mut trees);
            continue;
        }
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = delimiters(group.delimiter());
                push(list, open, group.span_open());
                flatten(group.stream(), list);
                push(list, close, group.span_close());
            }
            TokenTree::Punct(punct)
                if punct.as_char() == ':' && punct.spacing() == Spacing::Joint =>
            {
                trees.next();
                push(list, "::", punct.span());
            }
            other => push(list, &other.to_string(), other.span()),
        }
    }
}

fn push(list: &mut Vec<Token>, text: &str, span: proc_macro2::Span) {
    if !text.is_empty() {
        list.push(Token {
            text: text.to_owned(),
            line: span.start().line,
        });
    }
}

const fn delimiters(delimiter: Delimiter) -> (&'static str, &'static str) {
    match delimiter {
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::Brace => ("{", "}"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::None => ("", ""),
    }
}

fn is_pound(tree: &TokenTree) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == '#')
}

fn is_cfg_test(tree: &TokenTree) -> bool {
    matches!(tree, TokenTree::Group(group) if group.stream().to_string().replace(' ', "") == "cfg(test)")
}

/// An item ends with its braces or its semicolon.
fn skip_item(trees: &mut impl Iterator<Item = TokenTree>) {
    for tree in trees {
        match tree {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return,
            TokenTree::Punct(punct) if punct.as_char() == ';' => return,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expect: &[&str]) {
        let found: Vec<_> = tokens(source).into_iter().map(|token| token.text).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn comments_are_gone_and_strings_are_one_token() {
        check(
            "a::b(\"c::d\"); // e::f",
            &["a", "::", "b", "(", "\"c::d\"", ")", ";"],
        );
    }

    #[test]
    fn test_modules_and_test_imports_are_gone() {
        check("#[cfg(test)] mod tests { x } #[cfg(test)] use y; z", &["z"]);
    }

    #[test]
    fn the_heads_of_a_group_are_found_not_its_leaves() {
        let list = tokens("crate::{event::{Pid, Tid}, tree::Tree, input}");
        let found: Vec<_> = heads(list.get(2..).unwrap())
            .iter()
            .map(|token| token.text.clone())
            .collect();
        assert_eq!(found, ["event", "tree", "input"]);
    }

    #[test]
    fn lines_are_those_of_the_source() {
        assert_eq!(tokens("a\n\nb").last().unwrap().line, 3);
    }
}
