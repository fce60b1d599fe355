//! Columns that line up: numbers to the right, names to the left, nothing behind the last one.

use std::io::{self, Write};

use super::style::Tone;
use super::{Page, text};

/// One piece of text in a column.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) tone: Tone,
}

impl Cell {
    pub(super) fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self {
            text: text.into(),
            tone,
        }
    }
}

/// Which side of its column a cell stands at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// A column with its heading; all columns of a grid have the same number of cells.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) heading: Cell,
    pub(super) side: Side,
    /// Spaces before it.
    pub(super) gap: usize,
    pub(super) cells: Vec<Cell>,
}

impl Column {
    /// Columns it takes, without its gap.
    pub(super) fn width(&self) -> usize {
        self.cells
            .iter()
            .chain([&self.heading])
            .map(|cell| text::width(&cell.text))
            .max()
            .unwrap_or(0)
    }
}

/// Writes the columns side by side, a line a cell.
pub(super) fn write(columns: &[Column], page: Page, out: &mut dyn Write) -> io::Result<()> {
    let widths: Vec<usize> = columns.iter().map(Column::width).collect();
    let lines = columns.first().map_or(0, |column| column.cells.len());
    write_line(
        columns.iter().map(|column| Some(&column.heading)),
        columns,
        &widths,
        page,
        out,
    )?;
    for at in 0..lines {
        write_line(
            columns.iter().map(|column| column.cells.get(at)),
            columns,
            &widths,
            page,
            out,
        )?;
    }
    Ok(())
}

fn write_line<'a>(
    cells: impl Iterator<Item = Option<&'a Cell>>,
    columns: &[Column],
    widths: &[usize],
    page: Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    // Spaces are owed until something follows them: no line ends in blanks.
    let mut owed = 0;
    for ((cell, column), width) in cells.zip(columns).zip(widths) {
        let (text, tone) = cell.map_or(("", Tone::Plain), |cell| (cell.text.as_str(), cell.tone));
        let free = width.saturating_sub(text::width(text));
        owed += column.gap + if column.side == Side::Right { free } else { 0 };
        if !text.is_empty() {
            write!(out, "{:owed$}{}", "", page.style.paint(tone, text))?;
            owed = 0;
        }
        owed += if column.side == Side::Left { free } else { 0 };
    }
    writeln!(out)
}
