//! The kinds of things in a catalog, with the stable words by which files and JSON name them.

macro_rules! words {
    ($($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ })+) => {
        $($(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Stable word in files and JSON.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// Reverse of [`Self::word`].
            pub fn of_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|it| it.word() == word)
            }
        })+
    };
}

words! {
    /// What a definition is.
    Kind {
        /// A function.
        Function = "function",
        /// A function of a class, type, trait or interface.
        Method = "method",
        /// A constructor that the source spells out.
        Constructor = "constructor",
        /// The constructor that a class has although the source has none; it stands where its class stands.
        ImplicitConstructor = "implicit-constructor",
        /// A destructor.
        Destructor = "destructor",
        /// A getter.
        Getter = "getter",
        /// A setter.
        Setter = "setter",
        /// A function without a declaration: arrow, lambda, function literal, closure.
        Closure = "closure",
        /// A block that runs once when its class is made.
        StaticBlock = "static-block",
        /// The values of a class's fields, which run as a function of their own.
        FieldInitialiser = "field-initialiser",
        /// A class whose body or making runs as a function of its own.
        Class = "class",
        /// An enum that becomes a function.
        Enum = "enum",
        /// A namespace that becomes a function.
        Namespace = "namespace",
        /// The top level of a file.
        Module = "module",
        /// A comprehension or generator expression, which some versions run as a function.
        Comprehension = "comprehension",
        /// A function of an executable.
        Native = "native",
        /// A function that an executable takes from another: known by name only.
        Import = "import",
    }
    /// What proves an edge, or makes it possible.
    How {
        /// The name is that of a definition in a scope around the call.
        Scope = "scope",
        /// The name was imported from a file of the source tree.
        Import = "import",
        /// A method of the caller's own object: `self`, `this`, a receiver.
        Receiver = "receiver",
        /// The type is written out: `Class.method()`, `Type::new()`, `new Class()`.
        Type = "type",
        /// The only definition that the language's rules allow for this name.
        Unique = "unique",
        /// A call instruction.
        Direct = "direct-call",
        /// A jump out of the function.
        TailJump = "tail-jump",
        /// A call instruction to the stub of an imported function.
        Plt = "plt",
        /// Possible only: its address is taken by the caller.
        AddressTaken = "address-taken",
        /// Possible only: it stands in a table of virtual functions that the caller installs.
        Vtable = "vtable",
    }
    /// What told of a function of an executable.
    #[derive(Default)]
    FoundBy {
        /// The symbol table.
        #[default]
        Symbols = "symbols",
        /// Debug information.
        Dwarf = "dwarf",
        /// The unwind table.
        Unwind = "eh-frame",
        /// Go's table of functions.
        Pclntab = "gopclntab",
        /// The table of imported functions.
        Plt = "plt",
    }
    /// What a stretch of machine code is to its definition.
    PieceKind {
        /// Another range of the same function.
        Range = "range",
        /// A part that was split off as rarely run.
        Cold = "cold",
        /// A copy inlined into another function.
        Inlined = "inlined",
    }
    /// Why something is not known.
    GapKind {
        /// A part of the text that could not be parsed: definitions in it may be missing.
        SyntaxError = "syntax-error",
        /// Larger than the limit.
        TooLarge = "too-large",
        /// Nested deeper than the limit.
        TooDeep = "too-deep",
        /// The parser ran out of its time.
        TimedOut = "timed-out",
        /// Not text in UTF-8.
        NotUtf8 = "not-utf-8",
        /// Could not be read.
        Unreadable = "unreadable",
        /// The file has no symbol table.
        NoSymbols = "no-symbols",
        /// The file has no debug information.
        NoDebugInfo = "no-debug-info",
        /// A part of the executable that could not be read.
        BadTable = "bad-table",
        /// Machine code that could not be decoded, or of another processor.
        NoDisassembly = "no-disassembly",
    }
}

impl Kind {
    /// Whether it counts as a function that a user wrote: the denominator of match rates. Module and class bodies,
    /// comprehensions and what a compiler adds are counted apart.
    pub const fn is_written(self) -> bool {
        matches!(
            self,
            Self::Function
                | Self::Method
                | Self::Constructor
                | Self::Destructor
                | Self::Getter
                | Self::Setter
                | Self::Closure
                | Self::StaticBlock
                | Self::Native
        )
    }
}

impl How {
    /// Whether the call is only possible: no proof that it is ever made.
    pub const fn is_possible(self) -> bool {
        matches!(self, Self::AddressTaken | Self::Vtable)
    }
}
