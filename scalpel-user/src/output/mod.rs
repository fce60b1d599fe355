//! The two voices of the program: data on stdout, talk on stderr; and the files it leaves behind.
//!
//! Knows the terminal and the environment (`NO_COLOR`, `SUDO_UID`); must not know what is said.

mod file;
mod folder;
mod owner;
pub mod table;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::termios::tcgetwinsize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub use file::{
    Aside, FileError, give_to_caller, keep_old, open_private, suffixed, write_private,
    write_private_with,
};
pub use folder::PrivateFolder;
pub use owner::Owner;

/// Width of text that goes to a file or pipe.
const PIPE_WIDTH: usize = 120;

/// Where everything that the program says goes through.
#[derive(Clone, Debug)]
pub struct Output {
    level: i8,
    stdout: Stream,
    stderr: Stream,
}

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What is known of one of the two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Colour codes may be written.
    pub color: bool,
    /// It is a terminal.
    pub terminal: bool,
    /// Columns.
    pub width: usize,
}

impl Stream {
    /// Columns that are left behind an indent; without end where no terminal reads, which keeps one line a fact.
    pub const fn room(self, indent: usize) -> usize {
        if self.terminal {
            self.width.saturating_sub(indent)
        } else {
            usize::MAX
        }
    }
}

/// `text` in lines of at most `columns`, broken at spaces; a longer word is broken where it has to be, unless there is no
/// room for anything.
pub fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0usize;
    for word in text.split_inclusive(' ') {
        let wide = word.trim_end().width();
        if used > 0 && used.saturating_add(wide) > columns {
            lines.push(String::new());
            used = 0;
        }
        for letter in word.chars() {
            let wide = letter.width().unwrap_or(0);
            if columns >= LEAST_ROOM && letter != ' ' && used.saturating_add(wide) > columns {
                lines.push(String::new());
                used = 0;
            }
            lines
                .last_mut()
                .into_iter()
                .for_each(|line| line.push(letter));
            used += wide;
        }
    }
    lines
        .iter()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

/// Words are not broken for a narrower place.
const LEAST_ROOM: usize = 8;

impl Output {
    /// Looks at the terminal once. `level`: -1 quiet, 0 normal, 1 and 2 more.
    pub fn new(level: i8, color: When) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let stream = |terminal: bool, columns: Option<usize>| Stream {
            color: colored(color, terminal, no_color),
            terminal,
            width: columns.unwrap_or(PIPE_WIDTH),
        };
        let (out, err) = (io::stdout(), io::stderr());
        Self {
            level,
            stdout: stream(out.is_terminal(), columns(&out)),
            stderr: stream(err.is_terminal(), columns(&err)),
        }
    }

    /// What stdout can take.
    pub const fn stdout(&self) -> Stream {
        self.stdout
    }

    /// What stderr can take.
    pub const fn stderr(&self) -> Stream {
        self.stderr
    }

    /// How often `-v` was given; -1 for `-q`.
    pub const fn level(&self) -> i8 {
        self.level
    }

    /// Writes data to stdout. A reader that left is an error of kind `BrokenPipe`, which ends the program quietly.
    pub fn data(&self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(bytes.as_ref())?;
        out.flush()
    }

    /// Tells the user something about the work, on stderr; silent with `-q`.
    pub fn say(&self, text: &str) {
        if self.level >= 0 {
            to_stderr(text);
        }
    }

    /// As [`Output::say`], with `-v` only.
    pub fn detail(&self, text: &str) {
        if self.level >= 1 {
            to_stderr(text);
        }
    }

    /// Tells the user of something that may make the result wrong; also with `-q`.
    pub fn warn(&self, text: &str) {
        to_stderr(&format!(
            "{} {text}",
            self.stderr.paint("warning:", Paint::Yellow)
        ));
    }

    /// Reports why the work failed.
    pub fn error(&self, error: &anyhow::Error) {
        to_stderr(&format!(
            "{} {error:#}",
            self.stderr.paint("error:", Paint::Red)
        ));
    }

    /// A bar for work of known length, on a terminal; drawn nowhere else and not with `-q`.
    pub fn progress(&self, what: &'static str, length: u64) -> ProgressBar {
        if self.level < 0 || !self.stderr.terminal {
            return ProgressBar::hidden();
        }
        let bar =
            ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr_with_hz(10));
        let style = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {msg}");
        bar.set_style(style.unwrap_or_else(|_error| ProgressStyle::default_bar()));
        bar.set_prefix(what);
        bar.enable_steady_tick(Duration::from_millis(250));
        bar
    }
}

/// The colours in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// Failure.
    Red,
    /// Doubt.
    Yellow,
    /// Well.
    Green,
    /// Beside the point.
    Dim,
    /// Headings.
    Bold,
}

impl Stream {
    /// `text` in colour, if this stream takes it.
    pub fn paint(&self, text: &str, paint: Paint) -> String {
        if !self.color {
            return text.to_owned();
        }
        let code = match paint {
            Paint::Red => "1;31",
            Paint::Yellow => "1;33",
            Paint::Green => "32",
            Paint::Dim => "2",
            Paint::Bold => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Reports an error when there is no [`Output`] yet.
pub fn last_words(text: &str) {
    to_stderr(text);
}

/// A closed stderr must not stop a recording: what cannot be said is not said.
fn to_stderr(text: &str) {
    drop(writeln!(io::stderr().lock(), "{text}"));
}

const fn colored(color: When, terminal: bool, no_color: bool) -> bool {
    match color {
        When::Always => true,
        When::Never => false,
        When::Auto => terminal && !no_color,
    }
}

fn columns(stream: impl rustix::fd::AsFd) -> Option<usize> {
    let size = tcgetwinsize(stream).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_at_blanks_and_long_words_where_they_have_to_be() {
        assert_eq!(wrapped("", 10), [""]);
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(
            wrapped("a /very/long/path b", 8),
            ["a", "/very/lo", "ng/path", "b"]
        );
        assert_eq!(wrapped("漢字漢字 漢字漢", 9), ["漢字漢字", "漢字漢"]);
        assert_eq!(wrapped("one two", 0), ["one", "two"]);
        assert_eq!(wrapped("one two", usize::MAX), ["one two"]);
    }

    #[test]
    fn colour_is_for_terminals_unless_asked_otherwise() {
        assert!(colored(When::Auto, true, false));
        assert!(!colored(When::Auto, true, true));
        assert!(!colored(When::Auto, false, false));
        assert!(colored(When::Always, false, true));
        assert!(!colored(When::Never, true, false));
    }
}
