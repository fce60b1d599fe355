use super::{FunctionRow, Report, group, process, select};
use crate::event::{Pid, Tid};
use crate::function::{ExitStrategy, FunctionInfo};
use crate::genome::Genome;
use crate::genome::tests::{example, returning, triggered};
use crate::report::Sort;
use crate::report::function::State;

fn report() -> Report {
    Report::of(&example(), 0.001)
}

fn row<'a>(report: &'a Report, name: &str) -> &'a FunctionRow {
    report
        .functions
        .iter()
        .find(|row| row.name == name)
        .unwrap()
}

#[test]
fn a_recursive_functions_total_counts_once_and_its_self_time_adds_up() {
    let report = report();
    let walk = &row(&report, "walk").measures;
    assert_eq!(
        (walk.calls, walk.self_wall_ns, walk.total_wall_ns),
        (Some(10_800), Some(7_200_000_000), Some(8_000_000_000))
    );
}

#[test]
fn what_was_not_measured_is_none() {
    let report = report();
    let entry_only = &report.functions[2].measures;
    assert_eq!(
        (
            entry_only.calls,
            entry_only.self_wall_ns,
            entry_only.total_cpu_ns
        ),
        (Some(777), None, None)
    );
    assert_eq!(entry_only.sampled_self_ns, Some(525_252_525));
    let sampled = &row(&report, "memcpy").measures;
    assert_eq!(
        (sampled.calls, sampled.calls_at_most, sampled.samples),
        (None, None, Some(21))
    );
    let refused = &row(&report, "refused").measures;
    assert_eq!((refused.calls, refused.total_wall_ns), (None, None));
}

#[test]
fn never_having_run_is_a_measurement() {
    let report = report();
    let never = row(&report, "never_called");
    assert_eq!(
        (
            never.state,
            never.measures.calls,
            never.measures.total_wall_ns
        ),
        (State::NeverRan, Some(0), Some(0))
    );
    assert_eq!(row(&report, "refused").state, State::NotVisible);
}

#[test]
fn calls_have_error_bars_with_reasons() {
    let report = report();
    let walk = row(&report, "walk");
    assert_eq!(walk.measures.calls_at_most, Some(10_803));
    assert_eq!(
        walk.doubts,
        [
            "3 returns without an entry",
            "40 returns beyond the kernel's depth of 64"
        ]
    );
    let hash = row(&report, "hash");
    assert_eq!(hash.measures.calls_at_most, None);
    assert_eq!(
        hash.doubts,
        ["lower bound from 6.500 s: over budget", "12 entries lost"]
    );
}

#[test]
fn a_function_whose_probe_went_stands_where_samples_put_it() {
    let mut hash = row(&report(), "hash").measures.clone();
    hash.self_cpu_ns = Some(20);
    hash.sampled_self_ns = Some(500);
    assert_eq!(hash.calls_at_most, None);
    assert_eq!(Sort::SelfCpu.value(&hash), Some(500));
    assert_eq!(Sort::SelfCpu.measured(&hash), None);
    hash.sampled_self_ns = Some(19);
    assert_eq!(Sort::SelfCpu.measured(&hash), Some(20));
    // Where the probe stayed, what was measured is all there was.
    hash.sampled_self_ns = Some(500);
    hash.calls_at_most = hash.calls;
    assert_eq!(Sort::SelfCpu.value(&hash), Some(20));
}

#[test]
fn the_probes_cost_is_an_interval() {
    let walk = row(&report(), "walk").measures.overhead_ns.unwrap();
    assert_eq!((walk.low, walk.high), (2_400 * 90 / 2, 2_400 * 900 / 2));
}

#[test]
fn unknown_counts_functions_and_events_by_reason() {
    let unknown = report().unknown.unwrap();
    assert!((unknown.functions - 1.0 / 6.0).abs() < 1e-9);
    assert_eq!(unknown.reasons.len(), 1);
    assert_eq!(
        (
            unknown.reasons[0].reason,
            unknown.reasons[0].functions,
            unknown.reasons[0].events
        ),
        ("stripped", 1, 8)
    );
}

#[test]
fn nothing_that_ran_is_no_share() {
    let mut genome: Genome = example();
    genome.tree.contexts.truncate(1);
    genome.tree.cells.clear();
    assert_eq!(Report::of(&genome, 0.001).unknown_share, None);
}

#[test]
fn loss_above_the_limit_or_a_cut_makes_a_result_partial() {
    let mut genome = example();
    assert!(!genome.is_partial(0.001) && genome.is_partial(0.000_001));
    genome.cut = true;
    assert!(genome.is_partial(1.0));
}

#[test]
fn a_module_is_entered_once_a_path_and_threads_add_up_to_the_whole() {
    let modules = group::modules(&example());
    assert_eq!(modules[0].name, "shop");
    assert_eq!(
        modules[0].measures.total_wall_ns,
        Some(9_000_000_000 + 1_851_000_000)
    );
    let threads = group::threads(&example());
    assert_eq!(threads[1].measures.total_wall_ns, Some(1_851_000_000));
    assert_eq!(threads[1].measures.lost, 12);
}

#[test]
fn rows_sort_by_what_was_measured_then_by_calls_then_by_name() {
    let mut rows = report().functions;
    select::sort(&mut rows, Sort::TotalWall);
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(&names[..4], ["serve", "walk", "hash", "shop+0x4a10"]);
    assert_eq!(names.last(), Some(&"refused"));
}

#[test]
fn a_function_that_a_limit_left_out_is_one_of_those_that_were_to_be_watched() {
    let said = |exit| {
        let mut genome = example();
        let refused = genome.bounds.iter().find(|bound| bound.since.is_none());
        let func = refused.unwrap().func;
        let info = FunctionInfo::clone(genome.functions.get(func).unwrap());
        assert!(genome.functions.define(func, FunctionInfo { exit, ..info }));
        let doubts = Report::of(&genome, 0.001).doubts;
        let mut doubts = doubts.into_iter().map(|doubt| doubt.what);
        doubts.find(|what| what.contains("not watched")).unwrap()
    };
    // What was decided about it, if anything was.
    assert_eq!(said(ExitStrategy::None), said(ExitStrategy::EntryOnly));
    assert_eq!(said(ExitStrategy::None), "1 of 7 functions not watched");
}

#[test]
fn a_limit_keeps_what_ran_and_says_what_it_leaves_out() {
    let mut rows = report().functions;
    assert!(select::limit_functions(&mut rows, 0).pieces().is_empty());
    let left_out = select::limit_functions(&mut rows, 4);
    assert_eq!(
        left_out.pieces(),
        ["… 2 more, 1 never ran, 1 not watched: --limit 0 shows all"]
    );
    assert!(rows.len() == 4 && rows.iter().all(|row| row.state == State::Ran));
}

#[test]
fn an_estimate_is_no_share_of_a_measured_whole() {
    let rows = report().functions;
    let whole = select::Whole::of(&rows, Sort::SelfCpu).unwrap();
    assert_eq!(whole.share(Sort::SelfCpu, &rows[2].measures), None);
    let shares: f64 = rows
        .iter()
        .filter_map(|row| whole.share(Sort::SelfCpu, &row.measures))
        .sum();
    assert!((shares - 1.0).abs() < 1e-9);
    let sampled = select::Whole::of(&rows[2..5], Sort::Samples).unwrap();
    assert_eq!(
        sampled.share(Sort::Samples, &rows[4].measures),
        Some(21.0 / 73.0)
    );
}

#[test]
fn suspended_time_stands_beside_the_others_and_cpu_without_the_kernel_is_an_estimate() {
    let mut genome = example();
    let cell = genome.tree.cells.iter_mut();
    let timed = cell.filter(|cell| cell.metrics.timed > 0 && cell.metrics.cpu_timed > 0);
    let cell = timed.max_by_key(|cell| cell.metrics.calls).unwrap();
    cell.metrics.pre_await_ns = 7;
    cell.metrics.suspended_ns = 9;
    let find = |report: &Report| {
        let mut rows = report.functions.iter();
        let row = rows.find(|row| row.measures.suspended_ns == Some(9));
        row.unwrap().measures.clone()
    };
    let measured = find(&Report::of(&genome, 0.001));
    assert_eq!(measured.pre_await_ns, Some(7));
    assert!(!measured.cpu_estimated);
    genome.run.mode = "probe+python".into();
    assert!(find(&Report::of(&genome, 0.001)).cpu_estimated);
    let untimed = &Report::of(&genome, 0.001).functions[2].measures;
    assert_eq!((untimed.suspended_ns, untimed.cpu_estimated), (None, false));
}

/// The example with sources: its first function is one of them, its second is not found there.
fn laid() -> Genome {
    use crate::catalog::{DefId, Outcome, Why};
    let mut genome = example();
    genome.catalog = crate::catalog::tests::example();
    let why = Outcome::Unmatched(Why::NotFound);
    let ids: Vec<_> = genome.functions.iter().map(|(id, _)| id).collect();
    let first = std::iter::once(Outcome::Matched(DefId(0)));
    genome.matches.outcomes = ids
        .into_iter()
        .zip(first.chain(std::iter::repeat(why)))
        .collect();
    genome
}

#[test]
fn without_sources_nothing_is_said_of_them() {
    let report = report();
    assert_eq!((report.match_rate, &report.known), (None, &None));
    assert!(report.unseen.is_empty());
    let row = &report.functions[0];
    assert_eq!((&row.definition, row.not_found), (&None, None));
}

#[test]
fn what_was_found_in_the_sources_is_shown_with_every_function_and_in_sum() {
    let report = Report::of(&laid(), 0.001);
    let known = report.known.as_ref().unwrap();
    assert_eq!(known.match_rate.matched, 1);
    assert!(known.match_rate.ran > 1 && known.match_rate.ran == known.raw_rate.ran);
    assert_eq!(report.match_rate, known.match_rate.share);
    assert_eq!(
        report.functions[0].definition.as_deref(),
        Some("shop/cart.py:2 add")
    );
    let second = &report.functions[1];
    assert_eq!(
        (&second.definition, second.not_found),
        (&None, Some("not-found"))
    );
    assert!(
        second
            .doubts
            .iter()
            .any(|doubt| doubt.starts_with("not found in the source"))
    );
    let unseen: Vec<_> = report
        .unseen
        .iter()
        .map(|row| (&*row.name, row.state, row.why))
        .collect();
    assert_eq!(unseen, [("add#1", "not-visible", Some("no-probe"))]);
    assert!(
        report
            .doubts
            .iter()
            .any(|doubt| doubt.what.contains("are found in the source"))
    );
}

#[test]
fn with_triggers_nothing_is_said_never_to_have_run_and_no_count_is_a_total() {
    let (whole, kept) = (report(), Report::of(&triggered(), 0.001));
    let never = |report: &Report| {
        let rows = report.functions.iter();
        rows.filter(|row| row.state == State::NeverRan).count()
    };
    assert!(never(&whole) > 0);
    assert_eq!(never(&kept), 0);
    for row in kept
        .functions
        .iter()
        .filter(|row| row.state == State::NotVisible)
    {
        assert_eq!(row.measures.calls, None, "{}", row.name);
    }
    assert_eq!(row(&kept, "walk").measures.calls_at_most, None);
    let doubts: Vec<_> = kept
        .doubts
        .iter()
        .map(|doubt| doubt.what.as_str())
        .collect();
    let expect = "only kept calls are in this recording: 2 of 1200 calls of walk>10ms";
    assert!(doubts.contains(&expect), "{doubts:?}");
    assert_eq!(
        kept.kept.iter().map(|row| row.wall_ns).collect::<Vec<_>>(),
        [48_000_000, 12_000_000]
    );
}

#[test]
fn every_call_has_a_value_or_a_reason_why_not() {
    let report = Report::of(&returning(), 0.001);
    for row in &report.functions {
        let Some(returned) = &row.returned else {
            continue;
        };
        let seen: u64 = returned.values.iter().map(|value| value.calls).sum();
        let all = seen + returned.other + returned.without;
        assert_eq!(Some(all), row.measures.calls, "{}", row.name);
        let number = |reason: &String| -> u64 {
            let (number, _) = reason.split_once(' ').unwrap();
            number.parse().unwrap()
        };
        let explained: u64 = returned.reasons.iter().map(number).sum();
        assert_eq!(explained, returned.without, "{:?}", returned.reasons);
    }
    let walk = row(&report, "walk").returned.as_ref().unwrap();
    let depth = "40 beyond the kernel's depth of 64 returns";
    assert!(walk.reasons.iter().any(|reason| reason == depth));
    let entry_only = report.functions[2].returned.as_ref().unwrap();
    let why = "777 whose end is not watched: an exception may pass it";
    assert_eq!(entry_only.reasons, [why]);
    assert_eq!(row(&report, "hash").returned, None);
}

#[test]
fn a_value_is_an_int_only_where_the_upper_half_of_the_register_may_be_one() {
    let report = Report::of(&returning(), 0.001);
    let walk = row(&report, "walk").returned.as_ref().unwrap();
    let ints: Vec<_> = walk.values.iter().map(|row| row.value.int).collect();
    assert_eq!(ints, [Some(0), Some(-1), None]);
    let texts: Vec<_> = walk.values.iter().map(|row| &*row.value.value).collect();
    assert_eq!(texts, ["0", "4294967295", "139716164218880"]);
    let least = walk.least.as_ref().unwrap();
    assert_eq!((&*least.bits, least.int), ("0xfffffffffffffff9", Some(-7)));
}

#[test]
fn calls_of_recordings_that_did_not_ask_are_named() {
    let mut merged = crate::genome::merge::Merged::from(returning());
    let mut other = example();
    other.run.uuid = "6f0e3e0c-6f4e-4a57-9d55-1f3c0d1d2a12".into();
    merged.join(other.into()).unwrap();
    let report = Report::of(&merged.into_genome(), 0.001);
    let walk = row(&report, "walk").returned.as_ref().unwrap();
    assert_eq!(walk.without, 10_850);
    let unasked = "10800 in recordings without --return-values";
    assert_eq!(walk.reasons[0], unasked);
}

/// The example as two processes.
fn two_processes() -> Genome {
    let mut genome = example();
    let second = &mut genome.tree.threads[1];
    (second.pid, second.tid) = (Pid(5000), Tid(5000));
    genome
}

#[test]
fn processes_add_up_their_threads_and_have_the_name_of_the_first() {
    let rows = process::processes(&example());
    let [only] = rows.as_slice() else {
        panic!("{rows:#?}")
    };
    assert_eq!((only.pid, only.threads), (4242, 2));
    assert_eq!(only.name.as_deref(), Some("shop"));
    assert_eq!((only.measures.samples, only.measures.lost), (Some(73), 12));
    let names: Vec<_> = process::groups(&two_processes())
        .into_iter()
        .map(|row| row.name)
        .collect();
    assert_eq!(names, ["shop 4242", "worker 5000"]);
}

#[test]
fn a_recording_is_cut_to_what_a_process_did() {
    let check = |wanted: &str, processes: usize, functions: &[&str]| {
        let mut genome = two_processes();
        assert_eq!(process::cut_to(&mut genome, wanted), processes, "{wanted}");
        let seen = process::seen(&genome);
        let mut report = Report::of(&genome, 0.001);
        report.retain(&genome, &|id, _| seen.contains(&id));
        let names: Vec<_> = report
            .functions
            .iter()
            .map(|row| row.name.as_str())
            .collect();
        assert_eq!(names, functions, "{wanted}");
        assert_eq!(report.threads.len(), processes, "{wanted}");
        genome
    };
    let worker = check("worker", 1, &["hash"]);
    assert_eq!(worker.tree.cells, check("5000", 1, &["hash"]).tree.cells);
    assert_eq!(worker.tree.contexts.len(), 2);
    assert!(worker.tree.histograms.is_empty());
    check("nobody", 0, &[]);
    let mut whole = example();
    process::cut_to(&mut whole, "shop");
    assert_eq!(whole.tree, example().tree);
}
