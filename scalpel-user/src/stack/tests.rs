use std::collections::BTreeMap;

use super::*;
use crate::event::{Addr, Source, flags};
use crate::function::{ExitStrategy, Language, SourcePlace};
use crate::tree::{Context, ContextId, EdgeSource, Metrics};

const PID: Pid = Pid(1);
const TID: Tid = Tid(2);
/// Stack pointers of the tests: this minus the depth in bytes.
const TOP: u64 = 0x7ffd_0000_0000;
const TRAMPOLINE: u64 = 0x7fff_ffff_e000;

/// One thread's events, 10 ns of wall and 5 ns of CPU time apart.
struct Tape {
    builder: Builder,
    time: u64,
    symbols: BTreeMap<u64, u32>,
}

impl Tape {
    fn new() -> Self {
        Self::with(Options {
            window_ns: u64::MAX / 4,
            ..Options::default()
        })
    }

    fn with(options: Options) -> Self {
        Self {
            builder: Builder::new(options),
            time: 0,
            symbols: BTreeMap::new(),
        }
    }

    /// With mappings: the code of `a`, function 1, is at 0x1000..0x1100, that of `b` at 0x2000 ...
    fn with_maps(mut self, functions: &str) -> Self {
        for letter in functions.chars() {
            let offset = u64::from(number(letter)) * 0x1000;
            self.builder
                .function(FuncId::new(number(letter)).unwrap(), &info(offset));
        }
        let (start, end, path) = (Addr(0), Addr(0x10_0000), String::from("/bin/test"));
        self.builder.control(&Control::Map {
            time: MonoTime(0),
            pid: PID,
            start,
            end,
            offset: 0,
            path,
        });
        self
    }

    fn push(&mut self, event: Event) {
        self.time += 10;
        let (time, cpu_ns) = (self.time, self.time / 2);
        self.builder.events(&[Event {
            time,
            cpu_ns,
            pid: PID.0,
            tid: TID.0,
            ..event
        }]);
    }

    fn plain(&mut self, kind: Kind, letter: char, frame: u64) {
        self.push(Event {
            frame,
            func: number(letter),
            kind: kind as u8,
            source: Source::Uprobe as u8,
            ..Event::default()
        });
    }

    /// Enter, `depth` bytes below the top, called from the code of `from` (or not known).
    fn enter_from(&mut self, letter: char, depth: u64, site: u64, flags: u16) -> &mut Self {
        let (kind, source) = (Kind::Enter as u8, Source::Uprobe as u8);
        self.push(Event {
            frame: TOP - depth,
            site,
            func: number(letter),
            kind,
            source,
            flags,
            ..Event::default()
        });
        self
    }

    fn enter(&mut self, letter: char, depth: u64) -> &mut Self {
        self.enter_from(letter, depth, 0, 0)
    }

    fn entry_only(&mut self, letter: char, depth: u64, site: u64) -> &mut Self {
        self.enter_from(letter, depth, site, flags::NO_EXIT)
    }

    fn exit(&mut self, letter: char, depth: u64) -> &mut Self {
        self.plain(Kind::Exit, letter, TOP - depth);
        self
    }

    fn python(&mut self, kind: Kind, letter: char, frame: u64) -> &mut Self {
        self.push(Event {
            frame,
            func: number(letter),
            kind: kind as u8,
            source: Source::Python as u8,
            ..Event::default()
        });
        self
    }

    fn complete(&mut self, letter: char, depth: u64, duration: u64) -> &mut Self {
        self.time += 10;
        let (kind, source, value) = (Kind::Complete as u8, Source::Uprobe as u8, duration);
        let (time, frame, func) = (self.time, TOP - depth, number(letter));
        self.builder.events(&[Event {
            time,
            cpu_ns: duration / 2,
            pid: 1,
            tid: 2,
            frame,
            func,
            kind,
            source,
            value,
            ..Event::default()
        }]);
        self
    }

    fn gap(&mut self, lost: u64) -> &mut Self {
        self.builder.gap(PID, TID, lost);
        self
    }

    fn sample(&mut self, user: &[u64]) -> &mut Self {
        self.time += 10;
        let event = Event {
            time: self.time,
            pid: 1,
            tid: 2,
            value: 100,
            ..Event::default()
        };
        self.builder.sample(&Sample {
            event,
            user: user.to_vec(),
            kernel: Vec::new(),
            copy: None,
        });
        self
    }

    fn symbol(&mut self, address: u64, letter: char) -> &mut Self {
        self.symbols.insert(address, number(letter));
        self
    }

    fn tree(self) -> Tree {
        let symbols = self.symbols;
        self.builder
            .finish(MonoTime(self.time + 10), &mut |_, address| {
                symbols.get(&address).copied().and_then(FuncId::new)
            })
    }

    /// The finished tree as lines `path calls timed self/total`, and whatever else is not zero.
    fn check(self, expect: &[&str]) {
        let tree = self.tree();
        assert_sound(&tree);
        assert_eq!(render(&tree), expect);
    }
}

fn number(letter: char) -> u32 {
    letter as u32 - 'a' as u32 + 1
}

pub(super) fn info(file_offset: u64) -> FunctionInfo {
    FunctionInfo {
        name: String::new(),
        raw_name: String::new(),
        module: "test".into(),
        path: "/bin/test".into(),
        file: None,
        line: None,
        language: Language::C,
        build_id: String::new(),
        file_offset,
        size: 0x100,
        site_delta: 0,
        exit: ExitStrategy::EntryOnly,
        exit_reason: String::new(),
        unknown: None,
        ordinal: 0,
        place: SourcePlace::default(),
    }
}

pub(super) fn path(tree: &Tree, context: ContextId) -> String {
    if context == ContextId::ROOT {
        return String::new();
    }
    let Context {
        parent,
        func,
        source,
    } = tree.contexts[context.0 as usize];
    let name = func.map_or('*', |func| {
        char::from_u32(func.get() + 'a' as u32 - 1).unwrap_or('?')
    });
    let mark = match source {
        EdgeSource::Exact => "",
        EdgeSource::CallSite => "'",
        EdgeSource::Sampled => "~",
        EdgeSource::Inlined => "^",
    };
    format!("{}{name}{mark}", path(tree, parent))
}

pub(super) fn sums(tree: &Tree) -> BTreeMap<ContextId, Metrics> {
    let mut sums: BTreeMap<ContextId, Metrics> = BTreeMap::new();
    for cell in &tree.cells {
        sums.entry(cell.context).or_default().add(&cell.metrics);
    }
    sums
}

fn render(tree: &Tree) -> Vec<String> {
    let line = |(context, m): (&ContextId, &Metrics)| {
        let mut line = format!(
            "{} {} {} {}/{}",
            path(tree, *context),
            m.calls,
            m.timed,
            m.self_wall_ns,
            m.total_wall_ns
        );
        for (name, count) in [
            ("unwound", m.unwound),
            ("inferred", m.inferred),
            ("tail", m.tail_calls),
            ("lost", m.lost),
            ("samples", m.samples),
        ] {
            if count > 0 {
                line += &format!(" {name} {count}");
            }
        }
        line
    };
    let mut lines: Vec<_> = sums(tree).iter().map(line).collect();
    lines.sort();
    lines
}

/// self + children = total, for CPU and wall, on every node of every window and thread.
pub(super) fn assert_sound(tree: &Tree) {
    let mut children: BTreeMap<(u32, u32, ContextId), (u64, u64)> = BTreeMap::new();
    for cell in &tree.cells {
        let parent = tree.contexts[cell.context.0 as usize].parent;
        let sum = children
            .entry((cell.window, cell.thread, parent))
            .or_default();
        sum.0 += cell.metrics.total_wall_ns;
        sum.1 += cell.metrics.total_cpu_ns;
    }
    for cell in tree
        .cells
        .iter()
        .filter(|cell| cell.context != ContextId::ROOT)
    {
        let (wall, cpu) = children
            .get(&(cell.window, cell.thread, cell.context))
            .copied()
            .unwrap_or_default();
        let m = cell.metrics;
        assert_eq!(
            (m.self_wall_ns + wall, m.self_cpu_ns + cpu),
            (m.total_wall_ns, m.total_cpu_ns),
            "{cell:?}"
        );
    }
}

fn faults(tree: &Tree, letter: char) -> FunctionFaults {
    let found = tree
        .faults
        .iter()
        .find(|(func, _)| func.get() == number(letter));
    found.map(|(_, faults)| *faults).unwrap_or_default()
}

#[test]
fn self_time_is_what_the_callees_leave() {
    let mut tape = Tape::new();
    tape.enter('a', 0)
        .enter('b', 16)
        .exit('b', 16)
        .enter('b', 16)
        .exit('b', 16)
        .exit('a', 0);
    tape.check(&["a 1 1 30/50", "ab 2 2 20/20"]);
}

#[test]
fn cpu_time_is_charged_like_wall_time_and_apart_from_it() {
    let mut tape = Tape::new();
    tape.enter('a', 0).enter('b', 16).exit('b', 16).exit('a', 0);
    let tree = tape.tree();
    let of_a = sums(&tree)[&ContextId(1)];
    assert_eq!(
        (of_a.self_cpu_ns, of_a.total_cpu_ns, of_a.cpu_timed),
        (10, 15, 1)
    );
}

#[test]
fn what_is_deeper_than_the_returning_frame_was_unwound() {
    let mut tape = Tape::new();
    tape.enter('a', 0)
        .enter('b', 16)
        .enter('c', 32)
        .exit('a', 0);
    tape.check(&[
        "a 1 1 10/30",
        "ab 1 1 10/20 unwound 1",
        "abc 1 1 10/10 unwound 1",
    ]);
}

#[test]
fn a_call_from_higher_up_shows_that_a_long_jump_passed_the_frames_below() {
    let mut tape = Tape::new();
    tape.enter('a', 0)
        .enter('b', 32)
        .enter('c', 64)
        .enter('d', 16)
        .exit('d', 16)
        .exit('a', 0);
    tape.check(&[
        "a 1 1 20/50",
        "ab 1 1 10/20 unwound 1",
        "abc 1 1 10/10 unwound 1",
        "ad 1 1 10/10",
    ]);
}

#[test]
fn two_frames_on_one_stack_pointer_are_a_tail_call() {
    let mut tape = Tape::new();
    tape.enter('a', 0)
        .enter_from('b', 16, 0x100, 0)
        .enter_from('c', 16, TRAMPOLINE, 0);
    tape.exit('c', 16).exit('b', 16).exit('a', 0);
    let expect = ["a 1 1 30/50", "ab 1 1 10/20", "abc 1 1 10/10 tail 1"];
    tape.check(&expect);
    let mut only_one_exit = Tape::new();
    only_one_exit
        .enter('a', 0)
        .enter_from('b', 16, 0x100, 0)
        .enter_from('c', 16, 0x100, 0)
        .exit('c', 16)
        .exit('a', 0);
    only_one_exit.check(&["a 1 1 20/40", "ab 1 1 10/20", "abc 1 1 10/10 tail 1"]);
}

#[test]
fn the_exits_of_a_chain_of_tail_calls_are_no_missed_entries() {
    let mut tape = Tape::new();
    tape.enter_from('a', 0, 0x100, 0)
        .enter_from('b', 0, TRAMPOLINE, 0)
        .enter_from('c', 0, TRAMPOLINE, 0);
    tape.exit('c', 0)
        .exit('b', 0)
        .exit('a', 0)
        .enter('a', 0)
        .exit('a', 0);
    let tree = tape.tree();
    assert_eq!(tree.faults, []);
    assert_eq!(sums(&tree)[&ContextId(1)].timed, 2);
}

#[test]
fn another_return_address_on_the_same_stack_pointer_is_no_tail_call() {
    let mut tape = Tape::new();
    tape.enter('a', 0)
        .enter_from('b', 16, 0x1100, 0)
        .enter_from('c', 16, 0x1110, 0)
        .exit('c', 16)
        .exit('a', 0);
    tape.check(&["a 1 1 20/40", "ab 1 1 10/10 unwound 1", "ac 1 1 10/10"]);
}

#[test]
fn an_exit_without_its_entry_is_counted_and_skipped() {
    let mut tape = Tape::new();
    tape.exit('b', 16).enter('a', 0).exit('b', 16).exit('a', 0);
    let tree = tape.tree();
    assert_eq!(faults(&tree, 'b').missed_enter, 2);
    assert_eq!(render(&tree), ["a 1 1 20/20"]);
}

#[test]
fn entry_only_calls_are_counted_at_their_caller_and_get_no_time() {
    let mut tape = Tape::new();
    tape.enter('a', 0)
        .entry_only('b', 16, 0x1010)
        .entry_only('c', 16, 0x1020)
        .exit('a', 0);
    tape.check(&[
        "a 1 1 30/30",
        "ab 1 0 0/0 inferred 1",
        "ac 1 0 0/0 inferred 1",
    ]);
}

#[test]
fn an_entry_only_call_is_the_parent_of_what_runs_deeper() {
    let mut tape = Tape::new();
    tape.entry_only('a', 0, 0)
        .entry_only('b', 32, 0)
        .enter('c', 64)
        .exit('c', 64)
        .entry_only('d', 32, 0);
    tape.check(&[
        "a 1 0 0/10",
        "ab 1 0 0/10 inferred 1",
        "abc 1 1 10/10",
        "ad 1 0 0/0",
    ]);
}

#[test]
fn the_return_address_tells_that_an_entry_only_call_is_over() {
    // b has returned; c is called by a itself, from deeper down than b was.
    let mut tape = Tape::new().with_maps("abc");
    tape.enter('a', 0)
        .entry_only('b', 32, 0x1010)
        .entry_only('c', 64, 0x1020)
        .entry_only('c', 96, 0x3010)
        .exit('a', 0);
    tape.check(&[
        "a 1 1 40/40",
        "ab 1 0 0/0 inferred 1",
        "ac 1 0 0/0 inferred 1",
        "acc 1 0 0/0 inferred 1",
    ]);
}

#[test]
fn a_caller_that_is_not_probed_becomes_a_context_by_its_call_site() {
    let mut tape = Tape::new().with_maps("ac");
    for site in [0x5010, 0x5020, 0x1010] {
        tape.enter('a', 0)
            .enter_from('c', 64, site, 0)
            .exit('c', 64)
            .exit('a', 0);
    }
    tape.symbol(0x500f, 'x').symbol(0x501f, 'x');
    assert_eq!(tape.builder.addresses(), [(PID, 0x500f), (PID, 0x501f)]);
    tape.check(&[
        "a 3 3 60/90",
        "ac 1 1 10/10",
        "ax' 0 0 0/20",
        "ax'c 2 2 20/20",
    ]);
}

#[test]
fn a_refused_return_is_an_entry_without_end_and_a_fault() {
    let mut tape = Tape::new();
    tape.enter('a', 0)
        .enter_from('b', 16, 0, flags::NO_EXIT | flags::RETURN_REFUSED)
        .exit('a', 0);
    let tree = tape.tree();
    assert_eq!(faults(&tree, 'b').return_refused, 1);
    assert_eq!(render(&tree), ["a 1 1 20/20", "ab 1 0 0/0 inferred 1"]);
}

#[test]
fn calls_beyond_the_kernels_return_depth_are_closed_by_their_parent_and_marked() {
    let mut tape = Tape::new();
    for depth in 0..100 {
        tape.enter('f', depth * 16);
    }
    for depth in (0..64).rev() {
        tape.exit('f', depth * 16);
    }
    let tree = tape.tree();
    assert_sound(&tree);
    assert_eq!(
        faults(&tree, 'f'),
        FunctionFaults {
            depth_limited: 36,
            ..FunctionFaults::default()
        }
    );
    let total = sums(&tree).values().fold(Metrics::default(), |mut sum, m| {
        sum.add(m);
        sum
    });
    assert_eq!(
        (total.calls, total.timed, total.inferred, total.unwound),
        (100, 100, 36, 0)
    );
    assert_eq!(tree.contexts.len(), 1 + 3, "recursion folds");
}

#[test]
fn recursion_folds_by_pairs_so_that_every_edge_keeps_its_count() {
    let mut tape = Tape::new();
    let calls = "ababacab";
    for (depth, letter) in calls.chars().enumerate() {
        tape.enter(letter, depth as u64 * 16);
    }
    for (depth, letter) in calls
        .chars()
        .enumerate()
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
    {
        tape.exit(letter, depth as u64 * 16);
    }
    let tree = tape.tree();
    assert_sound(&tree);
    let mut edges: BTreeMap<String, u64> = BTreeMap::new();
    for (context, m) in sums(&tree) {
        let path = path(&tree, context);
        *edges
            .entry(path[path.len().saturating_sub(2)..].into())
            .or_default() += m.calls;
    }
    let expect = [("a", 1), ("ab", 3), ("ac", 1), ("ba", 2), ("ca", 1)];
    assert_eq!(
        edges,
        expect.map(|(edge, calls)| (edge.to_string(), calls)).into()
    );
}

#[test]
fn a_histogram_holds_outermost_activations_only() {
    let mut tape = Tape::new();
    tape.enter('a', 0).enter('a', 16).exit('a', 16).exit('a', 0);
    let tree = tape.tree();
    let bucket = tree::Histogram::bucket_of(30);
    assert_eq!(
        tree.histograms,
        [(
            FuncId::new(1).unwrap(),
            tree::Histogram {
                buckets: vec![(bucket, 1)]
            }
        )]
    );
}

#[test]
fn a_gap_cuts_as_many_calls_as_events_were_lost_and_keeps_the_rest() {
    let mut tape = Tape::new();
    tape.enter('a', 0)
        .enter('b', 16)
        .enter('c', 32)
        .gap(1)
        .enter('d', 24)
        .exit('d', 24)
        .exit('b', 16)
        .exit('a', 0);
    let tree = tape.tree();
    assert_eq!(faults(&tree, 'c').cut_by_loss, 1);
    assert_eq!(
        render(&tree),
        [
            "a 1 1 20/60",
            "ab 1 1 30/40",
            "abc 1 0 0/0 lost 1",
            "abd 1 1 10/10"
        ]
    );
}

#[test]
fn an_exit_after_a_gap_proves_that_its_call_was_open_all_the_time() {
    let mut tape = Tape::new();
    tape.enter('a', 0).enter('b', 16).gap(5).exit('a', 0);
    let tree = tape.tree();
    assert_eq!(
        (
            faults(&tree, 'a').cut_by_loss,
            faults(&tree, 'b').cut_by_loss
        ),
        (0, 1)
    );
    let mut tape = Tape::new();
    tape.enter('a', 0).gap(1).exit('b', 16).exit('a', 0);
    tape.check(&["a 1 1 20/20 lost 1"]);
}

#[test]
fn a_signal_handler_on_another_stack_does_not_end_what_it_interrupted() {
    let far = 0x1000_0000;
    let mut tape = Tape::new();
    tape.enter('a', 0)
        .enter('b', 16)
        .enter('s', far)
        .enter('t', far + 32)
        .exit('t', far + 32)
        .exit('s', far);
    tape.exit('b', 16).exit('a', 0);
    tape.check(&[
        "a 1 1 20/70",
        "ab 1 1 20/50",
        "abs 1 1 20/30",
        "abst 1 1 10/10",
    ]);
}

#[test]
fn coroutines_keep_their_frames_while_others_run() {
    let (one, two) = (0x1000_0000, 0x2000_0000);
    let mut tape = Tape::new();
    tape.enter('m', 0)
        .enter('a', one)
        .enter('x', 16)
        .exit('x', 16);
    tape.enter('b', two)
        .exit('b', two)
        .exit('a', one)
        .enter('a', one + 64)
        .exit('a', one + 64)
        .exit('m', 0);
    let tree = tape.tree();
    assert_sound(&tree);
    assert_eq!(tree.faults, [], "no exit was missed");
    let unwound: u64 = sums(&tree).values().map(|m| m.unwound).sum();
    assert_eq!(unwound, 0);
}

#[test]
fn language_and_native_frames_nest_in_one_tree() {
    let mut tape = Tape::new();
    tape.enter('m', 0)
        .python(Kind::Enter, 'p', 0xf00)
        .enter('c', 64)
        .exit('c', 64);
    tape.python(Kind::Enter, 'q', 0x100)
        .python(Kind::Unwind, 'q', 0x100)
        .python(Kind::Exit, 'p', 0xf00)
        .exit('m', 0);
    tape.check(&[
        "m 1 1 20/70",
        "mp 1 1 30/50",
        "mpc 1 1 10/10",
        "mpq 1 1 10/10 unwound 1",
    ]);
}

#[test]
fn a_suspended_task_waits_without_own_time() {
    let mut tape = Tape::new();
    tape.python(Kind::Enter, 'l', 1)
        .python(Kind::Enter, 't', 2)
        .python(Kind::Suspend, 't', 2);
    tape.python(Kind::Resume, 't', 2)
        .python(Kind::Exit, 't', 2)
        .python(Kind::Exit, 'l', 1);
    tape.check(&["l 1 1 30/50", "lt 1 1 20/20"]);
}

#[test]
fn open_calls_at_the_end_are_counted_and_not_timed() {
    let mut tape = Tape::new();
    tape.enter('a', 0).enter('b', 16);
    tape.builder.thread_ended(MonoTime(50), PID, TID);
    let tree = tape.tree();
    assert_eq!(
        (
            faults(&tree, 'a').open_at_end,
            faults(&tree, 'b').open_at_end
        ),
        (1, 1)
    );
    assert_eq!(render(&tree), ["a 1 0 10/40", "ab 1 0 30/30"]);
}

#[test]
fn complete_records_nest_by_their_time_although_children_come_first() {
    let mut tape = Tape::new();
    tape.time = 100;
    tape.complete('c', 32, 5)
        .complete('b', 16, 25)
        .complete('b', 16, 5)
        .complete('a', 0, 60)
        .complete('a', 0, 5);
    tape.check(&["a 2 2 35/65", "ab 2 2 25/30", "abc 1 1 5/5"]);
}

#[test]
fn entries_without_end_keep_their_place_between_complete_records() {
    let mut tape = Tape::new();
    tape.time = 100;
    tape.complete('a', 0, 5)
        .entry_only('e', 32, 0)
        .complete('b', 16, 15)
        .complete('a', 0, 25);
    tape.check(&["a 2 2 15/30", "ab 1 1 15/15", "abe 1 0 0/0"]);
}

#[test]
fn a_sample_lands_inside_the_innermost_call_that_its_stack_passes_through() {
    let mut tape = Tape::new().with_maps("ab");
    tape.enter_from('a', 0, 0x9001, 0)
        .enter_from('b', 16, 0x1010, 0);
    tape.sample(&[0x8004, 0x7008, 0x2008, 0x1010, 0x9001])
        .sample(&[0x2004, 0x1010, 0x9001])
        .exit('b', 16)
        .exit('a', 0);
    tape.symbol(0x8004, 'y').symbol(0x7007, 'x');
    let tree = tape.tree();
    assert_eq!(
        render(&tree),
        [
            "a 1 1 20/50",
            "ab 1 1 30/30 samples 1",
            "abx~ 0 0 0/0",
            "abx~y~ 0 0 0/0 samples 1",
        ]
    );
    assert_eq!(sums(&tree).values().map(|m| m.sampled_ns).sum::<u64>(), 200);
}

#[test]
fn what_is_inlined_at_a_sampled_address_stands_below_the_function_of_the_address() {
    let mut tape = Tape::new();
    tape.enter('a', 0)
        .sample(&[0x8004, 0x7008])
        .sample(&[0x8008, 0x7008])
        .exit('a', 0)
        .sample(&[0x7007]);
    for (address, letter) in [(0x8004, 'y'), (0x8008, 'y'), (0x7007, 'x')] {
        tape.symbol(address, letter);
    }
    let at = |address, letters: &str| Inlined {
        pid: PID,
        address,
        functions: letters
            .chars()
            .filter_map(|letter| FuncId::new(number(letter)))
            .collect(),
    };
    tape.builder
        .inlined(vec![at(0x8008, "pq"), at(0x7007, "y")]);
    // One function may be called and inlined by the same other one.
    tape.check(&[
        "a 1 1 30/30",
        "ay~ 0 0 0/0 samples 1",
        "ay~p^ 0 0 0/0",
        "ay~p^q^ 0 0 0/0 samples 1",
        "x~ 0 0 0/0",
        "x~y^ 0 0 0/0 samples 1",
    ]);
}

#[test]
fn a_sample_outside_all_calls_is_a_path_from_the_root() {
    let mut tape = Tape::new();
    tape.sample(&[0x8004, 0x7008])
        .symbol(0x8004, 'y')
        .symbol(0x7007, 'x');
    tape.check(&["x~ 0 0 0/0", "x~y~ 0 0 0/0 samples 1"]);
}

#[test]
fn time_is_charged_to_the_window_in_which_it_passes_and_calls_to_that_of_their_entry() {
    let mut tape = Tape::with(Options {
        window_ns: 100,
        ..Options::default()
    });
    tape.time = 80;
    tape.enter('a', 0);
    tape.time = 230;
    tape.enter('b', 16).exit('b', 16).exit('a', 0);
    let tree = tape.tree();
    assert_sound(&tree);
    let of = |window| {
        let cell = tree
            .cells
            .iter()
            .find(|cell| cell.window == window && cell.context == ContextId(1))
            .unwrap();
        (
            cell.metrics.calls,
            cell.metrics.timed,
            cell.metrics.self_wall_ns,
            cell.metrics.self_cpu_ns,
        )
    };
    assert_eq!(
        (of(0), of(1), of(2)),
        ((1, 0, 10, 5), (0, 0, 100, 50), (0, 1, 50, 25))
    );
}

#[test]
fn windows_double_when_there_are_too_many() {
    let mut tape = Tape::with(Options {
        window_ns: 10,
        ..Options::default()
    });
    for _ in 0..10_000 {
        tape.enter('a', 0).exit('a', 0);
    }
    let tree = tape.tree();
    assert!(
        tree.window_ns >= 640 && tree.cells.len() <= 256,
        "{} ns, {} cells",
        tree.window_ns,
        tree.cells.len()
    );
    assert_eq!(sums(&tree)[&ContextId(1)].calls, 10_000);
}

#[test]
fn beyond_the_cap_calls_are_counted_per_function_in_a_named_node() {
    let mut tape = Tape::with(Options {
        max_contexts: 3,
        ..Options::default()
    });
    tape.enter('a', 0)
        .enter('b', 16)
        .enter('c', 32)
        .enter('d', 48)
        .exit('d', 48)
        .exit('c', 32)
        .exit('b', 16)
        .exit('a', 0);
    let tree = tape.tree();
    assert_sound(&tree);
    assert_eq!(tree.folded_calls, 2);
    assert_eq!(
        render(&tree),
        [
            "* 0 0 0/30",
            "*c 1 1 20/20",
            "*d 1 1 10/10",
            "a 1 1 20/40",
            "ab 1 1 20/20"
        ]
    );
}

/// Calls that call each other without any order, for a day: what a long recording of a parser or a simplifier looks like.
#[test]
fn a_day_of_irregular_recursion_stays_within_the_caps_and_loses_no_call() {
    const DAY_NS: u64 = 86_400_000_000_000;
    const EVENTS: u64 = 300_000;
    const MOST: usize = 20_000;
    let mut tape = Tape::with(Options {
        max_contexts: MOST,
        ..Options::default()
    });
    let (mut open, mut calls, mut random) = (Vec::new(), 0, 1_u64);
    for _ in 0..EVENTS {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let (way, which) = (random >> 40, random >> 33);
        tape.time += DAY_NS / EVENTS;
        let depth = 16 * open.len() as u64;
        if open.is_empty() || (open.len() < 40 && way % 100 < 52) {
            let letter = char::from(b'a' + (which % 12) as u8);
            open.push(letter);
            tape.enter(letter, depth);
            calls += 1;
        } else if let Some(letter) = open.pop() {
            tape.exit(letter, depth - 16);
        }
    }
    while let Some(letter) = open.pop() {
        tape.exit(letter, 16 * open.len() as u64);
    }
    let wall = tape.time;
    let tree = tape.tree();
    assert_sound(&tree);
    let windows = tree.cells.iter().map(|cell| cell.window).max().unwrap();
    assert!(windows < 256, "{windows} windows");
    assert!(windows >= 100, "a day is not one window: {windows}");
    assert!(tree.window_ns < 1_000_000_000_000, "{} ns", tree.window_ns);
    // `[folded]` and one node a function below it are beyond the cap.
    let most = MOST + 1 + 12;
    assert!(
        tree.contexts.len() <= most,
        "{} contexts",
        tree.contexts.len()
    );
    assert!(tree.cells.len() <= 1 << 20, "{} cells", tree.cells.len());
    assert!(tree.folded_calls > 0, "the cap was reached");
    let counted: u64 = tree.cells.iter().map(|cell| cell.metrics.calls).sum();
    assert_eq!(counted, calls, "every call is counted somewhere");
    let spent: u64 = tree
        .cells
        .iter()
        .map(|cell| cell.metrics.self_wall_ns)
        .sum();
    assert!(
        spent <= wall && spent > wall / 10 * 9,
        "{spent} of {wall} ns"
    );
}

#[test]
fn after_an_exec_no_old_call_goes_on() {
    let mut tape = Tape::new();
    tape.enter('a', 0);
    tape.builder.executed(MonoTime(20), PID);
    tape.enter('b', 16).exit('b', 16);
    tape.check(&["a 1 0 10/10", "b 1 1 10/10"]);
}

#[test]
fn a_call_whose_probe_goes_gets_no_time_from_then_on() {
    let mut tape = Tape::new();
    tape.enter('a', 0).enter('b', 16);
    let (gone, soon) = (FuncId::new(number('b')).unwrap(), MonoTime(tape.time + 5));
    tape.builder.probe_gone(gone, soon);
    tape.enter('c', 32).exit('c', 32).exit('a', 0);
    tape.check(&["a 1 1 25/40", "ab 1 0 5/15 inferred 1", "abc 1 1 10/10"]);
}

#[test]
fn what_came_before_its_probe_went_is_measured_to_the_end() {
    let mut tape = Tape::new();
    tape.enter('a', 0).enter('b', 16);
    let (gone, later) = (FuncId::new(number('b')).unwrap(), MonoTime(tape.time + 15));
    tape.builder.probe_gone(gone, later);
    tape.exit('b', 16).exit('a', 0);
    tape.check(&["a 1 1 20/30", "ab 1 1 10/10"]);
}

#[test]
fn the_number_of_arguments_is_no_caller_of_start() {
    let mut tape = Tape::new().with_maps("ab");
    tape.entry_only('a', 0, 3).enter('b', 16).exit('b', 16);
    tape.check(&["a 1 0 0/10", "ab 1 1 10/10"]);
}

/// Numbers that no kernel writes, but that a damaged log can hold.
#[test]
fn absurd_numbers_cost_neither_a_panic_nor_memory() {
    let mut tape = Tape::new().with_maps("a");
    let (func, value, source) = (u32::MAX, u64::MAX, Source::Uprobe as u8);
    for kind in [
        Kind::Enter,
        Kind::Exit,
        Kind::Count,
        Kind::Lost,
        Kind::ThreadEnd,
        Kind::Lost,
    ] {
        let kind = kind as u8;
        tape.push(Event {
            func,
            value,
            source,
            kind,
            weight: 255,
            ..Event::default()
        });
    }
    for _ in 0..2 {
        let event = Event {
            time: 1,
            pid: 1,
            tid: 2,
            value,
            ..Event::default()
        };
        let (user, kernel) = (vec![u64::MAX, 0, 1], vec![u64::MAX]);
        tape.builder.sample(&Sample {
            event,
            user,
            kernel,
            copy: None,
        });
        tape.builder.executed(MonoTime(u64::MAX), PID);
    }
    tape.builder.gap(PID, TID, u64::MAX);
    let (time, start, end) = (MonoTime(0), Addr(0), Addr(u64::MAX));
    let path = String::from("/bin/test");
    tape.builder.control(&Control::Map {
        time,
        pid: PID,
        start,
        end,
        offset: u64::MAX,
        path,
    });
    tape.enter_from('a', 0, u64::MAX, 0).exit('a', 0);
    let tree = tape.tree();
    assert_eq!(tree.histograms.len(), 2);
    assert_eq!(tree.threads[0].lost, u64::MAX);
}

#[test]
fn windows_pass_at_once_when_the_last_measured_call_lost_its_probe() {
    let mut tape = Tape::with(Options {
        window_ns: 1_000,
        ..Options::default()
    });
    tape.enter('a', 0);
    let (gone, soon) = (FuncId::new(number('a')).unwrap(), MonoTime(tape.time + 5));
    tape.builder.probe_gone(gone, soon);
    let tree = tape.builder.finish(MonoTime(u64::MAX), &mut |_, _| None);
    assert_eq!(sums(&tree)[&ContextId(1)].self_wall_ns, 5);
}

#[test]
fn a_function_without_its_probe_may_be_called_again_inside_itself() {
    let mut tape = Tape::new().with_maps("abc");
    tape.enter('a', 0).enter('b', 16);
    let (gone, soon) = (FuncId::new(number('a')).unwrap(), MonoTime(tape.time + 5));
    tape.builder.probe_gone(gone, soon);
    // Called from the code of `a`, by a call of it that was not seen: `b` goes on.
    tape.enter_from('c', 64, 0x1010, 0);
    tape.exit('c', 64).exit('b', 16).exit('a', 0);
    let tree = tape.tree();
    assert_sound(&tree);
    assert_eq!(faults(&tree, 'b').missed_enter, 0);
    assert!(
        render(&tree).contains(&"ab 1 1 20/30".to_owned()),
        "{:?}",
        render(&tree)
    );
}
