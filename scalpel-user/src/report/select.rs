//! Which rows, in which order.

use super::function::State;
use super::{FunctionRow, GroupRow, Measures};

/// Order of rows: largest first, names upwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// CPU time in itself; where none was measured, as estimated from samples.
    #[default]
    SelfCpu,
    /// CPU time with callees; where none was measured, as estimated from samples.
    TotalCpu,
    /// Wall time in itself.
    SelfWall,
    /// Wall time with callees.
    TotalWall,
    /// Time off the processor in itself.
    SelfOffCpu,
    /// Time off the processor with callees.
    TotalOffCpu,
    /// Calls.
    Calls,
    /// Samples.
    Samples,
    /// Name.
    Name,
}

impl Sort {
    /// The number that orders a row, estimated from samples if it was not measured; `None` sorts last.
    pub fn value(self, m: &Measures) -> Option<u64> {
        match self {
            Self::SelfCpu => self.measured(m).or(m.sampled_self_ns),
            Self::TotalCpu => self.measured(m).or(m.sampled_total_ns),
            _ => self.measured(m),
        }
    }

    /// The number that orders a row, as it was measured.
    pub fn measured(self, m: &Measures) -> Option<u64> {
        match self {
            Self::SelfCpu => m.measured_self_cpu_ns(),
            Self::TotalCpu => m.measured_total_cpu_ns(),
            Self::SelfWall => m.self_wall_ns,
            Self::TotalWall => m.total_wall_ns,
            Self::SelfOffCpu => m.self_off_cpu_ns,
            Self::TotalOffCpu => m.total_off_cpu_ns,
            Self::Calls => m.calls,
            Self::Samples => m.samples,
            Self::Name => None,
        }
    }
}

/// Something with numbers and a name.
pub trait Sortable {
    /// Its numbers.
    fn measures(&self) -> &Measures;
    /// Its name.
    fn name(&self) -> &str;
}

impl Sortable for FunctionRow {
    fn measures(&self) -> &Measures {
        &self.measures
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl Sortable for GroupRow {
    fn measures(&self) -> &Measures {
        &self.measures
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// Sorts rows: by the key, then by calls, then by name, so that the order never hangs on chance.
pub fn sort<Row: Sortable>(rows: &mut [Row], sort: Sort) {
    rows.sort_by(|a, b| {
        let by = |row: &Row| {
            (
                sort.value(row.measures()),
                (sort != Sort::Name)
                    .then_some(row.measures().calls)
                    .flatten(),
            )
        };
        by(b).cmp(&by(a)).then_with(|| a.name().cmp(b.name()))
    });
}

/// What of a list is not shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Rows that ran.
    pub ran: usize,
    /// Functions that were watched and never ran.
    pub never_ran: usize,
    /// Functions that were not watched.
    pub not_visible: usize,
}

impl LeftOut {
    /// As pieces of a sentence; empty if nothing is left out.
    pub fn pieces(&self) -> Vec<String> {
        let say = |count: usize, what: &str| (count > 0).then(|| format!("{count} {what}"));
        let pieces = [
            say(self.ran, "more"),
            say(self.never_ran, "never ran"),
            say(self.not_visible, "not watched"),
        ];
        let pieces: Vec<String> = pieces.into_iter().flatten().collect();
        if pieces.is_empty() {
            pieces
        } else {
            vec![format!("… {}: --limit 0 shows all", pieces.join(", "))]
        }
    }
}

/// Keeps the first `limit` functions that ran (0 = all functions, those that did not run too).
pub fn limit_functions(rows: &mut Vec<FunctionRow>, limit: usize) -> LeftOut {
    let mut left_out = LeftOut::default();
    if limit > 0 {
        let mut room = limit;
        rows.retain(|row| {
            let count = match row.state {
                State::Ran if room > 0 => {
                    room -= 1;
                    return true;
                }
                State::Ran => &mut left_out.ran,
                State::NeverRan => &mut left_out.never_ran,
                State::NotVisible => &mut left_out.not_visible,
            };
            *count += 1;
            false
        });
    }
    left_out
}

/// Keeps the first `limit` groups (0 = all).
pub fn limit_groups(rows: &mut Vec<GroupRow>, limit: usize) -> LeftOut {
    let all = rows.len();
    if limit > 0 {
        rows.truncate(limit);
    }
    LeftOut {
        ran: all - rows.len(),
        ..LeftOut::default()
    }
}

/// The sum of what rows are sorted by: what a share is a share of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    sum: u64,
    /// Nothing was measured: it is the sum of the estimates.
    estimated: bool,
}

impl Whole {
    /// Sum over all rows. `None` where rows contain each other (totals), or where there is nothing to sum.
    pub fn of<Row: Sortable>(rows: &[Row], sort: Sort) -> Option<Self> {
        if matches!(
            sort,
            Sort::TotalCpu | Sort::TotalWall | Sort::TotalOffCpu | Sort::Name
        ) {
            return None;
        }
        let sum = |number: fn(Sort, &Measures) -> Option<u64>| {
            rows.iter()
                .filter_map(|row| number(sort, row.measures()))
                .reduce(u64::saturating_add)
        };
        let measured = sum(Sort::measured).filter(|&sum| sum > 0);
        let whole = measured.map(|sum| Self {
            sum,
            estimated: false,
        });
        whole.or_else(|| {
            sum(Sort::value).filter(|&sum| sum > 0).map(|sum| Self {
                sum,
                estimated: true,
            })
        })
    }

    /// Share of a row. An estimate is no part of a measured sum: what runs in a callee that is not timed is already in
    /// its caller's own time.
    pub fn share(self, sort: Sort, m: &Measures) -> Option<f64> {
        let part = if self.estimated {
            sort.value(m)
        } else {
            sort.measured(m)
        };
        part.map(|part| part as f64 / self.sum as f64)
    }
}
