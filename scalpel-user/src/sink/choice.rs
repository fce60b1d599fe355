//! What a reader asks for, written in the form he asks for.

use std::io::{self, Write};

use super::table::{Table, TableRow};
use super::tree::{View, Way};
use super::{Page, csv, head, json, kept, returned, table, tree};
use crate::event::FuncId;
use crate::function::FunctionInfo;
use crate::genome::Genome;
use crate::report::select::{LeftOut, Sortable, Whole};
use crate::report::{GroupRow, Report, Sort, group, process, select};

/// The form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Rows for people.
    Table,
    /// A call tree for people.
    Tree(Way),
    /// One JSON object.
    Json,
    /// CSV.
    Csv,
}

/// What a row stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// A function.
    #[default]
    Function,
    /// A program or library.
    Module,
    /// A thread.
    Thread,
    /// A process.
    Process,
}

/// Which numbers a table has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Columns {
    /// Sums of calls and times.
    #[default]
    Usual,
    /// What single calls took.
    PerCall,
}

/// What is wanted of a genome.
pub struct Choice<'a> {
    /// Form.
    pub form: Form,
    /// Rows of a table or CSV.
    pub by: By,
    /// Numbers of a table.
    pub columns: Columns,
    /// Order; `None` = self CPU time, or calls where no time is known.
    pub sort: Option<Sort>,
    /// Most rows or nodes for people, 0 = all. JSON and CSV are always whole.
    pub limit: usize,
    /// Show below a table what its functions returned.
    pub returned: bool,
    /// Only these functions.
    pub func: Option<&'a dyn Fn(&FunctionInfo) -> bool>,
    /// Only functions that were on a stack: the genome was cut to some processes.
    pub only_seen: bool,
    /// Share of lost events (0 to 1) above which loss is more than accepted.
    pub max_loss: f64,
}

/// Writes `genome` as `choice` wants it.
pub fn write(
    genome: &Genome,
    choice: &Choice<'_>,
    page: Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut report = Report::of(genome, choice.max_loss);
    let seen = choice.only_seen.then(|| process::seen(genome));
    if seen.is_some() || choice.func.is_some() {
        report.retain(genome, &|id, info| {
            seen.as_ref().is_none_or(|seen| seen.contains(&id))
                && choice.func.is_none_or(|wanted| wanted(info))
        });
    }
    match choice.form {
        Form::Json => json::write(&report, out),
        Form::Csv => write_csv(genome, report, choice, out),
        Form::Table => {
            head::write(&report, page, out)?;
            kept::write(&report.triggers, &report.kept, choice.limit, page, out)?;
            write_table(genome, report, choice, page, out)
        }
        Form::Tree(way) => {
            head::write(&report, page, out)?;
            let wanted = choice.func.map(|wanted| {
                move |id: FuncId| genome.functions.get(id).is_some_and(|info| wanted(info))
            });
            let func = wanted
                .as_ref()
                .map(|wanted| wanted as &dyn Fn(FuncId) -> bool);
            let sort = choice.sort.unwrap_or_default();
            tree::write(
                genome,
                &View {
                    way,
                    sort,
                    limit: choice.limit,
                    func,
                    caller: None,
                    depth: usize::MAX,
                    least: 0,
                },
                page,
                out,
            )
        }
    }
}

fn write_csv(
    genome: &Genome,
    mut report: Report,
    choice: &Choice<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let sorted = |mut rows: Vec<GroupRow>| {
        let by = order(&rows, choice);
        select::sort(&mut rows, by);
        rows
    };
    match choice.by {
        By::Function => {
            let by = order(&report.functions, choice);
            select::sort(&mut report.functions, by);
            csv::functions(&report.functions, out)
        }
        By::Module => csv::groups("module", &sorted(group::modules(genome)), out),
        By::Thread => csv::groups("thread", &sorted(group::threads(genome)), out),
        By::Process => csv::groups("process", &sorted(process::groups(genome)), out),
    }
}

fn write_table(
    genome: &Genome,
    report: Report,
    choice: &Choice<'_>,
    page: Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    match choice.by {
        By::Function => {
            let (mut rows, by, whole) = prepared(report.functions, choice);
            // What was asked for stands below, whatever the table has room for.
            let asked = rows.iter().filter(|row| row.returned.is_some());
            let all: Vec<_> = asked.cloned().collect();
            let left_out = select::limit_functions(&mut rows, choice.limit);
            table::write(
                &Table {
                    what: "FUNCTION",
                    rows: rows.iter().map(TableRow::function).collect(),
                    left_out,
                    columns: choice.columns,
                    sort: by,
                    whole,
                },
                page,
                out,
            )?;
            if choice.returned {
                returned::write(&all, choice.limit, page, out)
            } else {
                returned::hint(&all, page, out)
            }
        }
        By::Module => write_groups("MODULE", group::modules(genome), choice, page, out),
        By::Thread => write_groups("THREAD", group::threads(genome), choice, page, out),
        By::Process => write_groups("PROCESS", process::groups(genome), choice, page, out),
    }
}

fn write_groups(
    what: &str,
    rows: Vec<GroupRow>,
    choice: &Choice<'_>,
    page: Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (mut rows, sort, whole) = prepared(rows, choice);
    let left_out: LeftOut = select::limit_groups(&mut rows, choice.limit);
    let rows = rows.iter().map(TableRow::group).collect();
    table::write(
        &Table {
            what,
            rows,
            left_out,
            columns: choice.columns,
            sort,
            whole,
        },
        page,
        out,
    )
}

/// Rows in their order, with what their shares are shares of.
fn prepared<Row: Sortable>(
    mut rows: Vec<Row>,
    choice: &Choice<'_>,
) -> (Vec<Row>, Sort, Option<Whole>) {
    let sort = order(&rows, choice);
    select::sort(&mut rows, sort);
    let whole = Whole::of(&rows, sort);
    (rows, sort, whole)
}

fn order<Row: Sortable>(rows: &[Row], choice: &Choice<'_>) -> Sort {
    let usual = match choice.columns {
        Columns::Usual => Sort::SelfCpu,
        Columns::PerCall => Sort::TotalWall,
    };
    let timed = || {
        rows.iter()
            .any(|row| usual.value(row.measures()).is_some_and(|ns| ns > 0))
    };
    choice
        .sort
        .unwrap_or_else(|| if timed() { usual } else { Sort::Calls })
}
