use super::model::{Rule, World};
use super::*;
use crate::event::{Kind, Source};

fn event(tid: u32, seq: u32, time: u64) -> Event {
    Event {
        time,
        pid: 1,
        tid,
        func: 1,
        seq,
        kind: Kind::Enter as u8,
        source: Source::Uprobe as u8,
        ..Event::default()
    }
}

/// Released items as words: `tid:seq`, `gap`, `end`, `exec`, `sample`.
#[derive(Default)]
struct Seen(Vec<String>);

impl Seen {
    fn take(&mut self, item: Released<'_>) {
        match item {
            Released::Events(events) => self.0.extend(
                events
                    .iter()
                    .map(|event| format!("{}:{}", event.tid, event.seq)),
            ),
            Released::Gap { tid, lost, .. } => self.0.push(format!("{tid}:gap{lost}")),
            Released::Sample(sample) => self.0.push(format!("{}:sample", sample.event.tid)),
            Released::ThreadEnded { tid, .. } => self.0.push(format!("{tid}:end")),
            Released::Executed { .. } => self.0.push("exec".into()),
        }
    }
}

enum Step<'a> {
    Events(&'a [Event]),
    Control(Control),
    Sample(u32, u64),
    Drained(u64),
}
use Step::{Drained, Events};

fn check(steps: &[Step<'_>], expect: &str) {
    let (mut order, mut seen) = (Order::new(), Seen::default());
    for step in steps {
        match step {
            Events(events) => order.events(events),
            Step::Control(control) => order.control(control),
            Step::Sample(tid, time) => {
                order.sample(Sample {
                    event: event(*tid, 0, *time),
                    user: vec![],
                    kernel: vec![],
                    copy: None,
                });
            }
            Drained(time) => order.drained(MonoTime(*time), &mut |item| seen.take(item)),
        }
        seen.0.push("|".into());
    }
    let seen = seen.0.join(" ");
    assert_eq!(
        seen.split_whitespace()
            .filter(|word| *word != "|")
            .collect::<Vec<_>>()
            .join(" "),
        expect
    );
}

fn ended(tid: u32, time: u64) -> Step<'static> {
    Step::Control(Control::Exit {
        time: MonoTime(time),
        pid: Pid(1),
        tid: Tid(tid),
        process_ended: None,
    })
}

#[test]
fn nothing_is_released_before_the_drain_that_makes_it_certain() {
    check(&[Events(&[event(1, 1, 10)])], "");
    check(&[Events(&[event(1, 1, 10)]), Drained(9)], "");
    check(
        &[Events(&[event(1, 1, 10), event(1, 2, 11)]), Drained(10)],
        "1:1",
    );
}

#[test]
fn events_from_two_rings_come_out_in_sequence() {
    check(
        &[
            Events(&[event(1, 2, 20), event(1, 4, 40)]),
            Events(&[event(1, 1, 10), event(1, 3, 30)]),
            Drained(40),
        ],
        "1:1 1:2 1:3 1:4",
    );
}

#[test]
fn a_missing_number_is_a_gap_only_when_it_cannot_come_any_more() {
    check(
        &[
            Events(&[event(1, 1, 10), event(1, 3, 30)]),
            Drained(20),
            Events(&[event(1, 2, 25)]),
            Drained(30),
        ],
        "1:1 1:2 1:3",
    );
    check(
        &[
            Events(&[event(1, 1, 10), event(1, 4, 30)]),
            Drained(30),
            Drained(40),
        ],
        "1:1 1:gap2 1:4",
    );
    check(&[Events(&[event(1, 3, 30)]), Drained(30)], "1:gap2 1:3");
}

#[test]
fn an_event_behind_a_declared_gap_is_counted_and_dropped() {
    let mut order = Order::new();
    let mut seen = Seen::default();
    for batch in [
        [event(1, 1, 10), event(1, 3, 30)],
        [event(1, 2, 20), event(1, 4, 40)],
    ] {
        order.events(&batch);
        order.drained(MonoTime(40), &mut |item| seen.take(item));
    }
    assert_eq!(seen.0.join(" "), "1:1 1:gap1 1:3 1:4");
    assert_eq!(order.late(), 1);
}

#[test]
fn the_sequence_wraps() {
    let mut order = Order::new();
    let mut seen = Seen::default();
    let lane = |seq, time| Event {
        source: Source::Python as u8,
        ..event(1, seq, time)
    };
    order.events(&[lane(u32::MAX - 1, 1)]);
    order.drained(MonoTime(1), &mut |item| seen.take(item));
    order.events(&[lane(1, 4), lane(u32::MAX, 2)]);
    order.drained(MonoTime(4), &mut |item| seen.take(item));
    assert_eq!(seen.0.join(" "), "1:4294967294 1:4294967295 1:gap1 1:1");
}

#[test]
fn a_reused_thread_number_begins_a_new_sequence() {
    let both = [
        event(1, 1, 10),
        event(1, 2, 20),
        event(1, 1, 50),
        event(1, 2, 60),
        event(1, 3, 70),
    ];
    check(
        &[Events(&both), ended(1, 30), Drained(100)],
        "1:1 1:2 1:end 1:1 1:2 1:3",
    );
    check(
        &[
            Events(&both[..2]),
            Drained(20),
            Events(&both[2..]),
            ended(1, 30),
            Drained(100),
        ],
        "1:1 1:2 1:end 1:1 1:2 1:3",
    );
}

#[test]
fn a_reused_number_is_seen_even_if_the_end_was_lost() {
    let (old, new) = (
        [event(1, 1, 10), event(1, 2, 20)],
        [event(1, 1, 50), event(1, 2, 60), event(1, 3, 70)],
    );
    check(
        &[Events(&old), Drained(20), Events(&new), Drained(70)],
        "1:1 1:2 1:end 1:1 1:2 1:3",
    );
}

#[test]
fn after_an_exec_any_number_may_come() {
    let exec = Step::Control(Control::Exec {
        time: MonoTime(20),
        pid: Pid(1),
        path: String::new(),
    });
    check(
        &[
            Events(&[event(1, 1, 10), event(1, 70, 30)]),
            exec,
            Drained(30),
        ],
        "1:1 exec 1:70",
    );
}

#[test]
fn samples_stand_between_the_events_around_them() {
    check(
        &[
            Step::Sample(1, 15),
            Events(&[event(1, 1, 10), event(1, 2, 20)]),
            Drained(12),
            Drained(20),
        ],
        "1:1 1:sample 1:2",
    );
}

#[test]
fn a_probes_stream_and_the_kernels_meet_by_time() {
    let python = |seq, time| Event {
        source: Source::Python as u8,
        seq,
        ..event(1, seq, time)
    };
    check(
        &[
            Events(&[event(1, 1, 20), event(1, 2, 30)]),
            Events(&[python(8, 10), python(9, 40)]),
            Drained(40),
        ],
        "1:8 1:1 1:2 1:9",
    );
}

/// Many random worlds: returns how many broke the truth, with one reason.
fn broken(rule: Rule, worlds: u64) -> (u64, Option<String>) {
    let failures: Vec<String> = (0..worlds)
        .filter_map(|seed| World::new(seed).run(rule).err())
        .collect();
    (failures.len() as u64, failures.into_iter().next())
}

#[test]
fn released_order_is_the_true_order_minus_what_was_lost() {
    assert_eq!(broken(Rule::AfterFullDrain, 3000), (0, None));
}

#[test]
fn the_model_catches_release_on_arrival() {
    assert!(broken(Rule::OnArrival, 300).0 > 100);
}

#[test]
fn the_model_catches_a_drain_that_passed_over_a_record_being_written() {
    assert!(broken(Rule::DespiteBusyRecords, 300).0 > 20);
}

#[test]
fn a_thread_that_begins_with_an_impossible_number_does_not_begin_for_ever() {
    for seq in [0, 1 << 31 | 1, u32::MAX] {
        let mut order = Order::new();
        let mut seen = Seen::default();
        order.events(&[event(1, seq, 10), event(1, 1, 20)]);
        order.drained(MonoTime(30), &mut |item| seen.take(item));
        assert_eq!((seen.0.join(" ").as_str(), order.late()), ("1:1", 1));
    }
}
