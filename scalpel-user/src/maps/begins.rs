//! Whether a function begins at a place of a made text, as far as a glance tells: what a compiler folded away leaves a value
//! where the function was.

/// How far the head of a function is followed, in bytes.
const LONGEST_HEAD: usize = 4096;

/// Whether `text` begins as functions do: `function`, parameters and an arrow, a name and parameters and a body.
pub(super) fn a_function(text: &str) -> bool {
    let mut rest = text
        .get(..text.floor_char_boundary(LONGEST_HEAD))
        .unwrap_or(text);
    for word in ["export", "default", "static", "async", "get", "set"] {
        rest = after_word(rest, word).unwrap_or(rest);
    }
    let rest = rest.trim_start_matches(['*', '#']).trim_start();
    if after_word(rest, "function").is_some() || rest.starts_with("function*") {
        return true;
    }
    let name = after_name(rest);
    let behind = name.unwrap_or(rest).trim_start();
    if name.is_some() && behind.starts_with("=>") {
        return true;
    }
    let behind = after_brackets(behind, '(', ')').map(str::trim_start);
    behind.is_some_and(|behind| behind.starts_with("=>") || behind.starts_with('{'))
}

fn after_word<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let rest = text.strip_prefix(word)?;
    let ends = !rest.starts_with(is_of_name);
    ends.then(|| rest.trim_start())
        .filter(|rest| word == "function" || !rest.starts_with(['(', '=']))
}

fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '$'
}

/// Behind a name: plain, quoted, or computed.
fn after_name(text: &str) -> Option<&str> {
    match text.chars().next()? {
        quote @ ('"' | '\'') => text.get(1..)?.split_once(quote).map(|(_, rest)| rest),
        '[' => after_brackets(text, '[', ']'),
        first if is_of_name(first) => Some(text.trim_start_matches(is_of_name)),
        _ => None,
    }
}

/// Behind a pair of brackets, those within it counted.
fn after_brackets(text: &str, open: char, close: char) -> Option<&str> {
    let mut depth = 0u32;
    for (at, letter) in text.char_indices() {
        match letter {
            _ if letter == open => depth += 1,
            _ if letter == close && depth == 1 => return text.get(at + letter.len_utf8()..),
            _ if letter == close => depth = depth.checked_sub(1)?,
            _ if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::a_function;

    #[test]
    fn heads_of_functions_are_told_from_values() {
        let heads = [
            "function(){}",
            "function* a(){}",
            "async function n(){}",
            "e=>e+1",
            "async e=>e",
            "(a,b)=>a",
            "({a=(1)},[b])=>{}",
            "get(){return 1}",
            "get label(){}",
            "static made(){}",
            "*each(){}",
            "#own(){}",
            "\"quoted name\"(){}",
            "[Symbol.iterator](){}",
            "constructor(t,n=(r(1),2)){}",
            "\u{e4}(){}",
        ];
        for head in heads {
            assert!(a_function(head), "{head}");
        }
        for value in [
            "7",
            "x",
            "\"text\"",
            "(1,2)",
            "f(1),2",
            "!0",
            "",
            "[1,2]",
            "functional",
        ] {
            assert!(!a_function(value), "{value}");
        }
    }
}
