use super::{Filter, Timeline};
use crate::event::{Event, Kind, MonoTime, Pid, Tid, flags};
use crate::genome::tests::example;
use crate::sink::Style;

/// What a stream brings: an event, or so many lost ones.
#[derive(Clone, Copy)]
enum Item {
    Event(Event),
    Gap(u64),
}

fn event(time: u64, tid: u32, kind: Kind, func: u32, frame: u64) -> Item {
    Item::Event(Event {
        time,
        pid: 4242,
        tid,
        func,
        frame,
        kind: kind as u8,
        ..Event::default()
    })
}

/// `serve` calls `walk`, which calls itself and hash; an exception passes two frames; events are lost; a second
/// thread runs meanwhile; one call never ends.
fn stream() -> Vec<Item> {
    use Kind::{Enter, Exit};
    let no_exit = |item| match item {
        Item::Event(event) => Item::Event(Event {
            flags: flags::NO_EXIT,
            ..event
        }),
        gap => gap,
    };
    vec![
        event(1_000_000_000, 4242, Enter, 1, 0x900),
        event(1_000_010_000, 4242, Enter, 2, 0x880),
        event(1_000_012_000, 4250, Enter, 8, 0x700),
        event(1_000_015_500, 4250, Exit, 8, 0x700),
        event(1_000_020_000, 4242, Enter, 8, 0x800),
        event(1_000_021_234, 4242, Exit, 8, 0x800),
        no_exit(event(1_000_030_000, 4242, Enter, 3, 0x800)),
        event(1_000_040_000, 4242, Enter, 2, 0x800),
        event(1_000_041_000, 4242, Enter, 8, 0x780),
        event(1_000_050_000, 4242, Exit, 2, 0x880),
        event(1_000_060_000, 4242, Enter, 2, 0x880),
        Item::Gap(5),
        event(1_000_090_000, 4242, Enter, 8, 0x890),
        event(1_000_091_000, 4242, Exit, 8, 0x890),
        event(1_000_092_000, 4242, Exit, 4, 0x123),
        event(1_000_095_000, 4250, Enter, 99, 0x700),
    ]
}

fn timeline(filter: Filter) -> String {
    let genome = example();
    let mut out = Vec::new();
    let mut timeline = Timeline::new(genome.run.started, Style::default(), filter);
    for half in stream().chunks(8) {
        half.iter().for_each(|item| match item {
            Item::Event(event) => timeline.events(&[*event]),
            Item::Gap(lost) => timeline.gap(Pid(4242), Tid(4242), *lost),
        });
        timeline.release(&genome.functions, &mut out).unwrap();
    }
    timeline
        .finish(MonoTime(1_000_100_000), &genome.functions, &mut out)
        .unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_narrow_terminal_gets_no_longer_lines() {
    let genome = example();
    let lines = |columns: Option<usize>| {
        let mut out = Vec::new();
        let mut timeline = Timeline::new(genome.run.started, Style::default(), Filter::default());
        if let Some(columns) = columns {
            timeline = timeline.within(columns);
        }
        stream().iter().for_each(|item| match item {
            Item::Event(event) => timeline.events(&[*event]),
            Item::Gap(lost) => timeline.gap(Pid(4242), Tid(4242), *lost),
        });
        timeline
            .finish(MonoTime(1_000_100_000), &genome.functions, &mut out)
            .unwrap();
        let text = String::from_utf8(out).unwrap();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let whole = lines(None);
    for columns in [50, 60, 80] {
        let narrow = lines(Some(columns));
        assert_eq!(narrow.len(), whole.len());
        let most = narrow
            .iter()
            .map(|line| crate::sink::text::width(line))
            .max();
        assert!(most <= Some(columns), "{narrow:#?}");
    }
    assert_eq!(lines(Some(200)), whole);
}

#[test]
fn calls_are_indented_under_their_callers() {
    insta::assert_snapshot!(timeline(Filter::default()));
}

#[test]
fn one_thread_within_a_time_and_a_depth() {
    let filter = Filter {
        tid: Some(Tid(4242)),
        from: Some(MonoTime(1_000_005_000)),
        to: Some(MonoTime(1_000_055_000)),
        depth: Some(2),
        ..Filter::default()
    };
    insta::assert_snapshot!(timeline(filter));
}

#[test]
fn one_function_with_what_it_calls() {
    let filter = Filter {
        func: Some(Box::new(|func| func.get() == 2)),
        ..Filter::default()
    };
    insta::assert_snapshot!(timeline(filter));
}

#[test]
fn a_limit_ends_it() {
    let text = timeline(Filter {
        limit: Some(2),
        ..Filter::default()
    });
    assert_eq!(
        text.matches("() {").count() + text.matches("();").count(),
        2,
        "{text}"
    );
}

#[test]
fn an_exec_ends_every_call_of_the_process() {
    let genome = example();
    let mut out = Vec::new();
    let mut timeline = Timeline::new(genome.run.started, Style::default(), Filter::default());
    let Item::Event(enter) = event(1_000_001_000, 4242, Kind::Enter, 1, 0x900) else {
        return;
    };
    timeline.events(&[enter]);
    timeline.ended(MonoTime(1_000_003_000), Pid(4242), None);
    timeline
        .finish(MonoTime(1_000_009_000), &genome.functions, &mut out)
        .unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(
        text.contains("2.00 µs") && text.ends_with("} /* serve */ [ended]\n"),
        "{text}"
    );
}
