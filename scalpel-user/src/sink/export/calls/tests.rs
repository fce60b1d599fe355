//! Whatever a stream lost, tracks are balanced; what cannot be seen says so.

use proptest::prelude::*;

use super::{End, Moment, Part, Start, Tracks, What};
use crate::event::{Event, Kind, MonoTime, Pid, Source, Tid, flags};

fn everything() -> Part {
    Part {
        from: MonoTime(0),
        to: MonoTime(u64::MAX),
        tid: None,
    }
}

fn event(time: u64, kind: Kind, func: u32, frame: u64) -> Event {
    Event {
        time,
        kind: kind as u8,
        func,
        frame,
        pid: 1,
        tid: 1,
        source: Source::Uprobe as u8,
        ..Event::default()
    }
}

/// What comes out, a word a moment: `+2` begins function 2, `-2` ends it, `.2` is an entry.
fn told(moments: &[Moment]) -> String {
    let word = |moment: &Moment| {
        let time = moment.time.0;
        match moment.what {
            What::Begin { func, start, .. } => (format!("+{func}@{time}"), start.word()),
            What::End { func, end } => (format!("-{func}@{time}"), end.word()),
            What::Entry { func, .. } => (format!(".{func}@{time}"), None),
            What::Lost(lost) => (format!("?{lost}@{time}"), None),
        }
    };
    let words = moments.iter().map(word);
    let words =
        words.map(|(text, mark)| text + &mark.map_or_else(String::new, |mark| format!("({mark})")));
    words.collect::<Vec<_>>().join(" ")
}

fn run(part: Part, feed: impl FnOnce(&mut Tracks, &mut Vec<Moment>)) -> Vec<Moment> {
    let (mut tracks, mut moments) = (Tracks::new(part), Vec::new());
    feed(&mut tracks, &mut moments);
    tracks
        .finish(MonoTime(100), &mut |moment| {
            moments.push(moment);
            Ok(())
        })
        .unwrap();
    moments
}

fn check(part: Part, events: &[Event], expect: &str) {
    let moments = run(part, |tracks, moments| {
        let mut out = |moment| {
            moments.push(moment);
            Ok(())
        };
        tracks.events(events, &mut out).unwrap();
    });
    assert_eq!(told(&moments), expect);
}

#[test]
fn a_call_that_an_exception_passed_ends_with_the_one_that_caught_it() {
    let events = [
        event(1, Kind::Enter, 1, 90),
        event(2, Kind::Enter, 2, 80),
        event(3, Kind::Exit, 1, 90),
    ];
    check(everything(), &events, "+1@1 +2@2 -2@3(unwound) -1@3");
}

#[test]
fn callers_of_kept_calls_began_earlier_and_ends_that_are_written_for_calls_say_so() {
    let written = |event: Event| Event {
        flags: flags::EARLIER,
        ..event
    };
    let events = [
        written(event(1, Kind::Enter, 1, 90)),
        event(5, Kind::Enter, 2, 80),
        event(6, Kind::Enter, 3, 70),
        written(event(8, Kind::Unwind, 2, 80)),
        event(20, Kind::Enter, 2, 80),
        written(event(25, Kind::Exit, 2, 80)),
        written(event(30, Kind::Unwind, 1, 90)),
    ];
    check(
        everything(),
        &events,
        "+1@1(began earlier) +2@5 +3@6 -3@8(unwound) -2@8(unwound) +2@20 -2@25(lost) -1@30(still open)",
    );
}

#[test]
fn what_is_open_at_the_end_says_so() {
    let events = [event(1, Kind::Enter, 1, 90), event(2, Kind::Enter, 2, 80)];
    let expect = "+1@1 +2@2 -2@100(still open) -1@100(still open)";
    check(everything(), &events, expect);
}

#[test]
fn an_end_among_lost_events_is_made_and_marked() {
    let moments = run(everything(), |tracks, moments| {
        let mut out = |moment| {
            moments.push(moment);
            Ok(())
        };
        let before = [event(1, Kind::Enter, 1, 90), event(2, Kind::Enter, 2, 80)];
        tracks.events(&before, &mut out).unwrap();
        tracks.gap(Pid(1), Tid(1), 3);
        // Its stack pointer is above that of function 2, whose frame is gone.
        let after = [event(9, Kind::Enter, 3, 85), event(10, Kind::Exit, 1, 90)];
        tracks.events(&after, &mut out).unwrap();
    });
    assert_eq!(
        told(&moments),
        "+1@1 +2@2 ?3@9 -2@9(lost) +3@9 -3@10(unwound) -1@10"
    );
}

#[test]
fn a_part_begins_with_what_is_open_and_ends_everything() {
    let part = Part {
        from: MonoTime(5),
        to: MonoTime(7),
        tid: None,
    };
    let events = [
        event(1, Kind::Enter, 1, 90),
        event(6, Kind::Enter, 2, 80),
        event(8, Kind::Exit, 2, 80),
        event(9, Kind::Exit, 1, 90),
    ];
    let expect = "+1@5(began earlier) +2@6 -2@7(still open) -1@7(still open)";
    check(part, &events, expect);
    // Nothing happens in the part, and yet a call goes on all through it.
    let events = [event(1, Kind::Enter, 1, 90), event(9, Kind::Exit, 1, 90)];
    check(part, &events, "+1@5(began earlier) -1@7(still open)");
    let silent = [event(1, Kind::Enter, 1, 90)];
    check(part, &silent, "+1@5(began earlier) -1@7(still open)");
}

#[test]
fn a_suspended_call_leaves_its_track_and_comes_back() {
    let python = |time, kind, func, frame| Event {
        source: Source::Python as u8,
        ..event(time, kind, func, frame)
    };
    let events = [
        python(1, Kind::Enter, 1, 7),
        python(2, Kind::Suspend, 1, 7),
        python(5, Kind::Resume, 1, 7),
        python(6, Kind::Exit, 1, 7),
    ];
    let expect = "+1@1 -1@2(suspended) +1@5(resumed) -1@6";
    check(everything(), &events, expect);
}

#[test]
fn an_end_without_a_beginning_is_counted_and_left_out() {
    let mut tracks = Tracks::new(everything());
    let events = [event(1, Kind::Exit, 1, 90)];
    tracks
        .events(&events, &mut |_| panic!("nothing to write"))
        .unwrap();
    assert_eq!(tracks.strays(), 1);
}

#[derive(Clone, Debug)]
enum Step {
    Event(Event),
    Gap(u64),
    Ended,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kinds = prop::sample::select(vec![
        Kind::Enter,
        Kind::Enter,
        Kind::Exit,
        Kind::Unwind,
        Kind::Suspend,
        Kind::Resume,
        Kind::Lost,
    ]);
    let any_event = (
        0u64..60,
        kinds,
        1u32..4,
        0u64..6,
        0u32..3,
        any::<bool>(),
        0u32..10,
    );
    let step = any_event.prop_map(|(time, kind, func, frame, tid, python, dice)| match dice {
        0 => Step::Gap(time),
        1 => Step::Ended,
        _ => Step::Event(Event {
            tid,
            flags: if dice == 2 { flags::NO_EXIT } else { 0 },
            source: if python {
                Source::Python as u8
            } else {
                Source::Uprobe as u8
            },
            ..event(time, kind, func, frame)
        }),
    });
    prop::collection::vec(step, 0..80)
}

proptest! {
    /// Whatever comes, in whatever order: on each track ends match beginnings, and time never goes back.
    #[test]
    fn tracks_are_balanced(steps in steps(), from in 0u64..40, length in 1u64..40) {
        let part = Part { from: MonoTime(from), to: MonoTime(from + length), tid: None };
        let moments = run(part, |tracks, moments| {
            for step in steps {
                let mut out = |moment| { moments.push(moment); Ok(()) };
                match step {
                    Step::Event(event) => tracks.events(&[event], &mut out).unwrap(),
                    Step::Gap(lost) => tracks.gap(Pid(1), Tid(1), lost),
                    Step::Ended => tracks.ended(MonoTime(30), Pid(1), Some(Tid(1)), &mut out).unwrap(),
                }
            }
        });
        let mut tracks = std::collections::HashMap::<_, (u64, Vec<u32>)>::new();
        for moment in moments {
            let (time, open) = tracks.entry(moment.thread).or_default();
            prop_assert!(*time <= moment.time.0 && from <= moment.time.0);
            prop_assert!(moment.time.0 <= from + length || moment.time.0 == 100);
            *time = moment.time.0;
            match moment.what {
                What::Begin { func, .. } => open.push(func),
                What::End { func, .. } => prop_assert_eq!(open.pop(), Some(func)),
                What::Entry { .. } | What::Lost(_) => {}
            }
        }
        prop_assert!(tracks.values().all(|(_, open)| open.is_empty()));
    }
}

#[test]
fn plain_words_are_for_what_is_not_plain() {
    assert_eq!((Start::Entered.word(), End::Returned.word()), (None, None));
}

/// Every kind of moment, on two threads.
fn moments() -> Vec<Moment> {
    let begin = |func, start| What::Begin {
        func,
        calls: 1,
        start,
    };
    let end = |func, end| What::End { func, end };
    let whats = [
        (1, begin(1, Start::Earlier)),
        (1, begin(2, Start::Entered)),
        (1, What::Entry { func: 3, calls: 8 }),
        (1, end(2, End::Unwound)),
        (2, begin(8, Start::Resumed)),
        (2, end(8, End::Suspended)),
        (1, What::Lost(3)),
        (1, begin(2, Start::Entered)),
        (1, end(2, End::Lost)),
        (1, end(1, End::Returned)),
        (2, begin(99, Start::Entered)),
        (2, end(99, End::Open)),
    ];
    let moment = |(at, (tid, what))| Moment {
        time: MonoTime(1_000_000_000 + 1_500 * at),
        thread: (4242, tid),
        what,
    };
    (1u64..).zip(whats).map(moment).collect()
}

#[test]
fn traces_are_known_to_the_letter() {
    let functions = crate::genome::tests::example().functions;
    let start = MonoTime(1_000_000_000);
    let mut chrome = Vec::new();
    let mut trace =
        super::chrome::Chrome::begin(&mut chrome, start, &serde_json::json!({})).unwrap();
    trace.thread((4242, 1), "worker \"1\"").unwrap();
    for moment in moments() {
        trace.moment(&moment, &functions).unwrap();
    }
    trace.finish().unwrap();
    insta::assert_snapshot!("chrome", String::from_utf8(chrome).unwrap());

    let mut evented = super::evented::Evented::new();
    moments().iter().for_each(|moment| evented.moment(moment));
    let mut speedscope = Vec::new();
    let name = |thread: super::ThreadKey| format!("thread {}", thread.1);
    evented
        .write("shop", start, &functions, &name, &mut speedscope)
        .unwrap();
    insta::assert_snapshot!("evented", String::from_utf8(speedscope).unwrap());

    let mut perfetto = Vec::new();
    let mut trace = super::perfetto::Perfetto::begin(&mut perfetto, start, 4242, "shop").unwrap();
    trace.thread((4242, 1), "worker").unwrap();
    for moment in moments() {
        trace.moment(&moment, &functions).unwrap();
    }
    let hex: Vec<String> = perfetto
        .chunks(32)
        .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    insta::assert_snapshot!("perfetto", hex.join("\n"));
}
