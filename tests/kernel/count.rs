//! Count mode: the same numbers as the stream's, without a stream.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use scalpel_tests::catalog::{CALLS, EXECS, FORKS, JUMP, LAYOUTS, SIGNALS, TAIL, THROWS};
use scalpel_tests::fixture::Fixture;
use scalpel_tests::report::Report;
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::target::Target;
use scalpel_tests::tests;
use scalpel_tests::truth::Truth;

use crate::call::record;

pub(crate) fn add(suite: &mut Suite) {
    for layout in LAYOUTS {
        suite.test(
            "count",
            &format!("counts and edges are exact in {}", layout.name),
            move || exact(&layout, &[]),
        );
    }
    for program in [TAIL, JUMP, SIGNALS, THROWS] {
        suite.test(
            "count",
            &format!("counts and edges are exact in {}", program.name),
            move || exact(&program, &[]),
        );
    }
    for exits in ["ret", "none"] {
        suite.test(
            "count",
            &format!("counts and edges are exact with --exits {exits}"),
            move || exact(&CALLS, &["--exits", exits]),
        );
    }
    suite.test(
        "count",
        "counts and edges are exact through perf events",
        || {
            let few =
                "/^(main|work|left|right|middle|leaf|other_leaf|deep|is_.*|fib|through_pointer)$/";
            exact(&CALLS, &["--attach", "perf", "-f", few])
        },
    );
    tests!(suite, "count":
        counts_and_edges_are_exact_after_an_attach,
        functions_and_edges_are_those_of_the_stream,
        times_are_those_of_one_thread,
        children_and_the_programs_they_execute_are_counted,
        a_replayed_stream_gives_the_same_counts,
    );
}

fn counted(program: &Fixture, args: &[&str]) -> anyhow::Result<(Report, Truth)> {
    record(program, &[&["--mode", "count"], args].concat())
}

fn exact(program: &Fixture, args: &[&str]) -> Outcome {
    let (report, truth) = counted(program, args)?;
    report.agrees_with(&truth)
}

fn counts_and_edges_are_exact_after_an_attach() -> Outcome {
    let copy = CALLS.copy()?;
    let mut target = Target::start(copy.path(), &[])?;
    let recording = crate::exact(copy.directory())
        .args(["--mode", "count"])
        .attach(target.pid())?;
    let truth = target.work()?;
    let recorded = recording.stop()?.expect_code(0)?;
    target.finish()?.expect_code(3)?;
    // Other than in a stream, the caller is known although its own frame was never seen to open.
    recorded.report()?.agrees_with(&truth)
}

type Calls = BTreeMap<String, (Option<u64>, Option<u64>)>;
type Edges = BTreeMap<(Option<String>, String), Option<u64>>;

/// Calls and unwound calls by function, calls by edge.
fn numbers(report: &Report) -> (Calls, Edges) {
    let functions = report.functions.iter();
    let calls = functions.map(|f| (f.key.clone(), (f.calls, f.unwound)));
    // A stream also knows who stood below a caller that is not probed: an edge without calls.
    let edges = report.edges.iter().filter(|e| e.calls > Some(0));
    let edges = edges.map(|e| ((e.caller.clone(), e.callee.clone()), e.calls));
    (calls.collect(), edges.collect())
}

fn functions_and_edges_are_those_of_the_stream() -> Outcome {
    for (program, args) in [
        (CALLS, &["--exits", "default"]),
        (CALLS, &["--exits", "none"]),
        (CALLS, &["--exits", "ret"]),
        (TAIL, &["--exits", "default"]),
        (TAIL, &["--exits", "ret"]),
        (SIGNALS, &["--exits", "default"]),
        (THROWS, &["--exits", "default"]),
        (THROWS, &["--exits", "ret"]),
    ] {
        let (stream, _) = record(&program, &[&["--mode", "trace"], &args[..]].concat())?;
        let (count, _) = counted(&program, args)?;
        let (told, seen) = (numbers(&stream), numbers(&count));
        let name = program.name;
        ensure!(
            seen.0 == told.0,
            "{name} {args:?}: {:#?} {:#?}",
            seen.0,
            told.0
        );
        ensure!(
            seen.1 == told.1,
            "{name} {args:?}: {:#?} {:#?}",
            seen.1,
            told.1
        );
        for (a, b) in stream.functions.iter().zip(&count.functions) {
            ensure!(
                a.total_wall_ns.is_some() == b.total_wall_ns.is_some()
                    && a.self_cpu_ns.is_some() == b.self_cpu_ns.is_some(),
                "{name} {args:?}: one has times, the other has none: {a:?} {b:?}"
            );
        }
    }
    Ok(())
}

/// Self times of a thread add up to what its outermost function took, and CPU time is no more than wall time.
fn times_are_those_of_one_thread() -> Outcome {
    let (report, _) = counted(&CALLS, &[])?;
    let main = report.function("main")?;
    let whole = main.total_wall_ns.context("main is not timed")?;
    let within: u64 = report
        .functions
        .iter()
        .filter(|f| f.total_wall_ns <= main.total_wall_ns)
        .filter_map(|f| f.self_wall_ns)
        .sum();
    ensure!(
        within >= whole && within <= whole + whole / 10,
        "own times add up to {within} of {whole} ns"
    );
    for f in &report.functions {
        ensure!(f.self_wall_ns <= f.total_wall_ns, "{f:?}");
        ensure!(f.self_cpu_ns <= f.total_cpu_ns, "{f:?}");
        // Two clock reads of the same moment: CPU time is the clock less the time off the processor.
        ensure!(f.total_cpu_ns <= f.total_wall_ns, "{f:?}");
    }
    Ok(())
}

fn children_and_the_programs_they_execute_are_counted() -> Outcome {
    let copy = FORKS.copy()?;
    let recorded = crate::exact(copy.directory())
        .args(["-F", "0", "--mode", "count", "-s"])
        .command(copy.path(), &[])?
        .expect_code(4)?;
    let truth = Truth::of(&recorded.ended.stdout)?;
    let (own, children) = (truth.calls("task")?, truth.measured("children_task")?);
    let seen = recorded.report()?.calls("task")?;
    ensure!(seen == own + children, "{seen} of {own} and {children}");
    let copy = EXECS.copy()?;
    let next = copy.with(&CALLS)?;
    let recorded = crate::exact(copy.directory())
        .args(["-F", "0", "--mode", "count"])
        .command(copy.path(), &[next.to_str().context("path")?])?
        .expect_code(3)?;
    let report = recorded.report()?;
    let before = report.calls("before")?;
    ensure!(before == 123, "{before} calls before the exec");
    // The same addresses stand for other code after an exec: no edge may lead from the one program to the other.
    let callers: Vec<_> = report
        .edges
        .iter()
        .filter(|edge| edge.callee.ends_with(":before"))
        .collect();
    ensure!(
        callers.iter().all(|edge| edge
            .caller
            .as_deref()
            .is_none_or(|caller| caller.contains("execs") || caller.contains("libc"))),
        "{callers:?}"
    );
    Ok(())
}

fn a_replayed_stream_gives_the_same_counts() -> Outcome {
    let copy = CALLS.copy()?;
    let stream = copy.directory().join("counted.stream");
    let kept = stream.to_string_lossy().into_owned();
    let recorded = crate::exact(copy.directory())
        .args(["-F", "0", "--mode", "count", "--keep-stream", &kept])
        .command(copy.path(), &[])?;
    let live = recorded.report()?;
    let replayed = scalpel_tests::scalpel::report(&stream)?;
    ensure!(
        numbers(&live) == numbers(&replayed),
        "{live:#?} {replayed:#?}"
    );
    Ok(())
}
