//! What a symbol's name says: its demangled form, its language, and which part or copy of a function it labels.

use symbolic_demangle::demangle;

use crate::function::Language;

/// Which part or copy of a source function a symbol labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Part {
    /// The function as written.
    #[default]
    Whole,
    /// The rarely executed blocks, moved away (`.cold`): entered by jumps, not by calls.
    Cold,
    /// An outlined rest (`.part.N`): called by the inlined beginning.
    Outlined,
    /// A copy with constants filled in or arguments changed (`.constprop`, `.isra`, `.lto_priv`, `.llvm` ...).
    Copy,
}

impl Part {
    /// By the suffixes of GCC and LLVM.
    pub(super) fn of(raw_name: &str) -> Self {
        let Some(dot) = suffix_start(raw_name) else {
            return Self::Whole;
        };
        let suffixes = raw_name.get(dot..).unwrap_or_default();
        if suffixes.contains(".cold") {
            Self::Cold
        } else if suffixes.contains(".part.") {
            Self::Outlined
        } else {
            Self::Copy
        }
    }

    /// Whether a call begins here: a cold part is entered by a jump from the middle of its function.
    pub const fn is_entry(self) -> bool {
        !matches!(self, Self::Cold)
    }
}

const SUFFIXES: [&str; 8] = [
    ".cold",
    ".part.",
    ".constprop.",
    ".isra.",
    ".lto_priv.",
    ".llvm.",
    ".clone.",
    ".localalias",
];

fn suffix_start(raw_name: &str) -> Option<usize> {
    // Few names have a dot, and each is asked for several times.
    let first = raw_name.bytes().position(|byte| byte == b'.')?;
    let rest = raw_name.get(first..)?;
    SUFFIXES
        .iter()
        .filter_map(|suffix| rest.find(suffix))
        .min()
        .map(|at| first + at)
        .filter(|&at| at > 0)
}

/// The name for people: demangled, its hash dropped (Rust), its part kept as a label.
pub(super) fn display(raw_name: &str) -> String {
    match suffix_start(raw_name).and_then(|dot| raw_name.split_at_checked(dot)) {
        Some((head, suffixes)) => {
            format!("{} [{}]", demangle(head), suffixes.trim_start_matches('.'))
        }
        None => demangle(raw_name).into_owned(),
    }
}

/// Language by the mangling alone; `None` for a plain name.
pub(super) fn language(raw_name: &str) -> Option<Language> {
    if raw_name.starts_with("_R") || is_rust_legacy(raw_name) {
        Some(Language::Rust)
    } else if raw_name.starts_with("_Z") || raw_name.starts_with("__Z") {
        Some(Language::Cpp)
    } else {
        None
    }
}

/// `_ZN ... 17h<16 hex digits>E`: the scheme before v0.
fn is_rust_legacy(raw_name: &str) -> bool {
    let head = suffix_start(raw_name)
        .and_then(|dot| raw_name.get(..dot))
        .unwrap_or(raw_name);
    let hash = head
        .strip_suffix('E')
        .and_then(|rest| rest.get(rest.len().checked_sub(19)?..));
    head.starts_with("_ZN")
        && hash.is_some_and(|h| {
            h.starts_with("17h") && h.bytes().skip(3).all(|b| b.is_ascii_hexdigit())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(raw: &str, name: &str, language_of: Option<Language>, part: Part) {
        assert_eq!(
            (display(raw).as_str(), language(raw), Part::of(raw)),
            (name, language_of, part),
            "{raw}"
        );
    }

    #[test]
    fn names_are_demangled_and_parts_labelled() {
        check("main", "main", None, Part::Whole);
        check(
            "_ZN3foo3barEi",
            "foo::bar(int)",
            Some(Language::Cpp),
            Part::Whole,
        );
        check(
            "_ZN3foo3barEi.cold",
            "foo::bar(int) [cold]",
            Some(Language::Cpp),
            Part::Cold,
        );
        check(
            "parse.part.0.constprop.3",
            "parse [part.0.constprop.3]",
            None,
            Part::Outlined,
        );
        check("scan.isra.0", "scan [isra.0]", None, Part::Copy);
        check("main.main.func1", "main.main.func1", None, Part::Whole);
        check(".cold", ".cold", None, Part::Whole);
    }

    #[test]
    fn both_rust_schemes_lose_their_hash() {
        check(
            "_ZN4core3fmt5write17h0123456789abcdefE",
            "core::fmt::write",
            Some(Language::Rust),
            Part::Whole,
        );
        check(
            "_RNvNtCs1234_7mycrate3foo3bar",
            "mycrate::foo::bar",
            Some(Language::Rust),
            Part::Whole,
        );
    }
}
