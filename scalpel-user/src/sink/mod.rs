//! Ways out: one file a form. Each writes what a report says to a writer, and never measures, sorts or judges.
//!
//! Pure: width and colours come in as arguments, the writer decides where it goes.

pub mod choice;
pub mod csv;
pub mod doubts;
pub mod export;
mod grid;
pub mod head;
pub mod html;
pub mod json;
pub mod kept;
pub mod never;
mod numbers;
pub mod returned;
pub mod style;
pub mod summary;
pub mod table;
pub mod text;
pub mod timeline;
pub mod top;
pub mod tree;
pub mod units;

pub use choice::{By, Choice, Columns, Form};
pub use style::{Style, Tone};

/// The page that text is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Columns.
    pub width: usize,
    /// Colours.
    pub style: Style,
}

impl Page {
    /// As wide as what will show it, in colour if that shows colours.
    pub const fn new(width: usize, color: bool) -> Self {
        let style = Style { color };
        Self { width, style }
    }
}

#[cfg(test)]
mod tests;
