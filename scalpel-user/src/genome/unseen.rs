//! Blind spots that concern certain functions: those of a file, of a folder, or all of a language. They are kept as the
//! sentences that a reader sees, and read back from them, so that such a function is never said not to have run.

use scalpel_common::segment::unseen;

use super::BlindSpot;
use crate::catalog::Blindness;
use crate::function::Language;

/// What stands before the place in the sentence.
const FUNCTIONS: &str = "functions of ";
const ALL: &str = "any function";

/// Functions of which nobody knows whether they ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unseen {
    /// A file, or with a slash at its end a folder; `None` = whatever is of the language.
    pub(crate) path: Option<String>,
    /// Why.
    pub(crate) why: Blindness,
}

impl Unseen {
    /// What a probe says of a path (empty = the whole language), with a number of [`unseen`].
    pub(crate) fn told(path: &str, why: u64) -> Self {
        let why = match why {
            unseen::BEFORE => Blindness::Before,
            unseen::EXCLUDED => Blindness::Excluded,
            unseen::UNREAD => Blindness::Unread,
            _ => Blindness::Unwatched,
        };
        Self {
            path: (!path.is_empty()).then(|| path.to_owned()),
            why,
        }
    }

    /// The sentence that is kept.
    pub(crate) fn text(&self) -> String {
        let why = self.why.text();
        match &self.path {
            Some(path) => format!("{FUNCTIONS}{path}: {why}"),
            None => format!("{ALL}: {why}"),
        }
    }

    /// What a kept sentence says; `None` for one that says something else.
    fn of_text(text: &str) -> Option<Self> {
        let of_why = |why: &Blindness| {
            let place = text.strip_suffix(why.text())?.strip_suffix(": ")?;
            let path = match place.strip_prefix(FUNCTIONS) {
                Some(path) => Some(path.to_owned()),
                None if place == ALL => None,
                None => return None,
            };
            Some(Self { path, why: *why })
        };
        Blindness::ALL.iter().find_map(of_why)
    }

    /// Those among blind spots, each with its language.
    pub(crate) fn among(spots: &[BlindSpot]) -> impl Iterator<Item = (Language, Self)> {
        spots.iter().filter_map(|spot| {
            let language = match spot.probe.as_str() {
                "python" => Language::Python,
                "node" => Language::JavaScript,
                "ruby" => Language::Ruby,
                "php" => Language::Php,
                "java" => Language::Java,
                "dotnet" => Language::Dotnet,
                "lua" => Language::Lua,
                _ => return None,
            };
            Some((language, Self::of_text(&spot.what)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_sentence_says_again_what_it_was_made_of() {
        for why in Blindness::ALL {
            for path in [None, Some("/srv/a: b/app.py"), Some("/usr/lib/python3/")] {
                let unseen = Unseen {
                    path: path.map(str::to_owned),
                    why: *why,
                };
                assert_eq!(Unseen::of_text(&unseen.text()), Some(unseen));
            }
        }
        assert_eq!(Unseen::of_text("subinterpreters"), None);
        assert_eq!(
            Unseen::of_text("functions of C extensions, unless asked for"),
            None
        );
    }

    #[test]
    fn what_a_probe_says_has_a_path_or_is_the_whole_language() {
        let told = |path, why| {
            let Unseen { path, why } = Unseen::told(path, why);
            (path, why)
        };
        assert_eq!(told("", unseen::UNWATCHED), (None, Blindness::Unwatched));
        let before = (Some("/app.py".into()), Blindness::Before);
        assert_eq!(told("/app.py", unseen::BEFORE), before);
        assert_eq!(
            told("", 99).1,
            Blindness::Unwatched,
            "what is new is no less unseen"
        );
    }
}
