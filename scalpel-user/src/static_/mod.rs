//! The static side: what exists in a source tree or an executable, whether it ever runs or not.
//!
//! One file a language says what its definitions are and what names stand for; `walk` is common to all of them, `facts`
//! is what one text tells by itself, `link` finds the calls between files, `tree` reads a folder. `native` reads
//! executables. Must not know what ran.

mod c;
mod csharp;
mod dialect;
mod facts;
mod go;
mod java;
mod javascript;
mod link;
mod lua;
mod native;
mod note;
mod php;
mod python;
mod reused;
mod ruby;
mod rust;
mod text;
mod tree;
mod walk;
mod zig;

pub use native::{NativeError, of_image};
pub use tree::{Built, build, of_text};

#[cfg(test)]
mod tests;
