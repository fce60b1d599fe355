//! Which rows, in which order.

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
    /// Calls.
    Calls,
    /// Samples.
    Samples,
    /// Name.
    Name,
}

impl Sort {
    /// The number that orders a row; `None` sorts last.
    pub fn value(self, m: &Measures) -> Option<u64> {
        match self {
            Self::SelfCpu => m.self_cpu_ns.or(m.sampled_self_ns),
            Self::TotalCpu => m.total_cpu_ns.or(m.sampled_total_ns),
            Self::SelfWall => m.self_wall_ns,
            Self::TotalWall => m.total_wall_ns,
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

/// Keeps the first `limit` rows (0 = all); returns how many were left out.
pub fn limit<Row>(rows: &mut Vec<Row>, limit: usize) -> usize {
    let all = rows.len();
    if limit > 0 {
        rows.truncate(limit);
    }
    all - rows.len()
}

/// Sum of the sorted number over all rows, of which each row's share is shown. `None` where rows contain each other
/// (totals) or nothing was measured.
pub fn whole<Row: Sortable>(rows: &[Row], sort: Sort) -> Option<u64> {
    if matches!(sort, Sort::TotalCpu | Sort::TotalWall | Sort::Name) {
        return None;
    }
    rows.iter()
        .filter_map(|row| sort.value(row.measures()))
        .reduce(u64::saturating_add)
}
