//! Which functions a pattern means: globs and `/regex/` over raw and demangled names, addresses, and what was
//! probably meant when nothing matches.

use globset::{GlobBuilder, GlobMatcher};
use regex::Regex;

use super::Image;
use super::functions::ImageFunction;
use crate::function::FunctionInfo;

/// A pattern that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    /// Not a valid glob.
    #[error(
        "`{pattern}` is not a valid glob; `*` and `?` match any text, `/.../` is a regular expression"
    )]
    Glob {
        /// As typed.
        pattern: String,
        /// What the parser said.
        #[source]
        source: globset::Error,
    },
    /// Not a valid regular expression.
    #[error("`{pattern}` is not a valid regular expression")]
    Regex {
        /// As typed, without the slashes.
        pattern: String,
        /// What the parser said.
        #[source]
        source: Box<regex::Error>,
    },
    /// Not a number.
    #[error("`{pattern}` is not an address: 0x and up to 16 hex digits were expected")]
    Address {
        /// As typed.
        pattern: String,
        /// What the parser said.
        #[source]
        source: std::num::ParseIntError,
    },
}

/// One compiled `-f` or `-N` pattern.
#[derive(Debug)]
pub struct Pattern {
    text: String,
    matcher: Matcher,
}

#[derive(Debug)]
enum Matcher {
    Exact,
    Glob(GlobMatcher),
    Regex(Regex),
    Address(u64),
}

impl Pattern {
    /// Compiles `name`, `gl*b`, `/regex/` or `0xADDR` (a link-time address inside the function).
    pub fn parse(text: &str) -> Result<Self, SelectError> {
        let pattern = || text.to_owned();
        let matcher = if let Some(inner) = text
            .strip_prefix('/')
            .and_then(|rest| rest.strip_suffix('/'))
        {
            let compiled = Regex::new(inner);
            Matcher::Regex(compiled.map_err(|e| SelectError::Regex {
                pattern: inner.to_owned(),
                source: Box::new(e),
            })?)
        } else if let Some(digits) = text.strip_prefix("0x") {
            let parsed = u64::from_str_radix(digits, 16);
            Matcher::Address(parsed.map_err(|source| SelectError::Address {
                pattern: pattern(),
                source,
            })?)
        } else if text.contains(['*', '?']) {
            // Brackets and braces are part of C++, Rust and Go names, never a character class.
            let literal = text.chars().fold(String::new(), |mut out, c| {
                if matches!(c, '[' | ']' | '{' | '}' | '\\') {
                    out.push('\\');
                }
                out.push(c);
                out
            });
            let compiled = GlobBuilder::new(&literal)
                .literal_separator(false)
                .backslash_escape(true)
                .build();
            let glob = compiled.map_err(|source| SelectError::Glob {
                pattern: pattern(),
                source,
            })?;
            Matcher::Glob(glob.compile_matcher())
        } else {
            Matcher::Exact
        };
        Ok(Self {
            text: text.to_owned(),
            matcher,
        })
    }

    /// The pattern as typed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it means this function, by any of its names.
    pub fn matches(&self, function: &ImageFunction) -> bool {
        match &self.matcher {
            Matcher::Address(vaddr) => (function.vaddr..function.end()).contains(vaddr),
            Matcher::Exact => {
                function.raw_names().any(|name| name == self.text) || self.is_name(function.name())
            }
            Matcher::Glob(glob) => self.any_name(function, |name| glob.is_match(name)),
            Matcher::Regex(regex) => self.any_name(function, |name| regex.is_match(name)),
        }
    }

    /// Whether it means a recorded function, by the names that are known of it. An address means none: it is one file's.
    pub fn matches_recorded(&self, function: &FunctionInfo) -> bool {
        let mut names = [&*function.name, &*function.raw_name]
            .into_iter()
            .filter(|name| !name.is_empty());
        match &self.matcher {
            Matcher::Address(_) => false,
            Matcher::Exact => names.any(|name| self.is_name(name)),
            Matcher::Glob(glob) => names.any(|name| glob.is_match(name)),
            Matcher::Regex(regex) => names.any(|name| regex.is_match(name)),
        }
    }

    fn any_name(&self, function: &ImageFunction, test: impl Fn(&str) -> bool) -> bool {
        function.raw_names().any(&test) || test(function.name())
    }

    /// A plain name also means the demangled one without its parameters or its labels.
    fn is_name(&self, name: &str) -> bool {
        name == self.text || without_parameters(name) == self.text
    }
}

/// `foo::bar` of `foo::bar(int) const` and of `foo::bar@V [resolver]`.
fn without_parameters(name: &str) -> &str {
    let name = name.split_once(" [").map_or(name, |(head, _)| head);
    let name = name.split_once('@').map_or(name, |(head, _)| head);
    name.find('(')
        .filter(|&at| at > 0)
        .and_then(|at| name.get(..at))
        .unwrap_or(name)
}

/// Indices of the functions that any of the patterns means and none of the exclusions, in order of address. Cold
/// parts are never meant by name: no call begins there.
pub fn select(image: &Image<'_>, include: &[Pattern], exclude: &[Pattern]) -> Vec<usize> {
    let wanted = |function: &ImageFunction| {
        function.part.is_entry()
            && (include.is_empty() || include.iter().any(|pattern| pattern.matches(function)))
            && !exclude.iter().any(|pattern| pattern.matches(function))
    };
    image
        .functions()
        .iter()
        .enumerate()
        .filter(|(_, function)| wanted(function))
        .map(|(index, _)| index)
        .collect()
}

/// At most `count` names close to a pattern that matched nothing, closest first.
pub fn near_misses(image: &Image<'_>, pattern: &str, count: usize) -> Vec<String> {
    let wanted = pattern.trim_matches(['*', '/', '?']).to_lowercase();
    if wanted.is_empty() {
        return Vec::new();
    }
    let mut scored: Vec<(usize, &str)> = image
        .functions()
        .iter()
        .filter_map(|function| Some((distance(&wanted, function.name())?, function.name())))
        .collect();
    scored.sort_unstable();
    scored.dedup();
    scored
        .into_iter()
        .take(count)
        .map(|(_, name)| name.to_owned())
        .collect()
}

/// Edit distance of the last path component, or less where one contains the other; `None` if nothing is alike.
fn distance(wanted: &str, name: &str) -> Option<usize> {
    let plain = without_parameters(name);
    let last = plain
        .rsplit([':', '.'])
        .next()
        .unwrap_or(plain)
        .to_lowercase();
    let lower = plain.to_lowercase();
    if lower.contains(wanted) {
        return Some(1 + lower.len().saturating_sub(wanted.len()) / 8);
    }
    let most = wanted.len() / 3 + 1;
    (last.len().abs_diff(wanted.len()) <= most)
        .then(|| edits(wanted.as_bytes(), last.as_bytes()))
        .filter(|&d| d <= most)
}

/// Levenshtein distance, one row.
fn edits(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, &x) in a.iter().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (&y, cell) in b.iter().zip(row.iter_mut().skip(1)) {
            let best = (diagonal + usize::from(x != y))
                .min(left + 1)
                .min(*cell + 1);
            diagonal = *cell;
            *cell = best;
            left = best;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_levenshteins() {
        assert_eq!(edits(b"kitten", b"sitting"), 3);
        assert_eq!(edits(b"", b"abc"), 3);
        assert_eq!(edits(b"same", b"same"), 0);
    }

    #[test]
    fn parameters_and_labels_are_no_part_of_a_plain_name() {
        assert_eq!(without_parameters("foo::bar(int) const"), "foo::bar");
        assert_eq!(
            without_parameters("memcpy@GLIBC_2.2.5 [resolver]"),
            "memcpy"
        );
        assert_eq!(
            without_parameters("(anonymous namespace)::f"),
            "(anonymous namespace)::f"
        );
    }

    #[test]
    fn broken_patterns_are_errors_that_name_the_pattern() {
        assert!(
            matches!(Pattern::parse("/(/"), Err(SelectError::Regex { pattern, .. }) if pattern == "(")
        );
        assert!(matches!(
            Pattern::parse("0xzz"),
            Err(SelectError::Address { .. })
        ));
        assert!(Pattern::parse("Vec<[u8]>::*").is_ok());
    }
}
