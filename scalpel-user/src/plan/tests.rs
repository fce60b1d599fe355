//! A table of what was typed and what is then done.

use std::time::Duration;

use super::*;

fn planned(line: &str) -> Result<Plan, PlanError> {
    let words = std::iter::once("scalpel-ebpf").chain(line.split_whitespace());
    plan(Cli::of_words(words).unwrap_or_else(|error| panic!("{line}: {error}")))
        .map(|(plan, _)| plan)
}

fn record(line: &str) -> RecordPlan {
    match planned(&format!("record {line}")) {
        Ok(Plan::Record(plan)) => *plan,
        other => panic!("{line}: {other:?}"),
    }
}

fn refused(line: &str, expect: &str) {
    let message = planned(line).expect_err(line).to_string();
    assert!(message.contains(expect), "{line}: {message}");
}

#[test]
fn without_func_the_budget_is_five_percent_and_with_func_off() {
    assert_eq!(
        record("-p 1").measurement.max_overhead,
        words::Overhead::Percent(5.0)
    );
    assert_eq!(
        record("-p 1 -f a").measurement.max_overhead,
        words::Overhead::Off
    );
    assert_eq!(
        record("-p 1 -f a --max-overhead 2")
            .measurement
            .max_overhead,
        words::Overhead::Percent(2.0)
    );
    assert_eq!(
        record("-p 1 --max-overhead off").measurement.max_overhead,
        words::Overhead::Off
    );
}

#[test]
fn targets_are_pids_a_name_or_a_command() {
    assert_eq!(
        record("-p 3,5 -p 3").target,
        Target::Pids(vec![Pid(3), Pid(5)])
    );
    assert_eq!(record("--comm redis").target, Target::Comm("redis".into()));
    let command = CommandLine {
        program: "ls".into(),
        args: vec!["-l".into(), "-p".into()],
    };
    assert_eq!(record("-F 0 -- ls -l -p").target, Target::Command(command));
}

#[test]
fn output_is_a_file_or_stdout() {
    let file = Destination::File("scalpel.genome".into());
    assert_eq!(record("-p 1").outputs.genome, file);
    assert_eq!(record("-p 1 -o -").outputs.genome, Destination::Stdout);
}

#[test]
fn auto_streams_the_calls_of_named_functions_and_counts_those_of_a_program() {
    for (line, mode) in [
        ("-p 1", Mode::Count),
        ("-p 1 -m auto --max-overhead off", Mode::Count),
        ("-p 1 -f a", Mode::Trace),
        ("-p 1 --keep-stream x", Mode::Trace),
        ("-p 1 --complete", Mode::Trace),
        ("-p 1 -m sample", Mode::Sample),
        ("-p 1 -m count -f a", Mode::Count),
    ] {
        assert_eq!(record(line).measurement.mode, mode, "{line}");
    }
}

#[test]
fn stat_counts_and_leaves_no_file() {
    let Ok(Plan::Stat(stat)) = planned("stat -p 7 -f a -d 2 --json -n 0") else {
        panic!()
    };
    let record = &stat.record;
    assert_eq!(record.measurement.mode, Mode::Count);
    assert_eq!(record.measurement.sample_hz, 0);
    assert_eq!(record.measurement.max_overhead, words::Overhead::Off);
    assert_eq!(record.outputs.genome, Destination::Nowhere);
    assert_eq!(record.outputs.stream, None);
    assert_eq!(record.runtimes.mode, ProbeMode::Off);
    assert_eq!((stat.json, stat.limit), (true, None));
    refused("stat -p 1 -d 0", "records nothing");
}

#[test]
fn loss_is_a_share_and_time_a_duration() {
    let plan = record("-p 1 -d 1.5");
    assert!((plan.outputs.max_loss - 0.001).abs() < 1e-12);
    assert_eq!(plan.duration, Some(Duration::from_millis(1500)));
    assert_eq!(plan.measurement.sample_hz, 99);
    assert_eq!(
        record("-p 1 --ring-size 32M").measurement.ring_bytes,
        Some(32 << 20)
    );
}

#[test]
fn contradictions_are_refused_with_the_way_out() {
    refused("record -p 1 --complete --exits none", "leave one out");
    refused("record -p 1 -F 0 --kernel-stacks", "--freq 0");
    refused("record -p 1 --ring-size 4K", "64K");
    refused("record -p 1 -d 0", "records nothing");
    refused("record -p 1 -o x --keep-stream x", "different files");
    refused(
        "record -p 1 -o x --keep-stream y --summary x",
        "different files",
    );
    refused("record -p 1 -f /(/", "--func `/(/`");
    refused("record -p 1 --lib [", "--lib `[`");
    refused("report --tree callers --csv", "leave out --csv");
    refused("replay f --from 2 --to 1", "before --to");
}

#[test]
fn list_tells_file_and_pattern_apart() {
    let list = |line: &str| match planned(&format!("list {line}")) {
        Ok(Plan::List(plan)) => plan,
        other => panic!("{line}: {other:?}"),
    };
    let plan = list("functions /bin/ls ab*");
    assert_eq!(plan.what, Listing::Functions(Place::File("/bin/ls".into())));
    assert_eq!(plan.pattern, Some(Pattern::Glob("ab*".into())));
    let plan = list("sites -p 7 ab* --exits ret");
    assert_eq!(
        plan.what,
        Listing::Sites(Place::Process(Pid(7), vec![]), Exits::Ret)
    );
    assert_eq!(plan.pattern, Some(Pattern::Glob("ab*".into())));
    assert_eq!(
        list("processes redis").pattern,
        Some(Pattern::Glob("redis".into()))
    );
    refused("list functions", "give a FILE");
    refused("list functions -p 7 a b", "what is `b`");
    refused("list processes -p 7", "not --pid");
}

#[test]
fn report_defaults_to_the_file_that_record_writes() {
    let Ok(Plan::Report(plan)) = planned("report") else {
        panic!()
    };
    assert_eq!(plan.file, PathBuf::from("scalpel.genome"));
    assert_eq!((plan.format, plan.limit), (Format::Text, Some(40)));
    let Ok(Plan::Report(plan)) = planned("report x --json -n 0") else {
        panic!()
    };
    assert_eq!((plan.format, plan.limit), (Format::Json, None));
}

#[test]
fn a_graph_is_of_a_file_or_of_a_process_and_keeps_nothing() {
    let graph = |line: &str| match planned(&format!("graph {line}")) {
        Ok(Plan::Graph(plan)) => *plan,
        other => panic!("{line}: {other:?}"),
    };
    let of_file = graph("hash run.genome --depth 2 --min-time 1ms");
    assert_eq!(of_file.source, GraphSource::File("run.genome".into()));
    assert_eq!((of_file.depth, of_file.min_ns), (Some(2), 1_000_000));
    assert_eq!(
        graph("hash").source,
        GraphSource::File("scalpel.genome".into())
    );
    let GraphSource::Live(live) = graph("hash -p 7 -d 1").source else {
        panic!()
    };
    assert_eq!(live.outputs.genome, Destination::Nowhere);
    assert_eq!(live.measurement.sample_hz, 99);
    refused("graph /(/", "FUNC `/(/`");
    refused("graph a --caller /(/", "--caller `/(/`");
}

#[test]
fn top_looks_once_or_until_its_user_has_seen_enough() {
    let top = |line: &str| match planned(&format!("top {line}")) {
        Ok(Plan::Top(plan)) => *plan,
        other => panic!("{line}: {other:?}"),
    };
    let live = top("-p 7");
    assert_eq!(live.record.duration, None);
    assert_eq!(live.record.outputs.genome, Destination::Nowhere);
    assert_eq!(live.record.measurement.mode, Mode::Count);
    let once = top("-p 7 --once -i 0.5");
    assert_eq!(once.record.duration, Some(Duration::from_millis(500)));
    let longer = top("-p 7 --once -d 3 --json -n 0");
    assert_eq!(longer.record.duration, Some(Duration::from_secs(3)));
    assert_eq!((longer.json, longer.limit), (true, None));
    refused("top -p 1 -i 1ms", "at least 50ms");
    refused("top -- ls", "--pid, or --once");
    top("--once -- ls");
}

#[test]
fn a_host_is_sampled_and_nothing_of_it_is_probed() {
    let host = record("-a -d 1");
    assert_eq!(host.target, Target::Host(None));
    assert_eq!(host.measurement.mode, Mode::Sample);
    assert_eq!(host.runtimes.mode, ProbeMode::Off);
    let during = record("--all -- ls -l -p");
    assert_eq!(during.target.command().unwrap().args.len(), 2);
    refused("record -a -m count", "--all samples");
    refused("record -a -F 0", "records nothing");
}

#[test]
fn a_cgroup_is_recorded_with_the_children_of_its_members() {
    let group = record("--cgroup a/b");
    assert_eq!(group.target, Target::Cgroup("a/b".into()));
    assert_eq!(group.measurement.mode, Mode::Count);
    assert!(group.subprocesses);
    refused("record -m sample -F 0 -p 1", "--off-cpu");
    let waits = record("-m sample -F 0 --off-cpu -p 1").measurement;
    assert_eq!(waits.off_cpu, Some(Duration::from_millis(1)));
}

#[test]
fn triggers_are_functions_with_a_time_and_bring_what_explains_a_slow_call() {
    let plan = record("-p 1 --trigger handle>10ms --trigger Vec<int>>250us -F 9 -o a/b.genome");
    let triggers: Vec<_> = plan
        .triggers
        .iter()
        .map(|one| (one.func.to_string(), one.threshold))
        .collect();
    assert_eq!(
        triggers,
        [
            ("handle".to_owned(), Duration::from_millis(10)),
            ("Vec<int>".to_owned(), Duration::from_micros(250))
        ]
    );
    assert_eq!(plan.choice.awaited.len(), 2);
    assert_eq!(plan.measurement.mode, Mode::Trace);
    assert_eq!(plan.measurement.max_overhead, words::Overhead::Off);
    assert_eq!(plan.measurement.off_cpu, Some(Duration::from_micros(25)));
    assert_eq!(plan.outputs.stream, Some("a/b.stream".into()));
    assert_eq!(
        record("-p 1 --trigger a>9s --off-cpu --off-cpu-min 3ms --keep-stream x")
            .measurement
            .off_cpu,
        Some(Duration::from_millis(3))
    );
    assert_eq!(record("-p 1").measurement.off_cpu, None);
    refused(
        "record -p 1 --trigger handle",
        "looks like handle_request>10ms",
    );
    refused("record -p 1 --trigger handle>10", "needs its unit");
    refused("record -p 1 --trigger handle>10parsecs", "unknown unit");
    refused("record -p 1 --trigger >10ms", "matches nothing");
    refused("record -p 1 --trigger 0x10>1ms", "name it");
    refused("record -p 1 --trigger a>1ms --complete", "--complete");
    refused("record -p 1 --trigger a>1ms --exits none", "--exits none");
    refused("record -p 1 --trigger a>1ms --mode count", "--mode");
}

#[test]
fn functions_whose_return_values_are_kept_are_named_and_streamed() {
    let plan = record("-p 1 -R parse_* --return-values /^get/ -f main");
    let returns: Vec<String> = plan.returns.iter().map(ToString::to_string).collect();
    assert_eq!(returns, ["parse_*", "/^get/"]);
    assert_eq!(plan.choice.awaited, plan.returns);
    assert_eq!(plan.measurement.mode, Mode::Trace);
    assert_eq!(plan.measurement.max_overhead, words::Overhead::Off);
    assert_eq!(plan.outputs.stream, None);
    assert!(record("-p 1 -f main").returns.is_empty());
    refused("record -p 1 -R 0x10", "name it");
    refused("record -p 1 -R parse_* --mode count", "one by one");
    refused("record -p 1 -R parse_* --mode sample", "one by one");
    refused("record -p 1 -R parse_* --complete", "--complete");
    refused("record -p 1 -R parse_* --exits none", "--exits none");
}
