use super::*;
use crate::trace::{Fact, Tier};
use proptest::prelude::*;

/// A true trace of straight-line code with loops: block `b` of `n` nops ends in a jump to any other block.
fn traces() -> impl Strategy<Value = Trace> {
    prop::collection::vec((0_u64..6, 1_usize..4), 1..40).prop_map(|visits| {
        let mut trace = blank();
        for (place, (block, len)) in visits.iter().enumerate() {
            let base = 0x1000 + block * 0x100;
            let goes = visits
                .get(place + 1)
                .map_or(0x9000, |(next, _)| 0x1000 + next * 0x100);
            for at in 0..*len {
                let addr = base + at as u64;
                push(&mut trace, addr, &[0x90], addr + 1);
            }
            // jmp rax
            push(&mut trace, base + *len as u64, &[0xff, 0xe0], goes);
        }
        trace.begin = trace
            .steps
            .first()
            .and_then(|step| trace.code_of(step))
            .map(|c| c.addr);
        trace.end = Some(0x9000);
        trace.counted = trace.steps.len() as u64;
        trace
    })
}

fn blank() -> Trace {
    let mut trace = Trace::skipped(Form::Window, "");
    trace.skip_reason = None;
    trace.tier = Tier::SingleStep;
    trace.assumed = vec![Fact::SignalHandlersExcluded];
    trace
}

fn push(trace: &mut Trace, addr: u64, bytes: &[u8], next: u64) {
    let known = trace
        .code
        .iter()
        .position(|code| code.addr == addr && code.bytes == bytes);
    let code = known.unwrap_or_else(|| {
        trace.code.push(Code {
            addr,
            bytes: bytes.to_vec(),
        });
        trace.code.len() - 1
    });
    trace.steps.push(Step {
        code: code as u32,
        count: 1,
        next,
        link: Link::Flow,
    });
}

proptest! {
    #[test]
    fn a_true_trace_gives_no_reason(trace in traces()) {
        prop_assert_eq!(check(&trace), Reasons::NONE);
    }

    #[test]
    fn a_step_lost_doubled_or_swapped_gives_a_reason(trace in traces(), at in any::<prop::sample::Index>()) {
        let at = at.index(trace.steps.len());
        let mut lost = trace.clone();
        lost.steps.remove(at);
        let mut double = trace.clone();
        double.steps.insert(at, trace.steps[at]);
        let mut swapped = trace.clone();
        swapped.steps.swap(at, (at + 1) % trace.steps.len());
        for other in [lost, double, swapped] {
            prop_assert!(other.steps == trace.steps || !check(&other).is_empty());
        }
    }
}

#[test]
fn only_a_repeated_string_instruction_may_count() {
    let mut trace = blank();
    push(&mut trace, 0x1000, &[0xf3, 0xa4], 0x1002);
    (trace.begin, trace.end, trace.counted) = (Some(0x1000), Some(0x1002), 7);
    trace.steps[0].count = 7;
    assert_eq!(check(&trace), Reasons::NONE);
    trace.code[0].bytes = vec![0x48, 0x90];
    assert_eq!(check(&trace), Reasons::UNEXPLAINED);
}

#[test]
fn bytes_that_are_no_instruction_are_a_reason() {
    let mut trace = blank();
    push(&mut trace, 0x1000, &[0x0f], 0x1001);
    (trace.begin, trace.end, trace.counted) = (None, Some(0x1001), 1);
    assert!(check(&trace).contains(Reasons::DECODE));
}

/// `call 0x2000` at 0x1000, whose callee was not followed, and the `ret` behind it.
fn called_out(back: u64) -> Trace {
    let mut trace = blank();
    push(&mut trace, 0x1000, &[0xe8, 0xfb, 0x0f, 0, 0], 0x2000);
    push(&mut trace, back, &[0xc3], 0x9000);
    trace.steps[1].link = Link::Over;
    trace.begin = Some(0x1000);
    trace.end = Some(0x9000);
    trace.counted = 2;
    trace
}

#[test]
fn a_callee_at_full_speed_comes_back_behind_its_call_and_nowhere_else() {
    assert_eq!(check(&called_out(0x1005)), Reasons::NONE);
    assert_eq!(check(&called_out(0x1006)), Reasons::UNEXPLAINED);
    let mut flow = called_out(0x1005);
    flow.steps[1].link = Link::Flow;
    assert_eq!(check(&flow), Reasons::UNEXPLAINED);
}

#[test]
fn what_a_callee_jumped_to_comes_back_behind_the_call() {
    // call 0x2000; there `jmp rax` leads to what is not followed; it comes back to 0x1005.
    let mut trace = called_out(0x1005);
    let last = trace.steps.pop().unwrap();
    push(&mut trace, 0x2000, &[0xff, 0xe0], 0x7000);
    trace.steps.push(last);
    trace.counted = 3;
    assert_eq!(check(&trace), Reasons::NONE);
    trace.steps[0].next = 0x2000;
    trace.code[0].bytes = vec![0xe9, 0xfb, 0x0f, 0, 0];
    assert_eq!(check(&trace), Reasons::UNEXPLAINED, "nothing was called");
}

#[test]
fn a_callee_at_full_speed_calls_the_function_again_at_its_beginning_only() {
    // 0x1000: call 0x2000, which calls 0x1000 again; 0x1005: ret, at first to where the callee goes on.
    let mut trace = called_out(0x1005);
    let (call, ret) = (trace.steps[0], trace.steps[1]);
    let inner = Step {
        link: Link::Again,
        ..call
    };
    let inner_ret = Step {
        next: 0x2010,
        ..ret
    };
    trace.steps = vec![call, inner, inner_ret, ret];
    trace.counted = 4;
    assert_eq!(check(&trace), Reasons::NONE);
    trace.begin = Some(0x1001);
    assert_eq!(check(&trace), Reasons::UNEXPLAINED);
}

/// The verdict on steps, one by one, or in proven lines of some lengths.
fn judged(trace: &Trace, lines: &[usize]) -> (Reasons, u64, u64) {
    let mut meanings = Meanings::default();
    for code in &trace.code {
        meanings.learn(code);
    }
    let mut judge = Judge::new(trace.form);
    let mut rest = trace.steps.as_slice();
    for len in lines {
        let (line, behind) = rest.split_at((*len).min(rest.len()));
        judge.proven(&meanings, &Proof::of(&meanings, line));
        rest = behind;
    }
    for step in rest {
        judge.step(&meanings, step);
    }
    let verdict = judge.verdict(trace.begin, trace.end, trace.counted);
    (verdict, judge.seal(), judge.returns_elsewhere())
}

proptest! {
    #[test]
    fn steps_that_are_proven_once_are_judged_as_one_by_one(
        trace in traces(),
        lines in prop::collection::vec(0_usize..9, 0..30),
        at in any::<prop::sample::Index>(),
    ) {
        prop_assert_eq!(judged(&trace, &lines), judged(&trace, &[]));
        let mut lost = trace.clone();
        lost.steps.remove(at.index(trace.steps.len()));
        prop_assert_eq!(judged(&lost, &lines), judged(&lost, &[]));
    }
}

#[test]
fn calls_and_returns_inside_proven_steps_are_followed() {
    // 0x1000: call 0x2000; 0x2000: ret, to where the call says and elsewhere.
    for (back, elsewhere) in [(0x1005, 0), (0x1006, 1)] {
        let mut trace = blank();
        push(&mut trace, 0x1000, &[0xe8, 0xfb, 0x0f, 0, 0], 0x2000);
        push(&mut trace, 0x2000, &[0xc3], back);
        push(&mut trace, back, &[0x90], back + 1);
        (trace.begin, trace.end, trace.counted) = (Some(0x1000), Some(back + 1), 3);
        let expected = (Reasons::NONE, sealed(&trace), elsewhere);
        assert_eq!(judged(&trace, &[3]), expected);
        assert_eq!(judged(&trace, &[]), expected);
    }
}

#[test]
fn only_flow_joins_proven_steps() {
    let mut trace = called_out(0x1005);
    trace.steps[1].link = Link::Over;
    assert!(judged(&trace, &[2]).0.contains(Reasons::UNEXPLAINED));
}
