//! Counts and edges exact to the call, in every layout an executable has.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};
use scalpel_tests::catalog::{
    CALLS, JUMP, LAYOUTS, LIBVERSIONS, OFFSETS, SIGNALS, STRIPPED, TAIL, TWINS, VERSIONS,
};
use scalpel_tests::fixture::Fixture;
use scalpel_tests::report::Report;
use scalpel_tests::suite::{Outcome, Suite};
use scalpel_tests::target::Target;
use scalpel_tests::tests;
use scalpel_tests::truth::Truth;

pub(crate) fn add(suite: &mut Suite) {
    for layout in LAYOUTS {
        suite.test(
            "call",
            &format!("counts and edges are exact in {}", layout.name),
            move || exact(&layout, &[]),
        );
    }
    for program in [TAIL, JUMP, SIGNALS] {
        suite.test(
            "call",
            &format!("counts and edges are exact in {}", program.name),
            move || exact(&program, &[]),
        );
    }
    suite.test(
        "call",
        "counts and edges are exact in complete records",
        || exact(&CALLS, &["--complete"]),
    );
    suite.test(
        "call",
        "counts and edges are exact with entries only",
        || exact(&CALLS, &["--exits", "none"]),
    );
    suite.test("call", "counts and edges are exact with ret probes", || {
        exact(&CALLS, &["--exits", "ret"])
    });
    tests!(suite, "call":
        counts_and_edges_are_exact_after_an_attach,
        counts_and_edges_are_exact_through_perf_events,
        counts_are_exact_at_addresses_of_a_stripped_program,
        a_choice_of_functions_is_kept_to,
        an_exclusion_wins_over_a_choice,
        functions_of_one_name_are_told_apart,
        an_alias_is_not_counted_twice,
        versions_of_one_symbol_are_told_apart,
        times_add_up,
        recursion_deeper_than_the_kernels_return_probes_is_counted_and_marked,
        a_tail_call_is_an_edge_from_the_function_that_jumped,
        frames_that_a_jump_left_are_unwound,
    );
}

pub(crate) fn record(program: &Fixture, args: &[&str]) -> anyhow::Result<(Report, Truth)> {
    let copy = program.copy()?;
    let recorded = crate::exact(copy.directory())
        .args(["-F", "0"])
        .args(args)
        .command(copy.path(), &[])?;
    let truth = Truth::of(&recorded.ended.stdout).context("the program did not get to its end")?;
    Ok((recorded.report()?, truth))
}

fn exact(program: &Fixture, args: &[&str]) -> Outcome {
    let (report, truth) = record(program, args)?;
    report.agrees_with(&truth)
}

fn counts_and_edges_are_exact_after_an_attach() -> Outcome {
    let copy = CALLS.copy()?;
    let mut target = Target::start(copy.path(), &[])?;
    let recording = crate::exact(copy.directory()).attach(target.pid())?;
    let mut truth = target.work()?;
    let recorded = recording.stop()?.expect_code(0)?;
    target.finish()?.expect_code(3)?;
    // `main` was entered before the attach: its frame was never seen to open, but its call of `work` was.
    truth.edges.retain(|(caller, ..)| caller != "main");
    recorded.report()?.agrees_with(&truth)
}

fn counts_and_edges_are_exact_through_perf_events() -> Outcome {
    exact(
        &CALLS,
        &[
            "--attach",
            "perf",
            "-f",
            "/^(main|work|left|right|middle|leaf|other_leaf|deep|is_.*|fib|through_pointer)$/",
        ],
    )
}

fn counts_are_exact_at_addresses_of_a_stripped_program() -> Outcome {
    let (report, truth) = record(&STRIPPED, &[])?;
    let symbols = offsets(&OFFSETS)?;
    for (name, told) in &truth.calls {
        let (offset, address) = symbols.get(name).context("no such symbol")?;
        let names = [
            format!("calls-stripped+{offset:#x}"),
            format!("calls-stripped+{address:#x}"),
        ];
        let found: Vec<_> = report
            .functions
            .iter()
            .filter(|f| names.contains(&f.name))
            .collect();
        let seen: u64 = found.iter().filter_map(|f| f.calls).sum();
        ensure!(
            found.len() == 1 && seen == *told,
            "{name} at {names:?}: {seen} seen, {told} made, {found:?}"
        );
    }
    ensure!(
        report.unknown_share.is_some_and(|share| share > 0.9),
        "unknown share is {:?}",
        report.unknown_share
    );
    Ok(())
}

/// File offset and address of every function of a program.
fn offsets(program: &Fixture) -> anyhow::Result<BTreeMap<String, (u64, u64)>> {
    let bytes = std::fs::read(program.build()?)?;
    let file = object::File::parse(&*bytes)?;
    let mut found = BTreeMap::new();
    for symbol in file.symbols() {
        let address = symbol.address();
        let segment = file
            .segments()
            .find(|s| (s.address()..s.address() + s.size()).contains(&address));
        if let Some(segment) = segment {
            found.insert(
                symbol.name()?.to_owned(),
                (
                    address - segment.address() + segment.file_range().0,
                    address,
                ),
            );
        }
    }
    Ok(found)
}

fn a_choice_of_functions_is_kept_to() -> Outcome {
    let (report, truth) = record(&CALLS, &["-f", "le*f", "-f", "/^is_/"])?;
    let mut ran: Vec<&str> = report
        .functions
        .iter()
        .filter(|f| f.calls > Some(0))
        .map(|f| f.name.as_str())
        .collect();
    ran.sort_unstable();
    ensure!(
        ran.contains(&"leaf") && ran.contains(&"is_even") && !ran.contains(&"middle"),
        "watched: {ran:?}"
    );
    ensure!(report.calls("leaf")? == truth.calls("leaf")?);
    ensure!(report.calls("is_odd")? == truth.calls("is_odd")?);
    Ok(())
}

fn an_exclusion_wins_over_a_choice() -> Outcome {
    let (report, truth) = record(&CALLS, &["-f", "*leaf", "-N", "other*"])?;
    ensure!(report.calls("leaf")? == truth.calls("leaf")?);
    ensure!(
        report
            .named("other_leaf")
            .iter()
            .all(|f| f.calls.unwrap_or(0) == 0),
        "other_leaf was excluded"
    );
    Ok(())
}

fn functions_of_one_name_are_told_apart() -> Outcome {
    let (report, _) = record(&TWINS, &[])?;
    let mut calls: Vec<_> = report
        .named("twin")
        .iter()
        .filter_map(|f| f.calls)
        .collect();
    calls.sort_unstable();
    ensure!(calls == [11, 30], "calls of the two: {calls:?}");
    let keys: std::collections::BTreeSet<_> = report.named("twin").iter().map(|f| &f.key).collect();
    ensure!(keys.len() == 2, "their keys: {keys:?}");
    Ok(())
}

fn an_alias_is_not_counted_twice() -> Outcome {
    let (report, truth) = record(&TWINS, &[])?;
    let both = report
        .functions
        .iter()
        .filter(|f| f.name == "real_name" || f.name == "other_name");
    let calls: Vec<_> = both.map(|f| f.calls).collect();
    ensure!(
        calls == [Some(truth.calls("real_name")?)],
        "calls: {calls:?}"
    );
    Ok(())
}

fn versions_of_one_symbol_are_told_apart() -> Outcome {
    let copy = VERSIONS.copy()?;
    copy.with(&LIBVERSIONS)?;
    let mut target = Target::start(copy.path(), &[])?;
    let recording = crate::exact(copy.directory())
        .args(["--lib", "libversions.so", "-f", "answer*"])
        .attach(target.pid())?;
    target.work()?;
    let report = recording.stop()?.expect_code(0)?.report()?;
    target.finish()?.expect_code(0)?;
    let mut calls: Vec<_> = report
        .functions
        .iter()
        .filter_map(|f| f.calls)
        .filter(|calls| *calls > 0)
        .collect();
    calls.sort_unstable();
    ensure!(calls == [13, 21], "{:#?}", report.functions);
    Ok(())
}

/// What every report must keep, whatever ran: self within total, and total within what the thread had.
fn times_add_up() -> Outcome {
    let (report, _) = record(&CALLS, &[])?;
    let whole = report.run.duration_ns.context("no duration")?;
    for f in &report.functions {
        ensure!(
            f.self_wall_ns <= f.total_wall_ns,
            "{}: self wall over total wall",
            f.name
        );
        ensure!(
            f.self_cpu_ns <= f.total_cpu_ns,
            "{}: self CPU over total CPU",
            f.name
        );
        ensure!(
            f.total_wall_ns.unwrap_or(0) <= whole,
            "{}: longer than the recording",
            f.name
        );
    }
    let selfs: u64 = report.functions.iter().filter_map(|f| f.self_wall_ns).sum();
    ensure!(
        selfs <= whole,
        "self times of one thread add up to {selfs} of {whole} ns"
    );
    let main = report.function("main")?;
    let work = report.function("work")?;
    ensure!(
        work.total_wall_ns > Some(0) && work.total_wall_ns <= main.total_wall_ns,
        "work within main: {work:?} {main:?}"
    );
    Ok(())
}

fn recursion_deeper_than_the_kernels_return_probes_is_counted_and_marked() -> Outcome {
    let (report, truth) = record(&CALLS, &[])?;
    let deep = report.function("deep")?;
    ensure!(
        deep.calls == Some(truth.calls("deep")?),
        "calls: {:?}",
        deep.calls
    );
    let marked = deep.doubts.to_string();
    let says_so = ["depth of 64", "not watched", "times cover"]
        .iter()
        .any(|word| marked.contains(word));
    ensure!(says_so, "200 levels, but no word about the limit: {deep:?}");
    Ok(())
}

fn a_tail_call_is_an_edge_from_the_function_that_jumped() -> Outcome {
    let (report, truth) = record(&TAIL, &[])?;
    for (caller, callee) in [
        ("first", "second"),
        ("second", "third"),
        ("ping", "pong"),
        ("pong", "ping"),
    ] {
        let told: u64 = truth
            .edges
            .iter()
            .filter(|(a, b, _)| a == caller && b == callee)
            .map(|e| e.2)
            .sum();
        let seen = report.edge_calls(caller, callee);
        ensure!(
            seen == told,
            "{caller} -> {callee}: {seen} seen, {told} made"
        );
    }
    Ok(())
}

fn frames_that_a_jump_left_are_unwound() -> Outcome {
    let (report, truth) = record(&JUMP, &[])?;
    let jumped = truth.measured("jumped")?;
    for name in ["thrower", "between"] {
        let f = report.function(name)?;
        if f.total_wall_ns.is_some() {
            // The stack guard may refuse the return of some calls after a jump: those have an unknown end, too.
            ensure!(
                f.unwound.is_some_and(|n| n > 0 && n <= jumped),
                "{name}: {jumped} left by a jump, {f:?}"
            );
        }
    }
    let catcher = report.function("catcher")?;
    ensure!(
        catcher.unwound.unwrap_or(0) == 0,
        "no jump leaves catcher: {catcher:?}"
    );
    Ok(())
}
