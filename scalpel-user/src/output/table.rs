//! Plain tables: no borders, so that they can be cut, sorted and searched.

use std::fmt;

use comfy_table::{CellAlignment, ContentArrangement, Row, presets::NOTHING};

use super::{Paint, Stream};

/// Which side a column sticks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table in the making. On a terminal long cells are wrapped to its width; elsewhere each row is one line.
#[derive(Debug)]
pub struct Table {
    table: comfy_table::Table,
    stream: Stream,
}

impl Table {
    /// A table with these columns.
    pub fn new(columns: &[(&str, Align)], stream: Stream) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING);
        table.set_header(Row::from(
            columns.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ));
        if stream.terminal {
            table.set_content_arrangement(ContentArrangement::Dynamic);
            table.set_width(u16::try_from(stream.width).unwrap_or(u16::MAX));
        }
        for (column, (_, align)) in table.column_iter_mut().zip(columns) {
            column.set_padding((0, 2));
            column.set_cell_alignment(match align {
                Align::Left => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            });
        }
        Self { table, stream }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.table
            .add_row(Row::from(cells.into_iter().collect::<Vec<_>>()));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.table.to_string();
        let mut lines = text.lines().map(str::trim_end);
        // Coloured only here: colour codes in a cell would count as width.
        if let Some(header) = lines.next() {
            writeln!(f, "{}", self.stream.paint(header, Paint::Bold))?;
        }
        lines.try_for_each(|line| writeln!(f, "{line}"))
    }
}
