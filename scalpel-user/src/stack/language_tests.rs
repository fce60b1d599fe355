//! Tests of calls that probes in language runtimes tell: tasks, suspensions, greenlets, CPU time.

use super::*;
use crate::event::{CPU_NOT_MEASURED, Source};
use crate::tree::{ContextId, Metrics};

/// Events as probes write them, at the times that a test says, on several threads.
struct Score {
    builder: Builder,
    source: Source,
}

const PID: u32 = 7;

impl Score {
    fn new(source: Source) -> Self {
        let options = Options {
            window_ns: u64::MAX / 4,
            ..Options::default()
        };
        Self {
            builder: Builder::new(options),
            source,
        }
    }

    /// `time tid kind function frame task`, one event a line: `+` enters, `-` exits, `!` throws, `s` suspends, `r` resumes,
    /// `i` is switched in with its CPU time as frame, `(` and `)` are native enter and exit with its stack pointer as frame.
    fn play(mut self, lines: &str) -> Tree {
        let mut last = 0;
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words.get(at).map_or(0, |word| word.parse::<u64>().unwrap());
            let (kind, source) = match words[2] {
                "+" => (Kind::Enter, self.source),
                "-" => (Kind::Exit, self.source),
                "!" => (Kind::Unwind, self.source),
                "s" => (Kind::Suspend, self.source),
                "r" => (Kind::Resume, self.source),
                "i" => (Kind::SwitchIn, Source::Sched),
                "(" => (Kind::Enter, Source::Uprobe),
                ")" => (Kind::Exit, Source::Uprobe),
                other => panic!("{other}"),
            };
            let (frame, task) = (number(4), number(5));
            let is_switch = kind == Kind::SwitchIn;
            let is_enter = kind == Kind::Enter && source != Source::Uprobe;
            let event = Event {
                time: number(0),
                cpu_ns: if is_switch { frame } else { CPU_NOT_MEASURED },
                pid: PID,
                tid: number(1) as u32,
                func: words[3]
                    .chars()
                    .next()
                    .map_or(0, |c| (c as u32).saturating_sub('a' as u32 - 1)),
                frame,
                value: if is_enter { task } else { 0 },
                site: if is_enter { 0 } else { task },
                kind: kind as u8,
                source: source as u8,
                ..Event::default()
            };
            let event = if is_switch {
                Event { func: 0, ..event }
            } else {
                event
            };
            last = event.time;
            self.builder.events(&[event]);
        }
        self.builder.finish(MonoTime(last), &mut |_, _| None)
    }
}

/// Sums per path, over threads.
fn sums(tree: &Tree) -> Vec<(String, Metrics)> {
    let path = |mut id: ContextId| {
        let mut path = String::new();
        while id != ContextId::ROOT {
            let context = tree.contexts[id.0 as usize];
            let letter = context
                .func
                .map_or('?', |func| (b'a' + func.get() as u8 - 1) as char);
            path.insert(0, letter);
            id = context.parent;
        }
        path
    };
    let mut sums = std::collections::BTreeMap::<String, Metrics>::new();
    for cell in &tree.cells {
        sums.entry(path(cell.context))
            .or_default()
            .add(&cell.metrics);
    }
    sums.into_iter().collect()
}

/// `path calls/timed self total` of each path that was called or took time.
fn check(source: Source, lines: &str, expect: &[&str]) -> Tree {
    let tree = Score::new(source).play(lines);
    let seen: Vec<String> = sums(&tree)
        .iter()
        .map(|(path, m)| {
            format!(
                "{path} {}/{} {} {}",
                m.calls, m.timed, m.self_wall_ns, m.total_wall_ns
            )
        })
        .collect();
    assert_eq!(seen, expect);
    tree
}

fn missed(tree: &Tree) -> u64 {
    tree.faults
        .iter()
        .map(|(_, faults)| faults.missed_enter)
        .sum()
}

#[test]
fn waiting_is_nobodys_own_time_and_is_kept_apart() {
    let tree = check(
        Source::Python,
        "10 1 + a 100
         20 1 + b 200 5
         30 1 s b 200 5
         90 1 r b 200 5
         95 1 - b 200 5
         99 1 - a 100",
        &["a 1/1 74 89", "ab 1/1 15 15"],
    );
    let b = &sums(&tree)[1].1;
    assert_eq!((b.pre_await_ns, b.suspended_ns), (10, 60));
    let histogram = &tree
        .histograms
        .iter()
        .find(|(func, _)| func.get() == 2)
        .unwrap()
        .1;
    assert_eq!(histogram.buckets, [(tree::Histogram::bucket_of(15), 1)]);
}

#[test]
fn a_task_goes_on_on_another_thread() {
    let tree = check(
        Source::Python,
        "10 1 + a 100 5
         20 1 s a 100 5
         30 2 + b 300
         40 2 r a 100 5
         55 2 - a 100 5
         60 2 - b 300",
        &["a 1/0 10 10", "b 1/1 15 30", "ba 0/1 15 15"],
    );
    assert_eq!(missed(&tree), 0);
}

#[test]
fn a_second_suspension_is_not_the_first() {
    let tree = Score::new(Source::Node).play(
        "0 1 + a 1 1
         5 1 s a 1 1
         10 1 r a 1 1
         20 1 s a 1 1
         50 1 r a 1 1
         51 1 - a 1 1",
    );
    let a = sums(&tree)[0].1;
    assert_eq!(
        (a.pre_await_ns, a.suspended_ns, a.self_wall_ns),
        (5, 35, 16)
    );
    assert_eq!((a.calls, a.timed), (1, 1));
}

#[test]
fn greenlets_take_turns_on_one_thread_without_a_word() {
    // Main (task 1) calls `a`, which switches to a greenlet (task 2) in `b`; back in `a`, `c` is called; and so on.
    let tree = check(
        Source::Python,
        "10 1 + a 100 1
         20 1 + b 200 2
         30 1 + c 110 1
         40 1 - c 110 1
         50 1 + d 210 2
         60 1 - d 210 2
         70 1 - a 100 1
         80 1 - b 200 2",
        &[
            "a 1/1 20 60",
            "ab 1/1 20 30",
            "abd 1/1 10 10",
            "ac 1/1 10 10",
        ],
    );
    assert_eq!(missed(&tree), 0);
}

#[test]
fn javascript_has_one_stack_whatever_its_tasks() {
    let tree = check(
        Source::Node,
        "10 1 + a 1 1
         20 1 + b 2 0
         30 1 + c 3 3
         40 1 - c 3 3
         50 1 - b 2 0
         60 1 - a 1 1",
        &["a 1/1 20 50", "ab 1/1 20 30", "abc 1/1 10 10"],
    );
    assert_eq!(missed(&tree), 0);
}

#[test]
fn frames_of_a_broken_stack_end_with_the_one_below() {
    check(
        Source::Node,
        "10 1 + a 1
         20 1 + b 2
         30 1 + c 3
         40 1 - a 1
         50 1 + d 4
         60 1 - d 4",
        &[
            "a 1/1 10 30",
            "ab 1/1 10 20",
            "abc 1/1 10 10",
            "d 1/1 10 10",
        ],
    );
}

#[test]
fn native_frames_nest_in_language_frames() {
    let tree = check(
        Source::Python,
        "10 1 + a 100
         20 1 ( b 9000
         30 1 ( c 8900
         40 1 + d 300
         50 1 - d 300
         60 1 ) c 8900
         70 1 ) b 9000
         80 1 - a 100",
        &[
            "a 1/1 20 70",
            "ab 1/1 20 50",
            "abc 1/1 20 30",
            "abcd 1/1 10 10",
        ],
    );
    assert_eq!(missed(&tree), 0);
}

#[test]
fn a_native_return_does_not_end_another_greenlets_calls() {
    // `b` is the native switch, of the main task; `c` runs in a greenlet when the switch returns.
    let tree = check(
        Source::Python,
        "10 1 + a 100 1
         20 1 ( b 9000
         30 1 + c 200 2
         40 1 ) b 9000
         50 1 - a 100 1
         60 1 - c 200 2",
        &["a 1/1 20 40", "ab 1/1 10 20", "abc 1/1 10 10"],
    );
    assert_eq!(missed(&tree), 0);
}

#[test]
fn a_suspended_call_can_end_without_going_on_and_an_abandoned_one_is_open_at_the_end() {
    let tree = Score::new(Source::Python).play(
        "10 1 + a 1
         20 1 s a 1
         30 1 ! a 1
         40 1 + b 2
         50 1 s b 2",
    );
    let all = sums(&tree);
    assert_eq!(
        (all[0].1.unwound, all[0].1.timed, all[0].1.suspended_ns),
        (1, 1, 10)
    );
    let open: Vec<_> = tree
        .faults
        .iter()
        .map(|(func, faults)| (func.get(), faults.open_at_end))
        .collect();
    assert_eq!(open, [(2, 1)]);
}

#[test]
fn a_call_that_goes_on_and_was_never_seen_to_begin_has_no_duration() {
    let tree = Score::new(Source::Python).play("10 1 r a 1\n 20 1 - a 1");
    assert!(tree.histograms.is_empty());
    assert_eq!(sums(&tree)[0].1.self_wall_ns, 10);
}

#[test]
fn cpu_time_runs_with_the_clock_while_the_thread_is_on_a_processor() {
    let tree = Score::new(Source::Python).play(
        "100 1 i x 50
         110 1 + a 1
         120 1 + b 2
         500 1 i x 80
         510 1 - b 2
         520 1 - a 1",
    );
    let all = sums(&tree);
    // a: 110..120 and 510..520; b: from 120, on the processor until its account says 80, and 500..510.
    assert_eq!((all[0].1.self_cpu_ns, all[0].1.self_wall_ns), (20, 20));
    assert_eq!((all[1].1.self_cpu_ns, all[1].1.self_wall_ns), (20, 390));
    assert_eq!((all[0].1.cpu_timed, all[1].1.cpu_timed), (1, 1));
}

#[test]
fn without_a_word_from_the_scheduler_cpu_time_is_not_known() {
    let tree = Score::new(Source::Python).play("110 1 + a 1\n 120 1 - a 1");
    assert_eq!((sums(&tree)[0].1.cpu_timed, sums(&tree)[0].1.timed), (0, 1));
    let mut score = Score::new(Source::Python);
    score.builder.events(&[Event {
        time: 100,
        cpu_ns: 50,
        pid: PID,
        tid: 1,
        kind: Kind::SwitchIn as u8,
        source: Source::Sched as u8,
        ..Event::default()
    }]);
    score.builder.switches_lost(Pid(PID), Tid(1));
    let tree = score.play("110 1 + a 1\n 120 1 - a 1");
    assert_eq!(sums(&tree)[0].1.self_cpu_ns, 0);
}

#[test]
fn calls_that_a_probe_lost_break_no_stack() {
    let mut score = Score::new(Source::Python);
    let event = |time, kind: Kind, func, value| Event {
        time,
        cpu_ns: CPU_NOT_MEASURED,
        pid: PID,
        tid: 1,
        func,
        frame: u64::from(func),
        value,
        kind: kind as u8,
        source: Source::Python as u8,
        ..Event::default()
    };
    score.builder.events(&[
        event(10, Kind::Enter, 1, 0),
        event(20, Kind::Lost, 0, 100),
        event(30, Kind::Enter, 2, 0),
        event(40, Kind::Exit, 2, 0),
        event(50, Kind::Exit, 1, 0),
    ]);
    let tree = score.builder.finish(MonoTime(60), &mut |_, _| None);
    assert_eq!(tree.threads[0].lost, 100);
    assert!(tree.faults.is_empty());
    assert_eq!(sums(&tree)[0].1.timed, 1);
}
