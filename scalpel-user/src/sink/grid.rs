//! Columns that line up: numbers to the right, names to the left, nothing behind the last one.

use std::io::{self, Write};

use super::style::Tone;
use super::{Page, text};

/// What stands in one line of a column: pieces of text, each in its tone.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pieces: Vec<(String, Tone)>,
}

impl Cell {
    pub(super) fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self::default().and(text, tone)
    }

    /// The cell with one more piece.
    pub(super) fn and(mut self, text: impl Into<String>, tone: Tone) -> Self {
        self.pieces.push((text.into(), tone));
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.iter().all(|(text, _)| text.is_empty())
    }

    /// Text of the first piece.
    pub(super) fn text(&self) -> &str {
        self.pieces.first().map_or("", |(text, _)| text)
    }

    fn width(&self) -> usize {
        self.pieces.iter().map(|(text, _)| text::width(text)).sum()
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
            .map(Cell::width)
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
        let cell = cell.filter(|cell| !cell.is_empty());
        let free = width.saturating_sub(cell.map_or(0, Cell::width));
        owed += column.gap + if column.side == Side::Right { free } else { 0 };
        if let Some(cell) = cell {
            write!(out, "{:owed$}", "")?;
            for (text, tone) in cell.pieces.iter().filter(|(text, _)| !text.is_empty()) {
                write!(out, "{}", page.style.paint(*tone, text))?;
            }
            owed = 0;
        }
        owed += if column.side == Side::Left { free } else { 0 };
    }
    writeln!(out)
}
