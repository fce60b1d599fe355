//! A genome file as it comes from a stranger: reading it, and reporting what was read, never panics.
//!
//! An input that begins like a SQLite file is taken as it is. Any other is a list of changes (3 bytes position, 1 byte
//! value) to a sound genome: so the fuzzer gets behind the header without a corpus.
#![no_main]

use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use scalpel_user::event::{FuncId, MonoTime, Pid, Tid};
use scalpel_user::function::{ExitStrategy, FunctionInfo, FunctionTable, Language, SourcePlace, UnknownReason};
use scalpel_user::genome::Genome;
use scalpel_user::genome::assemble::Assembly;
use scalpel_user::input::RunInfo;
use scalpel_user::sink::tree::Way;
use scalpel_user::sink::{By, Choice, Columns, Form, Page, Style, choice};
use scalpel_user::tree::{Cell, Context, ContextId, EdgeSource, Metrics, Returned, Returns, Thread, Tree};

fuzz_target!(|bytes: &[u8]| {
    let file = if bytes.starts_with(b"SQLite") { bytes.to_vec() } else { changed(bytes) };
    let path = place("read");
    std::fs::write(&path, file).expect("the temporary folder is writable");
    if let Ok(genome) = Genome::read(&path) {
        report(&genome);
    }
});

fn report(genome: &Genome) {
    let forms = [Form::Json, Form::Csv, Form::Table, Form::Tree(Way::Callees), Form::Tree(Way::Callers)];
    for (form, by) in forms.into_iter().zip([By::Function, By::Thread, By::Module, By::Function, By::Function]) {
        for columns in [Columns::Usual, Columns::PerCall] {
            let choice = Choice { form, by, columns, sort: None, limit: 20, returned: true, func: None, max_loss: 0.001 };
            let page = Page { width: 80, style: Style { color: true } };
            choice::write(genome, &choice, page, &mut std::io::sink()).expect("a sink takes everything");
        }
    }
}

fn changed(bytes: &[u8]) -> Vec<u8> {
    static SOUND: OnceLock<Vec<u8>> = OnceLock::new();
    let sound = SOUND.get_or_init(|| {
        let path = place("sound");
        genome().write(&path).expect("the temporary folder is writable");
        std::fs::read(path).expect("it was just written")
    });
    let mut file = sound.clone();
    for change in bytes.chunks_exact(4) {
        let [a, b, c, value] = change else { continue };
        let at = u32::from_be_bytes([0, *a, *b, *c]) as usize % file.len();
        file[at] = *value;
    }
    file
}

fn place(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("scalpel-fuzz-{}-{name}.genome", std::process::id()))
}

fn genome() -> Genome {
    let id = |number| FuncId::new(number).expect("not 0");
    let mut functions = FunctionTable::new();
    for number in 1..=4 {
        functions.define(id(number), function(number));
    }
    let context = |parent, func| Context { parent: ContextId(parent), func: FuncId::new(func), source: EdgeSource::Exact };
    let metrics = Metrics { calls: 3, timed: 3, cpu_timed: 3, self_wall_ns: 5, total_wall_ns: 9, ..Metrics::default() };
    let cell = |context| Cell { window: 0, thread: 0, context: ContextId(context), metrics };
    let returns = Returns {
        calls: 6,
        values: [(-1, Returned { calls: 2, exact: true })].into(),
        other: 3,
        range: Some((-1, 7)),
    };
    let tree = Tree {
        window_ns: 1_000_000_000,
        contexts: vec![context(0, 0), context(0, 1), context(1, 2), context(2, 2), context(2, 3)],
        threads: vec![Thread { pid: Pid(7), tid: Tid(8), name: "main".into(), events: 24, lost: 1 }],
        cells: (1..5).map(cell).collect(),
        returns: vec![(id(2), returns)],
        ..Tree::default()
    };
    let mut assembly = Assembly::new();
    assembly.note("a note".into());
    assembly.ended(MonoTime(2_000_000_000));
    assembly.finish(run(), functions, tree)
}

fn run() -> RunInfo {
    RunInfo {
        uuid: "6f0e3e0c-6f4e-4a57-9d55-1f3c0d1d2a11".into(),
        pid: Pid(7),
        command: "fuzzed".into(),
        host: "host".into(),
        kernel: "6.18".into(),
        started_unix_ns: 1,
        started: MonoTime(1),
        mode: "trace".into(),
        version: "0".into(),
        probe_cost_ns: Some((1, 2)),
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
        unknown: (number == 4).then_some(UnknownReason::Stripped),
        ordinal: 0,
        place: SourcePlace::default(),
    }
}
