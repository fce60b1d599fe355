//! The oracle has teeth: a true trace that loses, swaps or doubles one step, or one block, is no longer complete.
use scalpel_scope::trace::Step;
use scalpel_scope::{Budget, Code, Emit, HwTrace, Options, Trace, flow, oracle};

use crate::code::{self, Routine};
use crate::programs;

pub(crate) fn random_traces_lose_swap_or_double_nothing_unseen() {
    let mut dice = programs::Dice(0x1234_5678_9abc_def1);
    let buffer = code::memory() as u64;
    let mut mutations = 0;
    let memory = code::memory();
    for _ in 0..200 {
        let routine = programs::random(&mut dice, memory);
        let (_, trace) = routine.trace([buffer, dice.roll(1 << 50), 0, 0, 0, 0]);
        mutations += every(&trace);
    }
    assert!(mutations > 15_000, "{mutations}");
}

extern "C" fn greater(a: *const libc::c_void, b: *const libc::c_void) -> i32 {
    let (a, b) = unsafe { (*a.cast::<i32>(), *b.cast::<i32>()) };
    // Two ways through, so that one visit is not as the other.
    if a > b {
        std::hint::black_box(1)
    } else {
        std::hint::black_box(a).wrapping_sub(b)
    }
}

pub(crate) fn visits_of_a_region_are_not_lost_swapped_or_doubled_unseen() {
    // Callbacks from elsewhere, all entering at the same place.
    let code = Code::function(greater as *const () as usize).unwrap();
    let mut numbers: Vec<i32> = (0..12).map(|n| n * 7 % 12).collect();
    let options = Options {
        budget: Budget {
            time: std::time::Duration::from_secs(20),
            ..Budget::default()
        },
        ..code::quiet()
    };
    let mut scope = HwTrace::scope_with(&code, options);
    unsafe { libc::qsort(numbers.as_mut_ptr().cast(), 12, 4, Some(greater)) };
    let sorted = scope.close().unwrap();
    // Calls out of the region, with a flow that differs from turn to turn.
    // 0: push rbx; 1: mov ebx, 6; 6: call rdi; 8: test bl, 1; 11: jz 14; 13: nop; 14: dec ebx; 16: jnz 6; pop rbx; ret
    let routine = Routine::of(&[
        0x53, 0xbb, 6, 0, 0, 0, 0xff, 0xd7, 0xf6, 0xc3, 1, 0x74, 1, 0x90, 0xff, 0xcb, 0x75, 0xf4,
        0x5b, 0xc3,
    ]);
    let callee = Routine::of(&[0x90, 0xc3]);
    let mut scope = HwTrace::scope(&routine.code(), Emit::Off);
    routine.run([callee.at as u64, 0, 0, 0, 0, 0]);
    let called = scope.close().unwrap();
    for trace in [sorted, called] {
        assert!(every(&trace) > 50);
    }
}

pub(crate) fn versions_of_code_are_not_swapped_unseen() {
    let memory = code::memory();
    let mut scope = HwTrace::scope(&Code::range(memory, 16), Emit::Off);
    for byte in [1, 2, 3] {
        // mov al, byte; ret
        Routine::at(memory, &[0xb0, byte, 0xc3]).run([0; 6]);
    }
    let trace = scope.close().unwrap();
    every(&trace);
    let mut swapped = trace.clone();
    swapped.steps.swap(0, 2);
    assert!(!oracle::check(&swapped).is_empty());
}

/// All mutations of a true trace; how many there were.
pub(crate) fn every(trace: &Trace) -> usize {
    assert!(trace.is_complete(), "{}", trace.reasons);
    let steps: Vec<_> = trace.steps.iter().map(|step| vec![*step]).collect();
    let blocks = blocks(trace);
    mutate(trace, &steps) + mutate(trace, &blocks)
}

/// Runs of steps that end where control may go elsewhere.
fn blocks(trace: &Trace) -> Vec<Vec<Step>> {
    let ends = |step: &Step| {
        let code = trace.code_of(step).unwrap();
        let instruction = flow::decode(code.addr, &code.bytes).unwrap();
        step.next != instruction.next_ip() || flow::successors(&instruction).target.is_some()
    };
    let mut blocks = vec![Vec::new()];
    for step in &trace.steps {
        blocks.last_mut().unwrap().push(*step);
        if ends(step) {
            blocks.push(Vec::new());
        }
    }
    blocks.retain(|block| !block.is_empty());
    blocks
}

/// Takes each part away, doubles it, and puts it in the place of each of the next three.
fn mutate(trace: &Trace, parts: &[Vec<Step>]) -> usize {
    let mut changed = 0;
    for at in 0..parts.len() {
        let mut lost = parts.to_vec();
        lost.remove(at);
        let mut double = parts.to_vec();
        double.insert(at, parts[at].clone());
        let mut all = vec![lost, double];
        for other in at + 1..parts.len().min(at + 4) {
            let mut swapped = parts.to_vec();
            swapped.swap(at, other);
            all.push(swapped);
        }
        for steps in all {
            let mutant = Trace {
                steps: steps.concat(),
                ..trace.clone()
            };
            if ran(&mutant) != ran(trace) {
                let found = oracle::check(&mutant);
                assert!(!found.is_empty(), "part {at} of {trace:#?}");
                changed += 1;
            }
        }
    }
    changed
}

/// The instructions of a trace; where the flow went outside a region is no part of it.
fn ran(trace: &Trace) -> Vec<(u32, u32)> {
    let steps = trace.steps.iter();
    steps.map(|step| (step.code, step.count)).collect()
}
