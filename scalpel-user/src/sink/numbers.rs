//! The numbers that a table can have as columns, and which of them go first where the page is narrow.

use super::{Columns, units};
use crate::report::{Measures, Sort};

/// Numbers in the order of their columns, their headings by importance, and the numbers that there are at all.
pub(super) type Set = (
    &'static [Number],
    &'static [&'static str],
    &'static [Number],
);

/// The numbers of a table.
pub(super) fn of(columns: Columns) -> Set {
    match columns {
        Columns::Usual => (&COLUMNS, &IMPORTANCE, &COLUMNS),
        Columns::PerCall => (&PER_CALL, &IMPORTANCE_PER_CALL, &COLUMNS),
    }
}

/// The numbers a table can show, in the order of their columns.
static COLUMNS: [Number; 18] = [
    Number {
        heading: "SELF CPU",
        sort: Some(Sort::SelfCpu),
        show: |m| {
            shown_cpu(
                m,
                m.measured_self_cpu_ns(),
                m.self_cpu_ns,
                m.sampled_self_ns,
            )
        },
    },
    Number {
        heading: "SELF WALL",
        sort: Some(Sort::SelfWall),
        show: |m| m.self_wall_ns.map(units::duration),
    },
    TOTAL_CPU,
    TOTAL_WALL,
    Number {
        heading: "PRE-AWAIT",
        sort: None,
        show: |m| m.pre_await_ns.map(|ns| some(ns, units::duration)),
    },
    Number {
        heading: "SUSPENDED",
        sort: None,
        show: |m| m.suspended_ns.map(|ns| some(ns, units::duration)),
    },
    Number {
        heading: "SELF OFF",
        sort: Some(Sort::SelfOffCpu),
        show: |m| m.self_off_cpu_ns.map(|ns| some(ns, units::duration)),
    },
    Number {
        heading: "TOTAL OFF",
        sort: Some(Sort::TotalOffCpu),
        show: |m| m.total_off_cpu_ns.map(|ns| some(ns, units::duration)),
    },
    Number {
        heading: "I/O WAIT",
        sort: None,
        show: |m| m.io_wait_ns.map(|ns| some(ns, units::duration)),
    },
    Number {
        heading: "PREEMPTED",
        sort: None,
        show: |m| m.preempted_ns.map(|ns| some(ns, units::duration)),
    },
    Number {
        heading: "WAITS",
        sort: None,
        show: |m| m.waits.map(|n| some(n, units::count)),
    },
    Number {
        heading: "SAMPLED",
        sort: None,
        show: |m| m.sampled_self_ns.map(|ns| some(ns, estimated)),
    },
    Number {
        heading: "SAMPLES",
        sort: Some(Sort::Samples),
        show: |m| m.samples.map(|n| some(n, units::count)),
    },
    Number {
        heading: "LOST",
        sort: None,
        show: |m| Some(some(m.lost, units::count)),
    },
    Number {
        heading: "UNWOUND",
        sort: None,
        show: |m| Some(some(m.unwound, units::count)),
    },
    P50_WALL,
    P99_WALL,
    CALLS,
];

const TOTAL_CPU: Number = Number {
    heading: "TOTAL CPU",
    sort: Some(Sort::TotalCpu),
    show: |m| {
        shown_cpu(
            m,
            m.measured_total_cpu_ns(),
            m.total_cpu_ns,
            m.sampled_total_ns,
        )
    },
};

const TOTAL_WALL: Number = Number {
    heading: "TOTAL WALL",
    sort: Some(Sort::TotalWall),
    show: |m| m.total_wall_ns.map(units::duration),
};

const CALLS: Number = Number {
    heading: "CALLS",
    sort: Some(Sort::Calls),
    show: |m| m.calls.map(units::count),
};

const P50_WALL: Number = Number {
    heading: "P50 WALL",
    sort: None,
    show: |m| m.per_call_wall.map(|times| units::duration(times.p50_ns)),
};

const P99_WALL: Number = Number {
    heading: "P99 WALL",
    sort: None,
    show: |m| m.per_call_wall.map(|times| units::duration(times.p99_ns)),
};

/// The numbers of a table that shows what single calls took.
static PER_CALL: [Number; 9] = [
    CALLS,
    TOTAL_WALL,
    Number {
        heading: "AVG WALL",
        sort: None,
        show: |m| m.per_call_wall?.avg_ns.map(units::duration),
    },
    P50_WALL,
    P99_WALL,
    TOTAL_CPU,
    Number {
        heading: "AVG CPU",
        sort: None,
        show: |m| m.per_call_cpu?.avg_ns.map(units::duration),
    },
    Number {
        heading: "P50 CPU",
        sort: None,
        show: |m| m.per_call_cpu.map(|times| units::duration(times.p50_ns)),
    },
    Number {
        heading: "P99 CPU",
        sort: None,
        show: |m| m.per_call_cpu.map(|times| units::duration(times.p99_ns)),
    },
];

/// The same, by importance.
static IMPORTANCE_PER_CALL: [&str; 9] = [
    "CALLS",
    "AVG WALL",
    "P99 WALL",
    "P50 WALL",
    "AVG CPU",
    "TOTAL WALL",
    "P99 CPU",
    "P50 CPU",
    "TOTAL CPU",
];

/// Which columns go first where the page is narrow, by heading; the sorted one goes before all of them.
static IMPORTANCE: [&str; 18] = [
    "CALLS",
    "SELF CPU",
    "TOTAL WALL",
    "TOTAL OFF",
    "SAMPLED",
    "SELF OFF",
    "SELF WALL",
    "SUSPENDED",
    "TOTAL CPU",
    "PRE-AWAIT",
    "LOST",
    "I/O WAIT",
    "WAITS",
    "PREEMPTED",
    "SAMPLES",
    "P99 WALL",
    "UNWOUND",
    "P50 WALL",
];

/// A number that a table can show.
pub(super) struct Number {
    pub(super) heading: &'static str,
    pub(super) sort: Option<Sort>,
    /// `None` = not measured; an empty text = none, where zeros would only be noise.
    pub(super) show: fn(&Measures) -> Option<String>,
}

fn some(number: u64, format: fn(u64) -> String) -> String {
    if number == 0 {
        String::new()
    } else {
        format(number)
    }
}

/// A CPU time as measured, or as samples tell where they tell of more than was measured until its probe went.
fn shown_cpu(
    m: &Measures,
    measured: Option<u64>,
    until_it_went: Option<u64>,
    sampled: Option<u64>,
) -> Option<String> {
    match measured {
        Some(ns) if m.cpu_estimated => Some(estimated(ns)),
        Some(ns) => Some(units::duration(ns)),
        None => until_it_went.and(sampled).map(estimated),
    }
}

pub(super) fn estimated(ns: u64) -> String {
    format!("~{}", units::duration(ns))
}
