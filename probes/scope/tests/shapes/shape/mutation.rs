//! The oracle has teeth: a true trace that loses, swaps or doubles one step is no longer complete.
use scalpel_scope::{Trace, oracle};

use crate::code;
use crate::programs;

pub(crate) fn random_traces_lose_swap_or_double_no_step_unseen() {
    let mut dice = programs::Dice(0x1234_5678_9abc_def1);
    let buffer = code::memory() as u64;
    let mut mutations = 0;
    let memory = code::memory();
    for _ in 0..200 {
        let routine = programs::random(&mut dice, memory);
        let (_, trace) = routine.trace([buffer, dice.roll(1 << 50), 0, 0, 0, 0]);
        assert!(trace.is_complete(), "{}", trace.reasons);
        for at in 0..trace.steps.len() {
            mutations += mutate(&trace, at);
        }
    }
    assert!(mutations > 5_000, "{mutations}");
}

fn mutate(trace: &Trace, at: usize) -> usize {
    let mut lost = trace.clone();
    lost.steps.remove(at);
    let mut double = trace.clone();
    double.steps.insert(at, trace.steps[at]);
    let mut swapped = trace.clone();
    if at + 1 < trace.steps.len() {
        swapped.steps.swap(at, at + 1);
    }
    let changed = [lost, double, swapped]
        .into_iter()
        .filter(|other| other.steps != trace.steps);
    changed
        .inspect(|other| assert!(!oracle::check(other).is_empty(), "step {at} of {trace:#?}"))
        .count()
}
