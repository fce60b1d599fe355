//! What a function of a run is among what exists, and what became of what exists: the verdicts that a genome keeps, with
//! the stable words by which tables and JSON name them. How they are reached is no concern of theirs.

use std::collections::{BTreeMap, BTreeSet};

use super::{DefId, FileId};
use crate::event::FuncId;

macro_rules! words {
    ($($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal, $text:literal;)+ })+) => {
        $($(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Reverse of [`Self::word`].
            pub fn of_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|it| it.word() == word)
            }

            /// Stable word in files and JSON.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// For people.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        })+
    };
}

words! {
    /// Why a function that ran was not found among what exists.
    Why {
        /// A bundler or compiler made it: nothing in it has an original.
        Generated = "generated", "made by a compiler or bundler";
        /// Made at run time from text that is no file.
        Eval = "eval", "made at run time: eval, exec, new Function";
        /// Code of a JIT compiler.
        Jit = "jit", "code of a JIT compiler";
        /// Part of an installed package.
        Vendored = "vendored", "part of an installed package";
        /// Part of the language's own library.
        StandardLibrary = "standard-library", "part of the language's own library";
        /// The kernel, the vDSO, a built-in function.
        System = "system", "kernel, or built into the runtime";
        /// Its file is outside of what was looked at.
        OutOfTree = "out-of-tree", "outside of the source tree";
        /// Its file is in the source tree and was not looked at: ignored, too large, of no language that is known.
        NotListed = "not-listed", "its file is in the source tree, and is not among what was read";
        /// The file is another one than the one that ran.
        Edited = "edited", "its file was edited since";
        /// Its original cannot be compared with what exists.
        NotCompared = "not-compared", "its original can not be shown to be the one that was built";
        /// Several definitions answer to it.
        Ambiguous = "ambiguous", "several functions answer to its place";
        /// The map has nothing at its start.
        NoMapping = "no-mapping", "the source map has nothing at its start";
        /// Its file is known and has no such function.
        NotFound = "not-found", "its file has no such function there";
        /// It has no place: nothing was told but a number or an address.
        NoPlace = "no-place", "nothing tells where it stands";
        /// Nobody has looked for it among what exists.
        NotMatched = "not-matched", "it was never looked for among what exists";
    }
    /// Why it is not known whether a function ran.
    Blindness {
        /// No probe for its language was in the program.
        NoProbe = "no-probe", "no probe of its language was in the program";
        /// It was sampled only: what ran shortly is not seen.
        SamplesOnly = "samples-only", "it was sampled only";
        /// It was left out, refused, or switched off.
        Excluded = "excluded", "left out by a filter or a limit, or refused";
        /// The probe cannot see such a thing.
        BlindSpot = "blind-spot", "the probe cannot see such a thing";
        /// The file was edited since the run.
        Edited = "edited", "its file was edited since";
        /// Its code is part of other functions' code.
        Inlined = "inlined", "inlined into others";
        /// It stands in a part of the text that has a syntax error.
        Doubtful = "doubtful", "it stands in text that could not be parsed";
        /// No executable was looked at.
        NoExecutable = "no-executable", "no executable of it was looked at";
        /// An executable may have it, and has no debug information of its file.
        NoLines = "no-lines", "the executable has no debug information of its file: compile it with -g";
        /// A function that ran may be it.
        Ambiguous = "ambiguous", "something ran that may be it";
        /// It may have run before anything was watched.
        Before = "before", "its text was loaded before it was watched";
        /// The probe let its text run as it is.
        Unread = "unread", "its probe could not read or rewrite the text";
        /// It may have run in another process or interpreter, or in a moment of which nothing is known.
        Unwatched = "unwatched", "code of its language ran where or while nothing was watched";
    }
    /// Why a function of the source is not in what was built.
    Absence {
        /// The executable has no code of it: it was left out, or folded away.
        NoCode = "no-code", "the executable has no code of it";
        /// The bundle has no text of it: it was left out, or folded away.
        NoText = "no-text", "the bundle has no text of it";
    }
}

impl Why {
    /// Whether a function that was not found for this reason counts as written by the user, as far as can be told
    /// without finding it: what is not found for want of a map or a place does, and so does what is in the tree and was
    /// not read.
    pub const fn counts(self) -> bool {
        matches!(
            self,
            Self::NotListed
                | Self::Edited
                | Self::NotCompared
                | Self::Ambiguous
                | Self::NoMapping
                | Self::NotFound
                | Self::NoPlace
                | Self::NotMatched
        )
    }
}

/// What a function of the run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This one.
    Matched(DefId),
    /// None that can be named, and why not.
    Unmatched(Why),
}

impl Outcome {
    /// The definition, if it was found.
    pub const fn definition(self) -> Option<DefId> {
        match self {
            Self::Matched(id) => Some(id),
            Self::Unmatched(_) => None,
        }
    }
}

/// What became of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It ran.
    Ran,
    /// It was watched all the time, and never ran.
    NeverRan,
    /// Whether it ran could not be seen.
    NotVisible(Blindness),
    /// It is not in what was built.
    NotInBuild(Absence),
}

impl State {
    /// Stable words of the state and of the reason for it.
    pub const fn words(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Ran => ("ran", None),
            Self::NeverRan => ("never-ran", None),
            Self::NotVisible(why) => ("not-visible", Some(why.word())),
            Self::NotInBuild(why) => ("not-in-build", Some(why.word())),
        }
    }
}

/// What was found when a run was laid over a catalog: kept with both, because the source maps that it took may be gone
/// when somebody reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matches {
    /// What each function of the run is. One that is not here was never looked for.
    pub outcomes: BTreeMap<FuncId, Outcome>,
    /// Originals of bundles that ran.
    pub bundled: BTreeSet<FileId>,
    /// Definitions of them that begin as functions in such a bundle.
    pub built: BTreeSet<DefId>,
    /// Definitions of them of which there is code in such a bundle, as a function or as a part of others.
    pub folded: BTreeSet<DefId>,
    /// Definitions that something may be that ran and could not be told.
    pub maybe: BTreeSet<DefId>,
    /// Of each definition, by its number: for those who read the file with other tools. It follows from all the rest, and is
    /// not read back; empty where nobody derived it.
    pub states: Vec<State>,
}

impl Matches {
    /// Whether nobody has looked for anything.
    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }
}
