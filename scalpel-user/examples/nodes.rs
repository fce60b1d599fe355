//! What a genome of very many nodes costs: `nodes NODES SEED FILE` makes a calling-context tree with so many contexts, each with
//! a cell, and writes it to FILE as a recording does. Prints one line of JSON: nodes, seconds, bytes.
#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use scalpel_user::event::{FuncId, MonoTime, Pid, Tid};
use scalpel_user::function::{ExitStrategy, FunctionInfo, FunctionTable, Language, SourcePlace};
use scalpel_user::genome::Genome;
use scalpel_user::input::RunInfo;
use scalpel_user::tree::{Cell, ContextId, Contexts, EdgeSource, Metrics, Thread, Tree};

const FUNCTIONS: u32 = 4096;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: nodes NODES SEED FILE";
    let nodes: usize = arguments.next().context(usage)?.parse()?;
    let seed: u64 = arguments.next().context(usage)?.parse()?;
    let path = arguments.next().context(usage)?;
    let genome = Genome {
        functions: functions()?,
        tree: tree(nodes, seed),
        ended: MonoTime(60_000_000_000),
        ..Genome::of_run(run(seed))
    };
    let begin = Instant::now();
    genome.write(Path::new(&path))?;
    let seconds = begin.elapsed().as_secs_f64();
    let bytes = std::fs::metadata(&path)?.len();
    println!(
        "{}",
        serde_json::json!({"nodes": genome.tree.contexts.len(), "seconds": seconds, "bytes": bytes})
    );
    Ok(())
}

fn run(seed: u64) -> RunInfo {
    RunInfo {
        uuid: uuid::Uuid::from_u64_pair(seed, seed).to_string(),
        pid: Pid(1),
        command: "nodes".into(),
        host: "host".into(),
        kernel: "6".into(),
        started_unix_ns: 0,
        started: MonoTime(0),
        mode: "trace".into(),
        version: "0".into(),
        probe_cost_ns: None,
        sample_hz: 0,
    }
}

fn functions() -> anyhow::Result<FunctionTable> {
    let mut table = FunctionTable::new();
    for number in 1..=FUNCTIONS {
        let id = FuncId::new(number).context("functions are numbered from 1")?;
        table.define(
            id,
            FunctionInfo {
                name: format!("shop::module_{}::function_{number}", number % 64),
                raw_name: format!("_ZN4shop8function{number}Ev"),
                module: "shop".into(),
                path: "/srv/shop".into(),
                file: Some(format!("src/module_{}.rs", number % 64)),
                line: Some(number),
                language: Language::Rust,
                build_id: "00ff".into(),
                file_offset: u64::from(number) * 64,
                size: 64,
                site_delta: 0,
                exit: ExitStrategy::Return,
                exit_reason: String::new(),
                unknown: None,
                ordinal: 0,
                place: SourcePlace::default(),
            },
        );
    }
    Ok(table)
}

/// Random paths, in the order in which a program would make them: each new context hangs below one of the latest.
fn tree(nodes: usize, mut state: u64) -> Tree {
    let mut draw = |below: u64| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    };
    let mut contexts = Contexts::of(Vec::new());
    while contexts.all().len() < nodes {
        let known = contexts.all().len() as u64;
        let parent = known - 1 - draw(known.min(64));
        let func = FuncId::new(1 + draw(u64::from(FUNCTIONS)) as u32);
        contexts.intern(ContextId(parent as u32), func, EdgeSource::Exact);
    }
    let metrics = |calls: u64, ns: u64| Metrics {
        calls,
        timed: calls,
        cpu_timed: calls,
        self_wall_ns: ns,
        self_cpu_ns: ns / 2,
        total_wall_ns: 2 * ns,
        total_cpu_ns: ns,
        probe_events: 2 * calls,
        ..Metrics::default()
    };
    let contexts = contexts.into_all();
    let cells = (1..contexts.len() as u32).map(|id| Cell {
        window: 0,
        thread: 0,
        context: ContextId(id),
        metrics: metrics(1 + draw(100), draw(1_000_000)),
    });
    Tree {
        window_ns: 1_000_000_000,
        cells: cells.collect(),
        contexts,
        threads: vec![Thread {
            pid: Pid(1),
            tid: Tid(1),
            ..Thread::default()
        }],
        ..Tree::default()
    }
}
