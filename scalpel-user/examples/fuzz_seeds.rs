//! Beginnings for the fuzz targets: `fuzz_seeds CORPUS` writes a sound log, raw events and ring records into the
//! folders of the targets that read them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use scalpel_user::event::{Addr, Control, Event, FuncId, Kind, MonoTime, Pid, Sample, Source, Tid};
use scalpel_user::function::{ExitStrategy, FunctionInfo, Language, SourcePlace};
use scalpel_user::input::{Input, RunInfo, Symbol};
use scalpel_user::log::Writer;

const PID: u32 = 7;

fn main() -> Result<()> {
    let Some(corpus) = std::env::args_os().nth(1).map(PathBuf::from) else {
        bail!("usage: fuzz_seeds CORPUS");
    };
    let log = log()?;
    put(&corpus, "chunk_log", "recording", &log)?;
    put(&corpus, "session", "recording", &log)?;
    let raw: Vec<u8> = calls().iter().flat_map(Event::to_bytes).collect();
    put(&corpus, "event", "calls", &raw)?;
    put(&corpus, "ring_record", "calls", &raw)?;
    put(&corpus, "ring_record", "sample", &sample_record())
}

fn put(corpus: &Path, target: &str, name: &str, bytes: &[u8]) -> Result<()> {
    let folder = corpus.join(target);
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(folder.join(name), bytes))
        .with_context(|| format!("cannot write {} into {}", name, folder.display()))
}

fn log() -> Result<Vec<u8>> {
    let mut writer = Writer::new(Vec::new(), Path::new("seed"));
    for input in inputs() {
        writer.write(&input)?;
    }
    Ok(writer.finish()?)
}

fn inputs() -> Vec<Input> {
    let (pid, time) = (Pid(PID), MonoTime(2_000));
    let mut inputs = vec![Input::Run(run())];
    inputs.extend((1..=3).filter_map(|number| {
        Some(Input::Function(
            FuncId::new(number)?,
            function(number).into(),
        ))
    }));
    inputs.push(Input::Control(Control::Map {
        time: MonoTime(1_000),
        pid,
        start: Addr(0x1000),
        end: Addr(0x9000),
        offset: 0,
        path: "/program".into(),
    }));
    inputs.push(Input::Events(calls()));
    inputs.push(Input::Sample(sample()));
    inputs.push(Input::Drained(time));
    let symbol = |number| Symbol {
        pid,
        address: 0x1010,
        func: Ok(number),
    };
    inputs.push(Input::Symbols(
        FuncId::new(1).map(symbol).into_iter().collect(),
    ));
    inputs.push(Input::ThreadName(pid, Tid(PID), "main".into()));
    inputs.push(Input::Control(Control::Exit {
        time,
        pid,
        tid: Tid(PID),
        process_ended: Some(0),
    }));
    inputs.push(Input::End(time));
    inputs
}

/// 1 calls 2, which calls 3 by a tail jump.
fn calls() -> Vec<Event> {
    let script = [
        (Kind::Enter, 1, 0, 0),
        (Kind::Enter, 2, 32, 0x1011),
        (Kind::Enter, 3, 32, 0x1011),
        (Kind::Exit, 3, 32, 0),
        (Kind::Exit, 2, 32, 0),
        (Kind::Exit, 1, 0, 0),
    ];
    (1u32..)
        .zip(script)
        .map(|(seq, (kind, func, depth, site))| Event {
            kind: kind as u8,
            func,
            site,
            ..event(seq, depth)
        })
        .collect()
}

fn event(seq: u32, depth: u64) -> Event {
    Event {
        time: 1_000 + 100 * u64::from(seq),
        cpu_ns: 50 * u64::from(seq),
        pid: PID,
        tid: PID,
        seq,
        frame: 0x7ffd_0000_0000 - depth,
        source: Source::Uprobe as u8,
        ..Event::default()
    }
}

fn sample() -> Sample {
    let event = Event {
        kind: Kind::Sample as u8,
        source: Source::Sampler as u8,
        value: 10_000,
        ..event(4, 0)
    };
    Sample {
        event,
        user: vec![0x1010, 0x2010],
        kernel: vec![0xffff_ffff_8100_0000],
        copy: None,
    }
}

/// As the sample ring holds it: the event, two counts, the frames.
fn sample_record() -> Vec<u8> {
    let sample = sample();
    let mut record = sample.event.to_bytes().to_vec();
    for frames in [&sample.user, &sample.kernel] {
        record.extend((frames.len() as u32).to_le_bytes());
    }
    record.extend(
        sample
            .user
            .iter()
            .chain(&sample.kernel)
            .flat_map(|frame| frame.to_le_bytes()),
    );
    record
}

fn run() -> RunInfo {
    RunInfo {
        uuid: "6f0e3e0c-6f4e-4a57-9d55-1f3c0d1d2a11".into(),
        pid: Pid(PID),
        command: "program".into(),
        host: "host".into(),
        kernel: "6.18".into(),
        started_unix_ns: 1,
        started: MonoTime(1_000),
        mode: "trace+sample".into(),
        version: "0".into(),
        probe_cost_ns: None,
        sample_hz: 99,
    }
}

fn function(number: u32) -> FunctionInfo {
    FunctionInfo {
        name: format!("function_{number}"),
        raw_name: String::new(),
        module: "program".into(),
        path: "/program".into(),
        file: None,
        line: None,
        language: Language::C,
        build_id: "00ff".into(),
        file_offset: u64::from(number) << 12,
        size: 64,
        site_delta: 0,
        exit: ExitStrategy::Return,
        exit_reason: String::new(),
        unknown: None,
        ordinal: 0,
        place: SourcePlace::default(),
    }
}
