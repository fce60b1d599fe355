//! What one traced call costs, by the function's first instruction, for us, the floors and the peers in turn.
use anyhow::{Context, Result};
use tempfile::TempDir;

use super::numbers::Series;
use super::results::{Row, Section};
use super::target::Target;
use super::tracer::Tracer;
use crate::cmd;

/// One line of the table.
struct Case {
    name: &'static str,
    function: &'static str,
    tracer: Tracer,
    base: &'static str,
    target: &'static str,
}

const fn case(name: &'static str, function: &'static str, tracer: Tracer) -> Case {
    Case {
        name,
        function,
        tracer,
        base: "",
        target: "",
    }
}

impl Case {
    const fn against(mut self, base: &'static str, target: &'static str) -> Self {
        self.base = base;
        self.target = target;
        self
    }
}

const EMPTY: Tracer = Tracer::Floor("empty");
const RECORDS: Tracer = Tracer::Floor("two-records");
const EMPTY_ENTRY: Tracer = Tracer::Floor("empty-entry");
const OURS: Tracer = Tracer::Scalpel(&["--max-overhead", "off"]);
const COMPLETE: Tracer = Tracer::Scalpel(&["--max-overhead", "off", "--complete"]);
const ENTRIES: Tracer = Tracer::Scalpel(&["--max-overhead", "off", "--exits", "none"]);
const RETS: Tracer = Tracer::Scalpel(&["--max-overhead", "off", "--exits", "ret"]);
const COUNTED: Tracer = Tracer::Scalpel(&["--max-overhead", "off", "--mode", "count"]);
const COUNTED_ENTRIES: Tracer = Tracer::Scalpel(&[
    "--max-overhead",
    "off",
    "--mode",
    "count",
    "--exits",
    "none",
]);
const COUNT: Tracer = Tracer::Bpftrace("uprobe:PLACE { @ = count(); }");
const LATENCY: Tracer = Tracer::Bpftrace(
    "uprobe:PLACE { @start[tid] = nsecs; } uretprobe:PLACE { @ns = hist(nsecs - @start[tid]); delete(@start[tid]); }",
);

const PUSH: &str = "scalpel, `push`";
const PUSH_FLOOR: &str = "floor: two bare records, `push`";
const PUSH_EMPTY: &str = "floor: empty program, `push`";
const ENTRY_EMPTY: &str = "floor: empty program, entry alone, `push`";
const NOP_FLOOR: &str = "floor: two bare records, nop5";
const NOP_EMPTY: &str = "floor: empty program, nop5";
const RET: &str = "scalpel `--exits ret`, a function that an exception may pass";

const CASES: &[Case] = &[
    case("no tracer", "push_site", Tracer::Nothing),
    case(PUSH_EMPTY, "push_site", EMPTY),
    case(PUSH_FLOOR, "push_site", RECORDS),
    case(
        "A/A: two bare records once more, `push`",
        "push_site",
        RECORDS,
    )
    .against(PUSH_FLOOR, "1: the noise"),
    case(PUSH, "push_site", OURS).against(PUSH_FLOOR, "<= 1.1"),
    case("scalpel `--complete`, `push`", "push_site", COMPLETE).against(PUSH_EMPTY, "<= 1.3"),
    case("scalpel `--exits none`, `push`", "push_site", ENTRIES).against(PUSH, ""),
    case("bpftrace count, `push`", "push_site", COUNT).against(PUSH, ""),
    case("bpftrace latency script, `push`", "push_site", LATENCY).against(PUSH, "> 1"),
    case("gdb breakpoint, `push`", "push_site", Tracer::Gdb).against(PUSH, "> 1"),
    case(NOP_EMPTY, "nop5_site", EMPTY),
    case(NOP_FLOOR, "nop5_site", RECORDS),
    case("scalpel, nop5", "nop5_site", OURS).against(NOP_FLOOR, "<= 1.1"),
    case("scalpel `--complete`, nop5", "nop5_site", COMPLETE).against(NOP_EMPTY, "<= 1.3"),
    case("scalpel, `endbr64` then `push`", "endbr_site", OURS).against(PUSH, "<= 1.1"),
    case("scalpel, `mov` then `push`", "mov_site", OURS).against(PUSH, "<= 1.1"),
    case("scalpel, `lea` then `push`", "lea_site", OURS).against(PUSH, "<= 1.1"),
    case("scalpel, no cheap site", "dear_site", OURS).against(PUSH, ""),
    case("bpftrace count, `endbr64`", "endbr_site", COUNT)
        .against("scalpel, `endbr64` then `push`", "> 1"),
    case("bpftrace latency script, `endbr64`", "endbr_site", LATENCY)
        .against("scalpel, `endbr64` then `push`", "> 1"),
    case(RET, "throwing_site", RETS).against(PUSH, ""),
];

const COUNT_ENTRIES: &str = "scalpel `--mode count --exits none`";
const COUNT_TIMES: &str = "scalpel `--mode count`, with histograms";

const COUNTED_CASES: &[Case] = &[
    case("no tracer", "push_site", Tracer::Nothing),
    case(ENTRY_EMPTY, "push_site", EMPTY_ENTRY),
    case(COUNT_ENTRIES, "push_site", COUNTED_ENTRIES).against(ENTRY_EMPTY, "<= 1.1"),
    case("bpftrace count", "push_site", COUNT).against(COUNT_ENTRIES, "> 1"),
    case(PUSH_EMPTY, "push_site", EMPTY),
    case("A/A: empty program once more, `push`", "push_site", EMPTY)
        .against(PUSH_EMPTY, "1: the noise"),
    case(COUNT_TIMES, "push_site", COUNTED).against(PUSH_EMPTY, "<= 1.25"),
    case("bpftrace histogram of latencies", "push_site", LATENCY).against(COUNT_TIMES, "> 1"),
];

/// What a streamed call costs.
pub(super) fn run(rounds: usize) -> Result<Section> {
    section("One traced call", ABOUT, CASES, rounds)
}

/// What a counted call costs.
pub(super) fn counted(rounds: usize) -> Result<Section> {
    section("One counted call", ABOUT_COUNTED, COUNTED_CASES, rounds)
}

/// Runs all cases in turn, `rounds` times.
fn section(
    title: &'static str,
    about: &str,
    cases: &'static [Case],
    rounds: usize,
) -> Result<Section> {
    let folder = TempDir::with_prefix("scalpel-bench-")?;
    let mut plain = Target::start("target.c")?;
    let mut throwing = Target::start("throws.cpp")?;
    let mut rows: Vec<Row> = cases
        .iter()
        .filter(|case| case.tracer.is_here())
        .map(row)
        .collect();
    for round in 1..=rounds {
        cmd::say(format_args!("{title}: round {round} of {rounds}"));
        for row in &mut rows {
            let case = cases
                .iter()
                .find(|case| case.name == row.name)
                .context("a row without a case")?;
            let target = if case.function == "throwing_site" {
                &mut throwing
            } else {
                &mut plain
            };
            let ns = measure(target, case, &folder).with_context(|| case.name)?;
            row.series.0.push(ns);
        }
    }
    let missing = cases.iter().filter(|case| !case.tracer.is_here());
    Ok(Section {
        measured: String::new(),
        title,
        about: about.into(),
        unit: "ns",
        base: "",
        rows,
        remarks: missing
            .map(|case| format!("Not measured, its program is not installed: {}.", case.name))
            .collect(),
    })
}

const ABOUT: &str = "One thread calls one function in a hot loop; ns per call, the call itself included. In each round \
every tracer is attached in turn, and leaves. The floors are programs attached as ours are: one that does nothing, and \
one that only reserves, stamps and submits two 64-byte records. Caches are warm: in a real program every figure is \
higher, for all of them.";

const ABOUT_COUNTED: &str = "The same loop, with calls added up in the kernel: entries alone by call edge, and with the \
end of each call and histograms of wall and CPU time. Each floor is a program attached in the same way that does nothing.";

fn row(case: &Case) -> Row {
    Row {
        name: case.name.to_owned(),
        series: Series::default(),
        base: (!case.base.is_empty()).then(|| case.base.to_owned()),
        target: case.target,
    }
}

fn measure(target: &mut Target, case: &Case, folder: &TempDir) -> Result<f64> {
    let original = target.text(case.function)?;
    let attached = case.tracer.attach(target, case.function, folder.path())?;
    let traced = attached.pid().is_some();
    if traced {
        target.wait_for_text(case.function, &original, false)?;
        // The last step of an attach follows its breakpoint: a lease, a filter, a ready collector.
        std::thread::sleep(std::time::Duration::from_millis(150));
    }
    let ns = target.ns_per_call(case.function)?;
    attached.leave()?;
    if traced {
        target.wait_for_text(case.function, &original, true)?;
    }
    Ok(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_base_is_a_case_before_it() {
        for cases in [CASES, COUNTED_CASES] {
            for (place, case) in cases
                .iter()
                .enumerate()
                .filter(|(_, case)| !case.base.is_empty())
            {
                assert!(
                    cases[..place].iter().any(|before| before.name == case.base),
                    "{}",
                    case.name
                );
            }
        }
    }
}
