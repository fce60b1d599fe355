//! Reasons, with the stable words by which tables and JSON name them.

macro_rules! words {
    ($($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal, $text:literal;)+ })+) => {
        $($(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
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
        /// A function that ran may be it.
        Ambiguous = "ambiguous", "something ran that may be it";
    }
    /// Why a function of the source is not in what was built.
    Absence {
        /// The executable has no code of it: it was left out, or folded away.
        NoCode = "no-code", "the executable has no code of it";
        /// The bundle has no text of it: it was left out, or folded away.
        NoText = "no-text", "the bundle has no text of it";
    }
}
