//! From the text of a script to the text that is run in its place, by insertion alone.
//!
//! ```text
//! text ─parse─▶ functions, insertions (without ids) ─ids─▶ rewritten text, edits ─parse again─▶ run, or the original
//! ```
//!
//! Pure: no Node.js, no segment. Nothing inserted contains a line break, so line numbers stay; [`Edits`] gives the columns
//! back. Text that already holds the helper's name is left alone, so that nothing is ever rewritten twice.
mod edits;
mod find;
mod names;
mod pieces;
#[cfg(test)]
mod tests;
mod units;
mod walk;

use oxc_allocator::Allocator;
use oxc_parser::Parser;
use oxc_span::SourceType;

pub use edits::Edits;
pub use find::{Found, Function, TopLevel};
pub use pieces::{HELPER, Ids, Mode};

/// How a text is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A script of its own, as for `vm.Script`.
    Script,
    /// The body of a function: `CommonJS`, `vm.compileFunction`.
    CommonJs,
    /// An ECMAScript module.
    Module,
}

/// A text and how it is to be read.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The text.
    pub text: &'a str,
    /// What it is.
    pub kind: Kind,
    /// Whether it has types.
    pub typescript: bool,
}

impl Source<'_> {
    fn source_type(self) -> SourceType {
        let kind = match self.kind {
            Kind::Script => SourceType::script(),
            Kind::CommonJs => SourceType::cjs(),
            Kind::Module => SourceType::mjs(),
        };
        kind.with_typescript(self.typescript)
    }

    fn parses(self) -> bool {
        let allocator = Allocator::default();
        let parsed = Parser::new(&allocator, self.text, self.source_type()).parse();
        !parsed.panicked && parsed.diagnostics.is_empty()
    }
}

/// Why a text is left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It names the helper: rewritten before, or a clash.
    NamesHelper,
    /// It is no JavaScript that the parser knows.
    Unreadable,
    /// It defines no function.
    NoFunction,
    /// The rewritten text would not parse.
    Broken,
}

/// A text that is run in place of another.
#[derive(Debug)]
pub struct Rewritten {
    /// The text.
    pub text: String,
    /// The way back.
    pub edits: Edits,
}

/// Finds the functions of `source` and where their events would stand.
pub fn find(source: Source<'_>) -> Result<Found, Left> {
    if source.text.contains(HELPER) {
        return Err(Left::NamesHelper);
    }
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, source.text, source.source_type()).parse();
    if parsed.panicked || !parsed.diagnostics.is_empty() {
        return Err(Left::Unreadable);
    }
    Ok(find::find(&parsed.program, source.text))
}

/// Writes events of `mode` into `source`, for the functions that have ids; with `alias` the helper is looked up once in
/// each outermost function, for contexts whose globals are slow.
pub fn rewrite(
    source: Source<'_>,
    found: &Found,
    ids: Ids<'_>,
    mode: Mode,
    alias: bool,
) -> Result<Rewritten, Left> {
    if found.functions.is_empty() && found.top_level.is_none() {
        return Err(Left::NoFunction);
    }
    let rewritten = pieces::render(source.text, found, ids, mode, alias);
    let again = Source {
        text: &rewritten.text,
        ..source
    };
    if again.parses() {
        Ok(rewritten)
    } else {
        Err(Left::Broken)
    }
}
