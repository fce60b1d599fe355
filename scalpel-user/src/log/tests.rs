use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use scalpel_common::kernel::LossClass;

use super::chunk::{CHUNK_HEAD, FILE_HEAD};
use super::*;
use crate::event::{Addr, Control, Event, FuncId, Kind, MonoTime, Pid, Sample, Source, Tid};
use crate::function::{ExitStrategy, FunctionInfo, Language, SourcePlace, UnknownReason};
use crate::input::{
    Bound, CallEnd, CountedEdge, CountedSite, CountedTimes, Counts, Inlined, Input, KeptCall, Loss,
    RunInfo, Symbol, Trigger,
};

const NAME: &str = "test.log";

fn event(seq: u32) -> Event {
    let (kind, source) = (Kind::Enter as u8, Source::Uprobe as u8);
    Event {
        time: 1000 + u64::from(seq),
        pid: 1,
        tid: 2,
        func: 3,
        seq,
        frame: 0x7fff,
        kind,
        source,
        ..Event::default()
    }
}

fn info(name: &str, unknown: Option<UnknownReason>) -> FunctionInfo {
    FunctionInfo {
        name: name.into(),
        raw_name: format!("_Z{name}"),
        module: "libé.so".into(),
        path: "/lib/libé.so".into(),
        file: unknown.is_none().then(|| "a.c".into()),
        line: unknown.is_none().then_some(12),
        language: Language::Cpp,
        build_id: "00ff".into(),
        file_offset: 0x1000,
        size: 64,
        site_delta: 4,
        exit: ExitStrategy::RetOffsets,
        exit_reason: "asked for".into(),
        unknown,
        ordinal: 2,
        place: SourcePlace::default(),
    }
}

fn func(number: u32) -> FuncId {
    FuncId::new(number).unwrap()
}

fn edge(pid: Pid, site: CountedSite) -> CountedEdge {
    CountedEdge {
        pid,
        func: func(3),
        site,
        calls: 1,
        timed: 2,
        unwound: 3,
        refused: 4,
        self_wall_ns: 5,
        self_cpu_ns: 6,
        total_wall_ns: 7,
        total_cpu_ns: 8,
        probe_events: 9,
    }
}

fn kept(end: CallEnd, cpu_ns: Option<u64>) -> Input {
    Input::Kept(KeptCall {
        trigger: 0,
        func: FuncId::new(3).unwrap(),
        pid: Pid(7),
        tid: Tid(8),
        began: MonoTime(30),
        ended: MonoTime(60),
        end,
        cpu_ns,
        waits: 2,
        waited_ns: 20,
        lost: 1,
        left_out: 4,
        items: 6,
    })
}

/// One of everything.
fn inputs() -> Vec<Input> {
    let (time, pid, tid, path) = (MonoTime(5), Pid(1), Tid(2), String::from("/bin/true"));
    vec![
        Input::Run(RunInfo {
            uuid: "u".into(),
            pid,
            command: "true".into(),
            host: "h".into(),
            kernel: "6.18".into(),
            started_unix_ns: u64::MAX,
            started: time,
            mode: "trace".into(),
            version: "0.1".into(),
            probe_cost_ns: Some((800, 1200)),
            sample_hz: 99,
        }),
        Input::Function(func(3), info("f", None).into()),
        Input::Function(
            func(4),
            info("g", Some(UnknownReason::FileGone("ENOENT".into()))).into(),
        ),
        Input::Control(Control::Fork {
            time,
            parent: pid,
            child: Pid(3),
            tid,
            name: "sh".into(),
        }),
        Input::Control(Control::Exec {
            time,
            pid,
            path: path.clone(),
        }),
        Input::Control(Control::Map {
            time,
            pid,
            start: Addr(1),
            end: Addr(2),
            offset: 3,
            path,
        }),
        Input::Events((0..100).map(event).collect()),
        Input::Events(Vec::new()),
        Input::Counts(Counts {
            from: time,
            until: MonoTime(6),
            edges: [
                CountedSite::Unknown,
                CountedSite::Address(u64::MAX),
                CountedSite::Jump(func(4)),
            ]
            .map(|site| edge(pid, site))
            .to_vec(),
            times: vec![CountedTimes {
                func: func(3),
                is_cpu: true,
                buckets: vec![(0, 1), (495, u64::MAX)],
            }],
        }),
        Input::Sample(Sample {
            event: event(7),
            user: vec![1, 2, 3],
            kernel: vec![u64::MAX],
            copy: None,
        }),
        Input::Drained(MonoTime(99)),
        Input::Losses(vec![
            Loss {
                class: LossClass::Exit,
                cpu: Some(1),
                func: None,
                count: 7,
            },
            Loss {
                class: LossClass::ReturnRefused,
                cpu: None,
                func: Some(func(3)),
                count: 1,
            },
        ]),
        Input::Bound(Bound {
            func: func(3),
            since: Some(time),
            reason: "over budget".into(),
        }),
        Input::Bound(Bound {
            func: func(4),
            since: None,
            reason: "refused".into(),
        }),
        Input::Symbols(vec![
            Symbol {
                pid,
                address: 1,
                func: Ok(func(3)),
            },
            Symbol {
                pid: Pid(0),
                address: 2,
                func: Err(UnknownReason::BadFile("no ELF".into())),
            },
        ]),
        Input::Inlined(vec![Inlined {
            pid,
            address: 1,
            functions: vec![func(4), func(3)],
        }]),
        Input::ThreadName(pid, tid, "worker".into()),
        Input::Triggers(vec![Trigger {
            text: "f>1ms".into(),
            threshold_ns: 1_000_000,
            calls: 9,
            over: 3,
            kept: 2,
            endless: 1,
            suspended: 4,
            headless: 5,
            slowest_ns: 7_000_000,
        }]),
        Input::Returns(vec![func(3), func(4)]),
        kept(CallEnd::Returned, Some(5)),
        kept(CallEnd::Unwound, None),
        kept(CallEnd::Lost, None),
        kept(CallEnd::ThreadEnded, None),
        kept(CallEnd::Open, None),
        Input::Note("a note".into()),
        Input::Control(Control::Exit {
            time,
            pid,
            tid,
            process_ended: Some(9),
        }),
        Input::Control(Control::Exit {
            time,
            pid,
            tid,
            process_ended: None,
        }),
        Input::End(MonoTime(100)),
    ]
}

fn written(inputs: &[Input]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Path::new(NAME));
    for input in inputs {
        writer.write(input).unwrap();
    }
    writer.finish().unwrap()
}

fn read(bytes: &[u8]) -> (Vec<Input>, Ending) {
    let mut reader = Reader::new(bytes, Path::new(NAME)).unwrap();
    let inputs = reader.by_ref().collect();
    (inputs, reader.ending().clone())
}

/// `Events([])` says nothing and is not written.
fn without_empty(inputs: Vec<Input>) -> Vec<Input> {
    inputs
        .into_iter()
        .filter(|input| *input != Input::Events(Vec::new()))
        .collect()
}

#[test]
fn every_input_reads_back_as_it_was_written() {
    let (read, ending) = read(&written(&inputs()));
    assert_eq!(read, without_empty(inputs()));
    assert_eq!(ending, Ending::Whole);
}

#[test]
fn a_log_cut_at_any_byte_gives_a_prefix_of_the_inputs() {
    let bytes = written(&inputs());
    let whole = without_empty(inputs());
    let mut longest = 0;
    for length in 0..bytes.len() {
        let (part, ending) = read(&bytes[..length]);
        assert!(whole.starts_with(&part), "cut at {length}");
        let Ending::Cut(cut) = ending else {
            panic!("cut at {length}, but {ending:?}")
        };
        assert!(cut.at as usize <= length);
        assert!(part.len() >= longest, "a longer file gives less");
        longest = part.len();
    }
    assert_eq!(longest, whole.len() - 1);
}

#[test]
fn a_changed_byte_stops_the_reader_at_its_chunk() {
    let bytes = written(&inputs());
    let whole = without_empty(inputs());
    for at in FILE_HEAD..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x40;
        let (part, ending) = read(&damaged);
        assert!(
            whole.starts_with(&part) && part.len() < whole.len(),
            "byte {at}"
        );
        assert!(matches!(ending, Ending::Cut(_)), "byte {at}: {ending:?}");
    }
}

#[test]
fn a_chunk_of_a_later_version_is_skipped_and_counted() {
    let mut bytes = written(&[Input::Drained(MonoTime(1))]);
    chunk::ChunkHead::append(999, 1, Span::default(), b"new", &mut bytes);
    bytes.extend_from_slice(&written(&[Input::End(MonoTime(2))])[FILE_HEAD..]);
    let mut reader = Reader::new(bytes.as_slice(), Path::new(NAME)).unwrap();
    assert_eq!(reader.by_ref().count(), 2);
    assert_eq!(
        (reader.unknown_chunks(), reader.ending()),
        (1, &Ending::Whole)
    );
}

#[test]
fn a_sound_chunk_with_a_malformed_payload_is_a_cut_and_no_panic() {
    let mut bytes = written(&[Input::Drained(MonoTime(1))]);
    let at = bytes.len() as u64;
    chunk::ChunkHead::append(payload::EVENTS, 1, Span::default(), &[1; 65], &mut bytes);
    let (inputs, ending) = read(&bytes);
    assert_eq!(inputs.len(), 1);
    let reason = "malformed payload: not a whole number of events".into();
    assert_eq!(ending, Ending::Cut(Cut { at, reason }));
}

#[test]
fn what_is_no_log_is_refused_by_name() {
    let error = Reader::new(&b"SQLite format 3\0 and so on"[..], Path::new(NAME)).unwrap_err();
    assert!(matches!(error, LogError::NotALog { .. }));
    let mut newer = written(&[]);
    newer[8] = 2;
    let error = Reader::new(newer.as_slice(), Path::new(NAME)).unwrap_err();
    assert!(matches!(error, LogError::Version { found: 2, .. }));
}

#[test]
fn a_chunk_carries_its_time_range_and_the_losses_so_far() {
    let losses = Input::Losses(vec![Loss {
        class: LossClass::Enter,
        cpu: None,
        func: None,
        count: 5,
    }]);
    let bytes = written(&[losses, Input::Events(vec![event(9), event(3)])]);
    let mut reader = Reader::new(bytes.as_slice(), Path::new(NAME)).unwrap();
    assert_eq!(reader.by_ref().count(), 2);
    assert_eq!(
        reader.span(),
        Span {
            first_ns: 1003,
            last_ns: 1009,
            lost: 5
        }
    );
}

/// A disk of so many bytes.
#[derive(Clone, Default)]
struct SmallDisk(Arc<Mutex<Vec<u8>>>, usize);

impl Write for SmallDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut disk = self.0.lock().unwrap();
        let room = self.1 - disk.len();
        if room == 0 {
            return Err(io::Error::from_raw_os_error(28));
        }
        let taken = room.min(bytes.len());
        disk.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_reported_once_and_leaves_what_was_written_readable() {
    let disk = SmallDisk(Arc::default(), 20_000);
    let mut writer = Writer::new(disk.clone(), Path::new(NAME));
    let batch = Input::Events((0..100).map(event).collect());
    let mut errors = Vec::new();
    for _ in 0..10 {
        errors.extend(writer.write(&batch).and_then(|()| writer.flush()).err());
    }
    assert_eq!(errors.len(), 1);
    assert!(
        matches!(&errors[0], LogError::Write { source, .. } if source.raw_os_error() == Some(28))
    );
    assert!(writer.has_failed());
    let (inputs, ending) = read(&disk.0.lock().unwrap());
    assert_eq!(inputs.len(), (20_000 - FILE_HEAD) / (6400 + CHUNK_HEAD));
    assert!(matches!(ending, Ending::Cut(_)));
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(kind in 0u32..14, payload in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut bytes = written(&[]);
        chunk::ChunkHead::append(kind, 1, Span::default(), &payload, &mut bytes);
        read(&bytes);
        bytes.truncate(FILE_HEAD);
        bytes.extend_from_slice(&payload);
        read(&bytes);
    }
}

#[test]
fn counters_of_every_class_come_back() {
    use LossClass::*;
    let classes = [
        Enter,
        Exit,
        Sample,
        Control,
        ThreadState,
        ReturnRefused,
        RecursionMiss,
    ];
    let loss = |class| Loss {
        class,
        cpu: None,
        func: None,
        count: 1,
    };
    let losses = vec![Input::Losses(classes.map(loss).to_vec())];
    assert_eq!(read(&written(&losses)).0, losses);
}
