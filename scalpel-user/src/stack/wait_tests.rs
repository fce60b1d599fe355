//! Waits: where they stand, and in which windows.

use super::tests::path;
use super::{Builder, Options};
use crate::event::{Event, FuncId, Kind, MonoTime, Sample, Source, flags};
use crate::tree::{ContextId, Metrics, Tree};

fn wait(time: u64, value: u64, why: u16, user: &[u64]) -> Sample {
    Sample {
        event: Event {
            time,
            value,
            pid: 1,
            tid: 2,
            seq: 5,
            kind: Kind::SwitchIn as u8,
            source: Source::Sched as u8,
            flags: why,
            ..Event::default()
        },
        user: user.to_vec(),
        kernel: Vec::new(),
        copy: None,
    }
}

fn built(samples: &[Sample]) -> Tree {
    let mut builder = Builder::new(Options {
        start: MonoTime(1_000),
        window_ns: 100,
        ..Options::default()
    });
    samples.iter().for_each(|sample| builder.sample(sample));
    builder.finish(MonoTime(3_000), &mut |_, address| {
        FuncId::new((address >> 8) as u32)
    })
}

/// Path, window, waits, ns, of those preempted and for a device.
fn cells(tree: &Tree) -> Vec<(String, u32, [u64; 4])> {
    let waited = |m: &Metrics| [m.waits, m.off_cpu_ns, m.preempted_ns, m.io_wait_ns];
    let mut cells: Vec<_> = tree
        .cells
        .iter()
        .map(|cell| (path(tree, cell.context), cell.window, waited(&cell.metrics)))
        .filter(|(_, _, numbers)| numbers.iter().any(|number| *number > 0))
        .collect();
    cells.sort();
    cells
}

fn check(samples: &[Sample], expect: &[(&str, u32, [u64; 4])]) {
    let tree = built(samples);
    let seen = cells(&tree);
    let seen: Vec<_> = seen
        .iter()
        .map(|(path, window, numbers)| (path.as_str(), *window, *numbers))
        .collect();
    assert_eq!(seen, expect);
}

#[test]
fn a_wait_stands_under_its_stack_and_its_reason_beside_it() {
    let stack = [0x200, 0x101];
    check(
        &[
            wait(1_050, 10, 0, &stack),
            wait(1_070, 5, flags::PREEMPTED, &stack),
            wait(1_090, 7, flags::IO_WAIT, &stack),
        ],
        &[("a~b~", 0, [3, 22, 5, 7])],
    );
}

#[test]
fn a_wait_counts_where_it_ends_and_its_time_where_it_passed() {
    check(
        &[wait(1_250, 220, 0, &[0x100])],
        &[
            ("a~", 0, [0, 70, 0, 0]),
            ("a~", 1, [0, 100, 0, 0]),
            ("a~", 2, [1, 50, 0, 0]),
        ],
    );
}

#[test]
fn waits_told_by_their_sum_are_the_threads_and_no_functions() {
    let tree = built(&[wait(1_050, 30, flags::UNTOLD, &[])]);
    let root: Vec<_> = tree
        .cells
        .iter()
        .filter(|cell| cell.context == ContextId::ROOT)
        .map(|cell| (cell.metrics.waits, cell.metrics.off_cpu_ns))
        .collect();
    assert_eq!(root, [(5, 30)]);
}

#[test]
fn no_number_is_too_absurd() {
    for (time, value) in [
        (u64::MAX, u64::MAX),
        (0, u64::MAX),
        (u64::MAX, 0),
        (1_000, 0),
        (0, 0),
    ] {
        for why in [0, flags::UNTOLD, u16::MAX] {
            let tree = built(&[wait(time, value, why, &[u64::MAX, 0])]);
            assert!(tree.cells.len() <= 1_000, "{time} {value} {why}");
        }
    }
}
