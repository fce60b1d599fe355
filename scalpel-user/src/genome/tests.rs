//! A small genome made by hand, with every kind of trouble in it; and random ones.

use std::collections::BTreeMap;

use proptest::prelude::*;
use scalpel_common::kernel::LossClass;

use super::{BlindSpot, Counter, Genome};
use crate::event::{FuncId, MonoTime, Pid, Tid};
use crate::function::{
    ExitStrategy, FunctionInfo, FunctionTable, Language, SourcePlace, UnknownReason,
};
use crate::input::{Bound, CallEnd, KeptCall, Loss, RunInfo, Trigger};
use crate::tree::{
    Cell, Context, ContextId, EdgeSource, FunctionFaults, Histogram, Metrics, Returned, Returns,
    Thread, Tree,
};

pub(crate) fn run() -> RunInfo {
    RunInfo {
        uuid: "6f0e3e0c-6f4e-4a57-9d55-1f3c0d1d2a11".into(),
        pid: Pid(4242),
        command: "shop --port 8080".into(),
        host: "db7".into(),
        kernel: "6.18.5".into(),
        started_unix_ns: 1_764_446_400_000_000_000,
        started: MonoTime(1_000_000_000),
        mode: "trace+sample".into(),
        version: "0.1.0".into(),
        probe_cost_ns: Some((90, 900)),
        sample_hz: 99,
    }
}

pub(crate) fn function(name: &str, exit: ExitStrategy) -> FunctionInfo {
    FunctionInfo {
        name: name.into(),
        raw_name: format!("_{name}"),
        module: "shop".into(),
        path: "/srv/shop".into(),
        file: None,
        line: None,
        language: Language::C,
        build_id: "00ff".into(),
        file_offset: 0,
        size: 64,
        site_delta: 4,
        exit,
        exit_reason: String::new(),
        unknown: None,
        ordinal: 0,
        place: SourcePlace::default(),
    }
}

fn id(number: u32) -> FuncId {
    FuncId::new(number).unwrap()
}

fn context(parent: u32, func: u32, source: EdgeSource) -> Context {
    Context {
        parent: ContextId(parent),
        func: FuncId::new(func),
        source,
    }
}

fn table() -> FunctionTable {
    use ExitStrategy::{EntryOnly, None as NotProbed, Return};
    let mut functions = [
        function("serve", Return),
        function("walk", Return),
        function(
            "std::vector<std::pair<long, char const*>>::_M_realloc_insert",
            EntryOnly,
        ),
        function("shop+0x4a10", Return),
        function("memcpy", NotProbed),
        function("never_called", Return),
        function("refused", Return),
        function("hash", Return),
    ];
    functions[0].file = Some("src/serve.c".into());
    functions[0].line = Some(17);
    functions[2].exit_reason = "an exception may pass it".into();
    functions[2].language = Language::Cpp;
    functions[3].unknown = Some(UnknownReason::Stripped);
    functions[3].raw_name.clear();
    functions[4].module = "libc.so.6".into();
    functions[4].file_offset = u64::MAX - 5;
    functions[4].unknown = None;
    let mut table = FunctionTable::new();
    for (number, mut info) in (1..).zip(functions) {
        info.file_offset = if info.file_offset == 0 {
            0x1000 * u64::from(number)
        } else {
            info.file_offset
        };
        table.define(id(number), info);
    }
    table
}

/// Two threads. `serve` calls `walk`, which calls itself; an entry-only function, one without a name, one from
/// samples only, one that never ran, one that was refused and one that the breaker switched off.
pub(crate) fn example() -> Genome {
    use EdgeSource::{CallSite, Exact, Sampled};
    let timed = |calls, self_ns: u64, total_ns: u64| Metrics {
        calls,
        timed: calls,
        cpu_timed: calls,
        self_wall_ns: self_ns,
        self_cpu_ns: self_ns / 2,
        total_wall_ns: total_ns,
        total_cpu_ns: total_ns / 2,
        probe_events: 2 * calls,
        ..Metrics::default()
    };
    let cell = |window, thread, context, metrics| Cell {
        window,
        thread,
        context: ContextId(context),
        metrics,
    };
    Genome {
        run: run(),
        ended: MonoTime(13_400_000_000),
        cut: false,
        functions: table(),
        tree: Tree {
            window_ns: 1_000_000_000,
            contexts: vec![
                context(0, 0, Exact),
                context(0, 1, Exact),    // 1 serve
                context(1, 2, Exact),    // 2 serve > walk
                context(2, 2, Exact),    // 3 serve > walk > walk
                context(3, 3, Exact),    // 4 ... > realloc_insert
                context(1, 4, Exact),    // 5 serve > shop+0x4a10
                context(3, 5, Sampled),  // 6 ... > memcpy
                context(0, 8, CallSite), // 7 hash
                context(2, 8, Exact),    // 8 serve > walk > hash
            ],
            threads: vec![
                Thread {
                    pid: Pid(4242),
                    tid: Tid(4242),
                    name: "shop".into(),
                    events: 24_690,
                    lost: 0,
                },
                Thread {
                    pid: Pid(4242),
                    tid: Tid(4250),
                    name: "worker".into(),
                    events: 2_500_000,
                    lost: 12,
                },
            ],
            cells: vec![
                cell(
                    0,
                    0,
                    1,
                    Metrics {
                        timed: 2,
                        unwound: 1,
                        ..timed(3, 40_000_000, 9_000_000_000)
                    },
                ),
                cell(0, 0, 2, timed(1_200, 3_000_000_000, 8_000_000_000)),
                cell(0, 0, 3, timed(9_600, 4_200_000_000, 4_900_000_000)),
                cell(
                    0,
                    0,
                    4,
                    Metrics {
                        calls: 777,
                        probe_events: 777,
                        samples: 52,
                        sampled_ns: 525_252_525,
                        ..Metrics::default()
                    },
                ),
                cell(0, 0, 5, timed(8, 960_000_000, 960_000_000)),
                cell(
                    0,
                    0,
                    6,
                    Metrics {
                        samples: 21,
                        sampled_ns: 212_121_212,
                        ..Metrics::default()
                    },
                ),
                cell(
                    0,
                    0,
                    8,
                    Metrics {
                        lost: 12,
                        ..timed(500, 100_000_000, 100_000_000)
                    },
                ),
                cell(0, 1, 7, timed(1_200_000, 1_800_000_000, 1_800_000_000)),
                cell(5, 1, 7, timed(34_567, 51_000_000, 51_000_000)),
            ],
            histograms: vec![
                (
                    id(1),
                    Histogram {
                        buckets: vec![(3, 1), (700, 2)],
                    },
                ),
                (
                    id(8),
                    Histogram {
                        buckets: vec![(1, 9)],
                    },
                ),
            ],
            cpu_histograms: vec![(
                id(8),
                Histogram {
                    buckets: vec![(0, 4), (2, 5)],
                },
            )],
            returns: Vec::new(),
            faults: vec![
                (
                    id(1),
                    FunctionFaults {
                        open_at_end: 1,
                        ..FunctionFaults::default()
                    },
                ),
                (
                    id(2),
                    FunctionFaults {
                        missed_enter: 3,
                        depth_limited: 40,
                        ..FunctionFaults::default()
                    },
                ),
            ],
            folded_calls: 0,
        },
        losses: vec![
            Loss {
                class: LossClass::Enter,
                cpu: Some(1),
                func: None,
                count: 12,
            },
            Loss {
                class: LossClass::Enter,
                cpu: None,
                func: Some(id(8)),
                count: 12,
            },
        ],
        bounds: vec![
            Bound {
                func: id(7),
                since: None,
                reason: "refused by the kernel".into(),
            },
            Bound {
                func: id(8),
                since: Some(MonoTime(7_500_000_000)),
                reason: "over budget".into(),
            },
        ],
        notes: vec!["the program was started by another user".into()],
        counters: BTreeMap::from([(Counter::RecursionMisses, 2)]),
        catalog: crate::catalog::Catalog::default(),
        facts: crate::catalog::FactsOfFiles::default(),
        matches: crate::catalog::Matches::default(),
        blind_spots: vec![BlindSpot {
            probe: "uprobe".into(),
            what: "functions that were inlined".into(),
        }],
        triggers: Vec::new(),
        kept: Vec::new(),
    }
}

/// The same, as if it had been asked what two of its functions return: one that does, and one whose end is not watched.
pub(crate) fn returning() -> Genome {
    let mut genome = example();
    genome.run.mode = "trace+sample+returns".into();
    let returned = |calls| Returned { calls, exact: true };
    let walk = Returns {
        calls: 10_800,
        values: BTreeMap::from([
            (0, returned(9_000)),
            (i64::from(u32::MAX), returned(1_500)),
            (0x7f12_3456_7000, returned(100)),
        ]),
        other: 150,
        range: Some((-7, 0x7fff_ffff_f000)),
    };
    let entry_only = Returns {
        calls: 777,
        ..Returns::default()
    };
    genome.tree.returns = vec![(id(2), walk), (id(3), entry_only)];
    genome
}

/// The same, as a trigger would have kept it: one call of `walk` in another.
pub(crate) fn triggered() -> Genome {
    let call = |began, ended, items| KeptCall {
        trigger: 0,
        func: FuncId::new(2).unwrap(),
        pid: Pid(4242),
        tid: Tid(4250),
        began: MonoTime(began),
        ended: MonoTime(ended),
        end: CallEnd::Returned,
        cpu_ns: Some(2_000_000),
        waits: 1,
        waited_ns: 30_000_000,
        lost: 0,
        left_out: 0,
        items,
    };
    Genome {
        triggers: vec![Trigger {
            text: "walk>10ms".into(),
            threshold_ns: 10_000_000,
            calls: 1_200,
            over: 2,
            kept: 2,
            slowest_ns: 48_000_000,
            ..Trigger::default()
        }],
        kept: vec![
            call(9_100_000_000, 9_148_000_000, 70),
            call(9_900_000_000, 9_912_000_000, 8),
        ],
        ..example()
    }
}

/// What two genomes must have in common to be the same.
pub(crate) fn canonical(genome: &Genome) -> String {
    let functions: Vec<_> = genome.functions.iter().collect();
    format!(
        "{:#?}",
        (
            (
                &genome.run,
                genome.ended,
                genome.cut,
                functions,
                &genome.tree
            ),
            (
                &genome.losses,
                &genome.bounds,
                &genome.notes,
                &genome.counters,
                &genome.blind_spots
            ),
            (&genome.triggers, &genome.kept)
        )
    )
}

/// One random node: which earlier one it hangs below, its function, its own times and counts.
type Node = (prop::sample::Index, u32, u64, u64);

/// Random trees over four functions in which self and children add up to total, on two threads.
pub(crate) fn any_genome() -> impl Strategy<Value = Genome> {
    let node = (
        any::<prop::sample::Index>(),
        1u32..5,
        0u64..1_000_000,
        0u64..100,
    );
    prop::collection::vec(node, 1..40).prop_map(|nodes| grow(&nodes))
}

fn grow(nodes: &[Node]) -> Genome {
    let mut genome = example();
    let tree = &mut genome.tree;
    tree.contexts.truncate(1);
    let mut metrics = vec![Metrics::default()];
    for (at, (parent, func, ns, calls)) in (1u32..).zip(nodes) {
        tree.contexts.push(context(
            parent.index(at as usize) as u32,
            *func,
            EdgeSource::Exact,
        ));
        metrics.push(Metrics {
            calls: *calls,
            timed: 1,
            cpu_timed: 1,
            self_wall_ns: *ns,
            self_cpu_ns: ns / 3,
            total_wall_ns: *ns,
            total_cpu_ns: ns / 3,
            samples: ns % 7,
            ..Metrics::default()
        });
    }
    for at in (1..metrics.len()).rev() {
        let (child, parent) = (metrics[at], tree.contexts[at].parent.0 as usize);
        metrics[parent].total_wall_ns += child.total_wall_ns;
        metrics[parent].total_cpu_ns += child.total_cpu_ns;
    }
    let cell = |at: usize| Cell {
        window: at as u32 / 7,
        thread: at as u32 % 2,
        context: ContextId(at as u32),
        metrics: metrics[at],
    };
    tree.cells = (1..metrics.len()).map(cell).collect();
    tree.cells
        .sort_unstable_by_key(|cell| (cell.window, cell.thread, cell.context));
    let mut returns: BTreeMap<FuncId, Returns> = BTreeMap::new();
    for (_, func, ns, calls) in nodes {
        let value = (ns % 7).cast_signed() - 3;
        returns.entry(id(*func)).or_default().add(&Returns {
            calls: calls + 2,
            values: BTreeMap::from([(
                value,
                Returned {
                    calls: *calls,
                    exact: true,
                },
            )]),
            other: ns % 3 / 2,
            range: Some((value - 1, value)),
        });
    }
    tree.returns = returns.into_iter().collect();
    genome
}
