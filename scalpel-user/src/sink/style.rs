//! Colours with a meaning, and plain text where there are none.

use std::fmt;

/// Whether colours may be written; decided by who knows the terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Write ANSI colours.
    pub color: bool,
}

/// What a piece of text is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Ordinary.
    #[default]
    Plain,
    /// What the reader looks for: the sorted column, a heading.
    Strong,
    /// Less important: modules, what was not measured.
    Faint,
    /// A number that is a bound or an estimate.
    Uncertain,
    /// Something is wrong.
    Bad,
}

impl Tone {
    /// Select Graphic Rendition code. Blue-yellow and bold differ for every kind of colour sight.
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "1",
            Self::Faint => "2",
            Self::Uncertain => "33",
            Self::Bad => "1;31",
        }
    }
}

impl Style {
    /// `text` in `tone`.
    pub const fn paint<T: fmt::Display>(self, tone: Tone, text: T) -> Painted<T> {
        Painted {
            text,
            code: if self.color { tone.code() } else { "" },
        }
    }
}

/// Text with its colour, to be written once.
#[derive(Clone, Copy, Debug)]
pub struct Painted<T> {
    text: T,
    code: &'static str,
}

impl<T: fmt::Display> fmt::Display for Painted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            "" => self.text.fmt(f),
            code => write!(f, "\x1b[{code}m{}\x1b[0m", self.text),
        }
    }
}
