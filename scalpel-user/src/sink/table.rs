//! Rows as a table for people: as many columns as the page and the recording have, the sorted one in bold.

use std::io::{self, Write};

use super::grid::{self, Cell, Column, Side};
use super::numbers::{Number, estimated, of};
use super::style::Tone;
use super::units::{self, NOTHING};
use super::{Columns, Page, text};
use crate::report::function::State;
use crate::report::select::{LeftOut, Whole};
use crate::report::{FunctionRow, GroupRow, Measures, Sort};

/// A table: rows in their order, and what is not shown of them.
#[derive(Debug)]
pub struct Table<'a> {
    /// Heading of the name column: `FUNCTION`.
    pub what: &'a str,
    /// Rows.
    pub rows: Vec<TableRow<'a>>,
    /// Rows that are not shown.
    pub left_out: LeftOut,
    /// Which numbers there are.
    pub columns: Columns,
    /// Order of the rows.
    pub sort: Sort,
    /// What the shares are shares of.
    pub whole: Option<Whole>,
}

/// One row.
#[derive(Debug)]
pub struct TableRow<'a> {
    name: String,
    module: String,
    note: String,
    doubtful: bool,
    measures: &'a Measures,
}

impl<'a> TableRow<'a> {
    /// A function.
    pub fn function(row: &'a FunctionRow) -> Self {
        Self {
            name: text::clean(&row.name).into_owned(),
            module: format!(" [{}]", text::clean(&row.module)),
            note: note(row),
            doubtful: row.unknown.is_some(),
            measures: &row.measures,
        }
    }

    /// A module or thread.
    pub fn group(row: &'a GroupRow) -> Self {
        let name = text::clean(&row.name).into_owned();
        Self {
            name,
            module: String::new(),
            note: String::new(),
            doubtful: false,
            measures: &row.measures,
        }
    }
}

/// The one thing about a function that its numbers do not say.
fn note(row: &FunctionRow) -> String {
    match row.state {
        State::NeverRan => "never ran".into(),
        State::NotVisible => "not watched".into(),
        State::Ran => match (row.unknown, row.exit) {
            (Some(reason), _) => format!("no name: {reason}"),
            (None, "entry") => "entries only".into(),
            (None, "none") => "not probed".into(),
            _ => String::new(),
        },
    }
}

/// Writes the table, what was left out of it, and what its marks mean.
pub fn write(table: &Table<'_>, page: Page, out: &mut dyn Write) -> io::Result<()> {
    let mut columns = chosen(table, page);
    let used: usize = columns
        .iter()
        .map(|column| column.gap + column.width())
        .sum();
    columns.push(names(table, page, page.width.saturating_sub(used + 2)));
    grid::write(&columns, page, out)?;
    write_footer(table, &columns, page, out)
}

/// The columns of numbers that have something in them, the important ones as long as they leave room for names.
fn chosen(table: &Table<'_>, page: Page) -> Vec<Column> {
    let sorted = |number: &Number| number.sort == Some(table.sort);
    let (set, importance, all) = of(table.columns);
    // What rows are sorted by is shown, whichever set it is of.
    let of_others = all
        .iter()
        .filter(|number| sorted(number) && !set.iter().any(sorted));
    let mut numbers: Vec<(usize, &Number)> = of_others.chain(set).enumerate().collect();
    numbers.retain(|(_, number)| {
        table
            .rows
            .iter()
            .any(|row| (number.show)(row.measures).is_some_and(|text| !text.is_empty()))
    });
    numbers.sort_by_key(|(_, number)| {
        (
            !sorted(number),
            importance
                .iter()
                .position(|heading| *heading == number.heading),
        )
    });
    let mut room = page.width.saturating_sub((page.width / 2).min(36));
    let mut chosen: Vec<(usize, Vec<Column>)> = Vec::new();
    for (place, number) in numbers {
        let columns = number_columns(table, number);
        let width: usize = columns
            .iter()
            .map(|column| column.gap + column.width())
            .sum();
        if width <= room || chosen.is_empty() {
            room = room.saturating_sub(width);
            chosen.push((place, columns));
        }
    }
    chosen.sort_by_key(|(place, _)| *place);
    chosen
        .into_iter()
        .flat_map(|(_, columns)| columns)
        .collect()
}

/// A number's column, with the share beside the sorted one and the error bars beside calls.
fn number_columns(table: &Table<'_>, number: &Number) -> Vec<Column> {
    let sorted = number.sort == Some(table.sort);
    let tone = if sorted { Tone::Strong } else { Tone::Plain };
    let cell = |row: &TableRow<'_>| match (number.show)(row.measures) {
        Some(text) if text.starts_with('~') => Cell::new(text, Tone::Uncertain),
        Some(text) => Cell::new(text, tone),
        // The row stands where its estimate puts it: that has to be seen.
        None => match table
            .sort
            .value(row.measures)
            .filter(|&ns| sorted && ns > 0)
        {
            Some(ns) => Cell::new(estimated(ns), Tone::Uncertain),
            None => Cell::new(NOTHING, Tone::Faint),
        },
    };
    let mut columns = vec![column(number.heading, Side::Right, tone, table.cells(cell))];
    if let Some(whole) = table.whole.filter(|_| sorted) {
        let share = |row: &TableRow<'_>| {
            Cell::new(
                whole
                    .share(table.sort, row.measures)
                    .map(units::percent)
                    .unwrap_or_default(),
                Tone::Faint,
            )
        };
        columns.push(column("", Side::Right, Tone::Plain, table.cells(share)));
    }
    if number.sort == Some(Sort::Calls) {
        let marks = table.cells(|row| Cell::new(error_bar(row.measures), Tone::Uncertain));
        if marks.iter().any(|mark| !mark.is_empty()) {
            columns.push(Column {
                gap: 1,
                ..column("", Side::Left, Tone::Plain, marks)
            });
        }
    }
    columns
}

impl Table<'_> {
    fn cells(&self, cell: impl Fn(&TableRow<'_>) -> Cell) -> Vec<Cell> {
        self.rows.iter().map(cell).collect()
    }
}

fn column(heading: &str, side: Side, tone: Tone, cells: Vec<Cell>) -> Column {
    let tone = if tone == Tone::Strong {
        Tone::Strong
    } else {
        Tone::Faint
    };
    Column {
        heading: Cell::new(heading, tone),
        side,
        gap: 2,
        cells,
    }
}

/// `+12`: up to 12 calls more; `+`: a lower bound; nothing: exact.
fn error_bar(m: &Measures) -> String {
    match (m.calls, m.calls_at_most) {
        (Some(calls), Some(most)) if most > calls => format!("+{}", units::count(most - calls)),
        (Some(_), None) => "+".into(),
        _ => String::new(),
    }
}

fn names(table: &Table<'_>, page: Page, room: usize) -> Column {
    let with_notes = page.width >= 72;
    let cell = |row: &TableRow<'_>| {
        let note = if with_notes && !row.note.is_empty() {
            format!("  {}", row.note)
        } else {
            String::new()
        };
        let left = room.saturating_sub(text::width(&note));
        // The module goes where there is no room for both.
        let fits = text::width(&row.name) + text::width(&row.module) <= left;
        let module = if fits { row.module.as_str() } else { "" };
        let name = text::shorten(&row.name, left.saturating_sub(text::width(module)));
        let tone = if row.doubtful {
            Tone::Uncertain
        } else {
            Tone::Plain
        };
        Cell::new(name, tone)
            .and(module, Tone::Faint)
            .and(note, Tone::Faint)
    };
    column(table.what, Side::Left, Tone::Faint, table.cells(cell))
}

fn write_footer(
    table: &Table<'_>,
    columns: &[Column],
    page: Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    let numbers = columns.split_last().map_or(columns, |(_, numbers)| numbers);
    let any = |is: fn(&str) -> bool| {
        numbers
            .iter()
            .flat_map(|column| &column.cells)
            .any(|cell| is(cell.text()))
    };
    type Mark = (fn(&str) -> bool, &'static str);
    let from_samples = !table.rows.iter().any(|row| row.measures.cpu_estimated);
    let tilde = if from_samples {
        "~ estimated from samples"
    } else {
        "~ estimated"
    };
    let marks: [Mark; 4] = [
        (|text| text == "+", "+ or more"),
        (
            |text| text.len() > 1 && text.starts_with('+'),
            "+N up to N more",
        ),
        (|text| text.starts_with('~'), tilde),
        (|text| text == NOTHING, "- not measured"),
    ];
    let legend: Vec<String> = marks
        .iter()
        .filter(|(is, _)| any(*is))
        .map(|(_, meaning)| (*meaning).to_owned())
        .collect();
    for pieces in [table.left_out.pieces(), legend] {
        for line in text::wrap_pieces(&pieces, "   ", page.width.saturating_sub(2)) {
            writeln!(out, "  {}", page.style.paint(Tone::Faint, line))?;
        }
    }
    Ok(())
}
