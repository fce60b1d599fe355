//! Random programs with known truth: recursion, tail calls, exceptions and entry-only functions, on several threads.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::tests::{assert_sound, info, sums};
use super::*;
use crate::event::{Addr, Source, flags};

pub(super) const PID: Pid = Pid(1);
pub(super) const FUNCTIONS: u32 = 6;
/// Code of function `f`: `f << 16`, as long as that.
const CODE: u64 = 1 << 16;
const TRAMPOLINE: u64 = 0x7fff_ffff_e000;

#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Call { func: u32, size: u64 },
    TailCall { func: u32 },
    Return,
    Throw { frames: usize },
    Work { ns: u64 },
}

pub(super) fn ops(throws: bool) -> impl Strategy<Value = Vec<Op>> {
    let call = (2..=FUNCTIONS, 1u64..6).prop_map(|(func, size)| Op::Call {
        func,
        size: size * 16,
    });
    let tail = (2..=FUNCTIONS).prop_map(|func| Op::TailCall { func });
    let throw = (1usize..4).prop_map(|frames| Op::Throw { frames });
    let work = (1u64..1000).prop_map(|ns| Op::Work { ns });
    let weight = |weight: u32| if throws { weight } else { 0 };
    let op = prop_oneof![
        8 => call,
        6 => Just(Op::Return),
        3 => work,
        weight(1) => throw,
        weight(1) => tail,
    ];
    proptest::collection::vec(op, 1..300)
}

/// An open call of the program.
#[derive(Clone, Copy)]
struct Open {
    func: u32,
    sp: u64,
    site: u64,
}

/// What happened, by (caller, callee) and by function; and the events that tell of it.
#[derive(Default)]
pub(super) struct Run {
    pub(super) events: Vec<Event>,
    open: Vec<Open>,
    time: u64,
    next_site: u64,
    /// Bit `f`: function `f` has no exit probe.
    entry_only: u32,
    edges: BTreeMap<(u32, u32), u64>,
    self_ns: BTreeMap<u32, u64>,
    /// By function and value.
    returned: BTreeMap<(u32, i64), u64>,
    tail_calls: u64,
    thrown: u64,
}

impl Run {
    pub(super) fn of(tid: u32, entry_only: u32, ops: &[Op]) -> Self {
        let mut run = Self {
            entry_only: entry_only & !0b11,
            time: u64::from(tid),
            ..Self::default()
        };
        run.enter(0, 1, 0x7000_0000 * u64::from(tid), 0x10_0000);
        for &op in ops {
            run.step(op);
        }
        while !run.open.is_empty() {
            run.pass(7);
            run.leave();
        }
        run.events.iter_mut().for_each(|event| event.tid = tid);
        run
    }

    fn times(&self, func: u32) -> bool {
        self.entry_only >> func & 1 == 0
    }

    fn step(&mut self, op: Op) {
        self.pass(3);
        let Some(&top) = self.open.last() else { return };
        match op {
            Op::Work { ns } => self.pass(ns),
            Op::Call { func, size } if self.open.len() < 50 => {
                self.next_site = (self.next_site + 1) % CODE;
                self.enter(
                    top.func,
                    func,
                    top.sp - size,
                    u64::from(top.func) * CODE + self.next_site + 1,
                );
            }
            Op::TailCall { func } if self.open.len() > 1 && self.open.len() < 50 => {
                self.tail_call(func, top)
            }
            Op::Return if self.open.len() > 1 => self.leave(),
            Op::Throw { frames } => {
                // `main` catches; functions that jumped to one another go together.
                for _ in 0..frames.min(self.open.len() - 1) {
                    self.drop_frame();
                }
            }
            _ => {}
        }
    }

    fn pass(&mut self, ns: u64) {
        self.time += ns;
        if let Some(top) = self.open.last() {
            *self.self_ns.entry(top.func).or_default() += ns;
        }
    }

    fn enter(&mut self, caller: u32, func: u32, sp: u64, site: u64) {
        *self.edges.entry((caller, func)).or_default() += 1;
        self.open.push(Open { func, sp, site });
        let flags = if self.times(func) { 0 } else { flags::NO_EXIT };
        self.write(Kind::Enter, func, sp, site, flags);
    }

    /// A function without exit probe leaves no trace of its jump: by its return address its caller made the call.
    fn tail_call(&mut self, func: u32, top: Open) {
        if self.times(top.func) {
            self.tail_calls += 1;
            self.enter(top.func, func, top.sp, TRAMPOLINE);
        } else if top.site != TRAMPOLINE {
            self.open.pop();
            self.enter((top.site / CODE) as u32, func, top.sp, top.site);
        }
    }

    /// The innermost frame returns, and with it all functions that had jumped to the one that stands in it.
    fn leave(&mut self) {
        let Some(&Open { sp, .. }) = self.open.last() else {
            return;
        };
        while let Some(top) = self.open.pop_if(|top| top.sp == sp) {
            if self.times(top.func) {
                self.write(Kind::Exit, top.func, sp, 0, 0);
                self.give(top.func);
            }
        }
    }

    /// What the call whose EXIT was just written returned.
    fn give(&mut self, func: u32) {
        let value = (self.time % 3).cast_signed() - 1;
        *self.returned.entry((func, value)).or_default() += 1;
        if let Some(exit) = self.events.last_mut() {
            exit.value = value.cast_unsigned();
        }
    }

    fn drop_frame(&mut self) {
        let Some(&Open { sp, .. }) = self.open.last() else {
            return;
        };
        while self.open.len() > 1
            && let Some(top) = self.open.pop_if(|top| top.sp == sp)
        {
            self.thrown += u64::from(self.times(top.func));
        }
    }

    fn write(&mut self, kind: Kind, func: u32, frame: u64, site: u64, flags: u16) {
        let (kind, source) = (kind as u8, Source::Uprobe as u8);
        let (time, pid) = (self.time, PID.0);
        self.events.push(Event {
            time,
            cpu_ns: time / 2,
            pid,
            func,
            frame,
            site,
            flags,
            kind,
            source,
            ..Event::default()
        });
    }
}

/// What a function of the programs is.
pub(super) fn function(func: u32) -> FunctionInfo {
    FunctionInfo {
        size: CODE,
        ..info(u64::from(func) * CODE)
    }
}

/// Where they are mapped.
pub(super) fn mapped() -> Control {
    Control::Map {
        time: MonoTime(0),
        pid: PID,
        start: Addr(0),
        end: Addr(CODE * 16),
        offset: 0,
        path: "/bin/test".into(),
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new(Options {
        window_ns: 10_000,
        ..Options::default()
    });
    for func in 1..=FUNCTIONS {
        builder.function(FuncId::new(func).unwrap(), &function(func));
        builder.ask_returns(FuncId::new(func).unwrap());
    }
    builder.control(&mapped());
    builder
}

fn finish(builder: Builder) -> Tree {
    let tree = builder.finish(MonoTime(1 << 40), &mut |_, _| None);
    assert_sound(&tree);
    tree
}

fn func_of(tree: &Tree, context: tree::ContextId) -> u32 {
    tree.contexts[context.0 as usize]
        .func
        .map_or(0, FuncId::get)
}

fn edges(tree: &Tree) -> BTreeMap<(u32, u32), u64> {
    let mut edges = BTreeMap::new();
    for (context, metrics) in sums(tree) {
        let parent = tree.contexts[context.0 as usize].parent;
        if metrics.calls > 0 {
            *edges
                .entry((func_of(tree, parent), func_of(tree, context)))
                .or_default() += metrics.calls;
        }
    }
    edges
}

fn returned(tree: &Tree) -> BTreeMap<(u32, i64), u64> {
    let values = |(func, returns): &(FuncId, tree::Returns)| {
        let func = func.get();
        let values = returns.values.clone().into_iter();
        values.map(move |(value, returned)| ((func, value), returned.calls))
    };
    tree.returns.iter().flat_map(values).collect()
}

/// Of no function more values than calls.
fn assert_bounded(tree: &Tree) {
    let mut calls: BTreeMap<u32, u64> = BTreeMap::new();
    for (context, metrics) in sums(tree) {
        *calls.entry(func_of(tree, context)).or_default() += metrics.calls;
    }
    for (func, returns) in &tree.returns {
        let calls = calls.get(&func.get()).copied().unwrap_or(0);
        assert_eq!(returns.calls, calls, "{func:?}");
        assert_eq!(returns.seen() + returns.without(), calls, "{func:?}");
    }
}

fn added<K: Ord + Copy>(runs: &[Run], of: impl Fn(&Run) -> &BTreeMap<K, u64>) -> BTreeMap<K, u64> {
    let mut sum = BTreeMap::new();
    for (&key, &count) in runs.iter().flat_map(of) {
        *sum.entry(key).or_default() += count;
    }
    sum
}

/// Feeds all threads in turn, some events at a time.
fn feed(builder: &mut Builder, runs: &[Run]) {
    let mut parts: Vec<_> = runs.iter().map(|run| run.events.chunks(5)).collect();
    while parts
        .iter_mut()
        .filter_map(|part| part.next().map(|events| builder.events(events)))
        .count()
        > 0
    {}
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn plain_calls_are_counted_and_timed_exactly(programs in proptest::collection::vec(ops(false), 1..4)) {
        let runs: Vec<Run> = (1..).zip(&programs).map(|(tid, ops)| Run::of(tid, 0, ops)).collect();
        let mut builder = builder();
        feed(&mut builder, &runs);
        let tree = finish(builder);
        let mut self_ns: BTreeMap<u32, u64> = BTreeMap::new();
        for (context, metrics) in sums(&tree) {
            *self_ns.entry(func_of(&tree, context)).or_default() += metrics.self_wall_ns;
            prop_assert_eq!((metrics.timed, metrics.unwound, metrics.inferred), (metrics.calls, 0, 0));
        }
        prop_assert_eq!(self_ns, added(&runs, |run| &run.self_ns));
        prop_assert_eq!(edges(&tree), added(&runs, |run| &run.edges));
        prop_assert_eq!(returned(&tree), added(&runs, |run| &run.returned));
        assert_bounded(&tree);
        prop_assert_eq!(tree.faults, []);
    }

    #[test]
    fn edges_survive_exceptions_tail_calls_and_functions_without_exit(
        programs in proptest::collection::vec(ops(true), 1..4),
        entry_only in 0u32..128,
    ) {
        let runs: Vec<Run> = (1..).zip(&programs).map(|(tid, ops)| Run::of(tid, entry_only, ops)).collect();
        let mut builder = builder();
        feed(&mut builder, &runs);
        let tree = finish(builder);
        let sum = sums(&tree).values().fold(tree::Metrics::default(), |mut sum, metrics| {
            sum.add(metrics);
            sum
        });
        prop_assert_eq!(edges(&tree), added(&runs, |run| &run.edges));
        prop_assert_eq!(returned(&tree), added(&runs, |run| &run.returned));
        assert_bounded(&tree);
        prop_assert_eq!(sum.tail_calls, runs.iter().map(|run| run.tail_calls).sum::<u64>());
        prop_assert_eq!(sum.unwound, runs.iter().map(|run| run.thrown).sum::<u64>());
        prop_assert_eq!(tree.faults, []);
    }

    #[test]
    fn with_losses_the_count_and_what_was_lost_bound_the_truth(
        program in ops(true),
        entry_only in 0u32..128,
        lost in proptest::collection::vec(0usize..300, 0..60),
    ) {
        let run = Run::of(1, entry_only, &program);
        let mut builder = builder();
        let (mut gap, mut seen) = (0, 0);
        for (index, event) in run.events.iter().enumerate() {
            if lost.contains(&index) {
                gap += 1;
                continue;
            }
            if gap > 0 {
                builder.gap(PID, Tid(1), std::mem::take(&mut gap));
            }
            seen += u64::from(event.kind == Kind::Enter as u8);
            builder.events(&[*event]);
        }
        let truth: u64 = run.edges.values().sum();
        let tree = finish(builder);
        let calls: u64 = sums(&tree).values().map(|metrics| metrics.calls).sum();
        prop_assert_eq!(calls, seen);
        assert_bounded(&tree);
        // A thread all of whose events were lost before its first gap could be reported is unknown to the tree.
        let reported = tree.threads.first().map_or(0, |thread| thread.lost);
        prop_assert!(calls <= truth && calls + reported + gap >= truth);
    }
}
