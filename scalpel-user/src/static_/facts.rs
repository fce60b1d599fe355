//! What the text of one file tells by itself, before any other file is looked at: its definitions, its scopes, what
//! names stand for in them, and the calls. A function of the text alone, so that it can be kept for the next time.

use serde::{Deserialize, Serialize};

use crate::catalog::{Flags, Gap, Kind, Span};

/// Changes whenever the same text gives other facts or another order of definitions.
pub(super) const FACTS_VERSION: u32 = 3;

/// A name, as a place in [`Facts::names`].
pub(super) type Name = u32;

/// A definition, by its place in the file.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) parent: Option<u32>,
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) qualified: String,
    pub(super) flags: Flags,
    pub(super) body_hash: u64,
    pub(super) span: Span,
}

/// Everything that one text tells.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) definitions: Vec<Found>,
    pub(super) gaps: Vec<Gap>,
    pub(super) lines: u32,
    pub(super) facts: Facts,
}

/// What is needed to find the calls of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Facts {
    /// Names that the others mention.
    pub(super) names: Vec<Box<str>>,
    /// Scope 0 is the file's.
    pub(super) scopes: Vec<Scope>,
    /// What names stand for.
    pub(super) bindings: Vec<Binding>,
    /// Classes, structs, traits, inline modules: scopes with a name whose members are reached through it.
    pub(super) classes: Vec<Class>,
    /// Calls, in the order of the text.
    pub(super) calls: Vec<Call>,
    /// Modules all of whose names are visible in the file.
    pub(super) globs: Vec<Vec<Name>>,
    /// Names under which other files see things, if the language has a list of them.
    pub(super) exports: Vec<Export>,
    /// Members that are assigned on objects of which nothing is known: no method of such a name is certain.
    pub(super) assigned: Vec<Name>,
    /// Names that are assigned, with the scope in which: what they are bound to may be anything.
    pub(super) reassigned: Vec<(u32, Name)>,
    /// The package that the file says to belong to (Go, Java).
    pub(super) package: Option<Name>,
    /// Definitions that no other file means by their name alone.
    pub(super) private: Vec<u32>,
    /// Arguments that each definition takes: least and most; empty if the language does not tell.
    pub(super) arity: Vec<(u32, u8, u8)>,
}

/// A stretch of text in which names are looked up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Scope {
    pub(super) parent: Option<u32>,
    /// A class's own scope: its names are reached through the class, and by bare name in some languages only.
    pub(super) class: Option<u32>,
    /// The definition whose code runs in it.
    pub(super) definition: Option<u32>,
}

/// A name in a scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Binding {
    pub(super) scope: u32,
    pub(super) name: Name,
    pub(super) what: What,
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum What {
    /// A definition of this file.
    Definition(u32),
    /// A class of this file.
    Class(u32),
    /// An object of a class of this file: `self`, `this`.
    Instance(u32),
    /// The class above a class of this file: `super`.
    Base(u32),
    /// An object of the class that the path names.
    Typed(Vec<Name>),
    /// A module, or something in it.
    Import(Vec<Name>),
    /// Another name for what the path leads to from here.
    Local(Vec<Name>),
    /// Anything else: a variable, a parameter, or what is assigned twice.
    Opaque,
}

/// A class or another named scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Class {
    pub(super) name: Name,
    pub(super) scope: u32,
    /// Paths of what it extends.
    pub(super) bases: Vec<Vec<Name>>,
    /// What runs when an object is made.
    pub(super) constructor: Option<u32>,
    /// What runs when neither it nor a class above spells a constructor out.
    pub(super) implicit: Option<u32>,
    /// Something in its head is not known, so that it may have members that are not seen.
    pub(super) open: bool,
    /// A module or namespace.
    pub(super) module: bool,
    /// Methods that a type has by a trait.
    pub(super) of_trait: bool,
}

/// A call site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Call {
    pub(super) scope: u32,
    pub(super) byte: u32,
    pub(super) line: u32,
    pub(super) column: u32,
    /// How many arguments; 255 = not told.
    pub(super) arguments: u8,
    /// The names of the callee, outermost first; empty = not a path of names.
    pub(super) path: Vec<Name>,
    /// The function that is written at the call itself.
    pub(super) definition: Option<u32>,
}

/// A name that other files see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Export {
    /// Empty name = all names of the module that `what` imports.
    pub(super) name: Name,
    pub(super) what: What,
}
