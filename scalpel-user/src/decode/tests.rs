use proptest::prelude::*;

use super::*;
use crate::event::flags;

fn event(kind: Kind) -> Event {
    Event {
        func: 3,
        kind: kind as u8,
        source: Source::Uprobe as u8,
        ..Event::default()
    }
}

fn census(events: &[Event]) -> Census {
    let mut census = Census::default();
    census.note(events);
    census
}

fn control_bytes(kind: u32, value: u64, other_pid: u32, path: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in [7, 0x1000, 0x200, value] {
        bytes.extend_from_slice(&u64::to_le_bytes(number));
    }
    for number in [kind, 10, 11, other_pid, 21, path.len() as u32] {
        bytes.extend_from_slice(&u32::to_le_bytes(number));
    }
    bytes.extend_from_slice(path);
    bytes
}

#[test]
fn a_record_of_three_events_reads_as_three() {
    let written = [
        event(Kind::Enter),
        event(Kind::Exit),
        Event {
            flags: flags::NO_EXIT,
            ..event(Kind::Enter)
        },
    ];
    let bytes: Vec<u8> = written.iter().flat_map(Event::to_bytes).collect();
    let mut read = Vec::new();
    assert_eq!(events(&bytes, &mut read), Ok(()));
    assert_eq!(read, written);
    assert_eq!(
        events(&bytes[..70], &mut read),
        Err(DecodeError::NotEvents { got: 70 })
    );
    assert_eq!(read.len(), 3, "nothing of a bad record is taken");
}

#[test]
fn unknown_numbers_are_counted_and_kept() {
    let strange = Event {
        kind: 200,
        source: 201,
        func: 1,
        ..Event::default()
    };
    let seen = census(&[event(Kind::Enter), strange]);
    assert_eq!(
        seen,
        Census {
            events: 2,
            unknown_kind: 1,
            unknown_source: 1,
            ..Census::default()
        }
    );
    assert!(!seen.all_ids_zero());
}

#[test]
fn a_stream_without_ids_is_seen_as_such() {
    assert!(census(&[Event::default(); 5]).all_ids_zero());
    assert!(
        census(&[Event {
            func: 0,
            ..event(Kind::Enter)
        }])
        .all_ids_zero()
    );
    assert!(!census(&[]).all_ids_zero());
    assert!(
        !census(&[Event {
            func: 0,
            ..event(Kind::ThreadEnd)
        }])
        .all_ids_zero()
    );
}

#[test]
fn a_sample_keeps_user_and_kernel_frames_apart() {
    let mut bytes = event(Kind::Sample).to_bytes().to_vec();
    bytes.extend_from_slice(&2u32.to_le_bytes());
    bytes.extend_from_slice(&1u32.to_le_bytes());
    for address in [0xa, 0xb, 0xffff_8000_0000_000cu64] {
        bytes.extend_from_slice(&address.to_le_bytes());
    }
    let read = sample(&bytes).unwrap();
    assert_eq!(
        (read.user, read.kernel),
        (vec![0xa, 0xb], vec![0xffff_8000_0000_000c])
    );
    let cut = sample(&bytes[..SAMPLE_HEADER + 12]).unwrap();
    assert_eq!((cut.user, cut.kernel), (vec![0xa], vec![]));
    bytes[64] = 200;
    assert_eq!(
        sample(&bytes),
        Err(DecodeError::TooManyFrames {
            user: 200,
            kernel: 1
        })
    );
}

#[test]
fn a_wait_has_its_place_and_as_much_of_the_stack_as_there_is() {
    let mut bytes = Event {
        site: 0x1000,
        frame: 0x7000,
        value: 50,
        ..event(Kind::SwitchIn)
    }
    .to_bytes()
    .to_vec();
    for number in [0x7100u64, 30] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    for number in [2u32, 16] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&[7; 16]);
    let read = sample(&bytes).unwrap();
    assert_eq!((read.user, read.event.value), (vec![0x1000], 50));
    let copy = *read.copy.unwrap();
    let expect = StackCopy {
        bp: 0x7100,
        short_ns: 30,
        short_waits: 2,
        bytes: vec![7; 16],
    };
    assert_eq!(copy, expect);
    let cut = sample(&bytes[..96]).unwrap();
    assert_eq!(cut.copy.unwrap().bytes, [7; 8]);
    for length in EVENT_SIZE..88 {
        let short = sample(&bytes[..length]);
        assert!(matches!(
            short,
            Err(DecodeError::Short { record: "wait", .. })
        ));
    }
}

#[test]
fn control_records_read_as_what_they_say() {
    let check = |kind, value, other, path: &[u8], expect: Control| {
        assert_eq!(
            control(&control_bytes(kind, value, other, path)),
            Ok(expect)
        );
    };
    let (time, pid, tid) = (MonoTime(7), Pid(10), Tid(11));
    check(
        1,
        0,
        20,
        b"sh",
        Control::Fork {
            time,
            parent: pid,
            child: Pid(20),
            tid: Tid(21),
            name: "sh".into(),
        },
    );
    check(
        2,
        0,
        0,
        b"/bin/sh\0rest",
        Control::Exec {
            time,
            pid,
            path: "/bin/sh".into(),
        },
    );
    check(
        3,
        9,
        0,
        b"",
        Control::Exit {
            time,
            pid,
            tid,
            process_ended: None,
        },
    );
    check(
        3,
        9,
        1,
        b"",
        Control::Exit {
            time,
            pid,
            tid,
            process_ended: Some(9),
        },
    );
    let (start, end) = (Addr(0x1000), Addr(0x1200));
    check(
        4,
        0x40,
        0,
        b"/lib/c",
        Control::Map {
            time,
            pid,
            start,
            end,
            offset: 0x40,
            path: "/lib/c".into(),
        },
    );
    assert_eq!(
        control(&control_bytes(9, 0, 0, b"")),
        Err(DecodeError::UnknownControl(9))
    );
    assert_eq!(
        control(&[0; 55]),
        Err(DecodeError::Short {
            record: "control",
            need: 56,
            got: 55
        })
    );
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut out = Vec::new();
        if events(&bytes, &mut out).is_ok() {
            census(&out);
        }
        if let Ok(sample) = sample(&bytes) {
            prop_assert!(8 * (sample.user.len() + sample.kernel.len()) <= bytes.len() - SAMPLE_HEADER);
        }
        prop_assert_eq!(control(&bytes).is_ok() && bytes.len() < CONTROL_HEADER, false);
    }
}
