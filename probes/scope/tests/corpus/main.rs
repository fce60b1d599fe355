//! The conformance corpus that every binding replays: `corpus/routines.json`. Its truth is an independent stepper's
//! (ptrace), and the engine has to agree. `SCALPEL_BLESS=1 cargo test -p scalpel-scope --test corpus` writes it anew.
#![expect(
    unsafe_code,
    clippy::unwrap_used,
    clippy::undocumented_unsafe_blocks,
    clippy::indexing_slicing,
    reason = "routines are bytes that are run"
)]
#[path = "../shapes/code.rs"]
#[expect(dead_code, reason = "the shapes need more of it")]
mod code;
#[path = "../shapes/ptrace.rs"]
mod ptrace;
mod routines;

/// What the stepper does before it runs a program: these need nothing.
mod programs {
    pub(crate) fn clean(_args: &[u64; 6]) {}
}

use std::path::Path;

use scalpel_scope::flow;
use scalpel_scope::trace::Trace;
use serde_json::{Value, json};

use code::Routine;
use routines::{Given, ROUTINES};

/// Offset of an instruction, and how often in a row (above 1 for `rep` only).
type Steps = Vec<(u64, u32)>;

#[test]
fn the_corpus_is_what_ptrace_sees_and_the_engine_agrees() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/routines.json");
    let made = document();
    if std::env::var_os("SCALPEL_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == made, "corpus/routines.json is stale:\n{made}");
    let corpus: Value = serde_json::from_str(&committed).unwrap();
    let cases = corpus["routines"].as_array().unwrap();
    assert_eq!(cases.len(), ROUTINES.len());
    for case in cases {
        agree(case);
    }
}

/// The engine's trace of a case as it is committed.
fn agree(case: &Value) {
    let routine = Routine::of(&bytes(case["bytes"].as_str().unwrap()));
    for run in case["runs"].as_array().unwrap() {
        let mut args = [0; 6];
        for (to, from) in args.iter_mut().zip(run["args"].as_array().unwrap()) {
            *to = from.as_u64().unwrap();
        }
        let (result, trace) = routine.trace(args);
        let name = &case["name"];
        assert!(trace.is_complete(), "{name}: {}", trace.reasons);
        assert_eq!(steps_of(routine, &trace), run["steps"], "{name}");
        assert_eq!(trace.counted, run["instructions"], "{name}");
        if let Some(wanted) = run["result"].as_str() {
            assert_eq!(format!("{result:#x}"), wanted, "{name}");
        }
    }
}

fn steps_of(routine: Routine, trace: &Trace) -> Value {
    let steps = trace.steps.iter().map(|step| {
        let addr = trace.code_of(step).unwrap().addr;
        (addr - routine.at as u64, step.count)
    });
    json!(steps.collect::<Steps>())
}

fn document() -> String {
    let cases: Vec<_> = ROUTINES.iter().map(case).collect();
    format!(
        "{{\"version\": 1, \"routines\": [\n{}\n]}}\n",
        cases.join(",\n")
    )
}

fn case(given: &Given) -> String {
    let routine = Routine::of(&bytes(given.bytes));
    let runs: Vec<(Routine, [u64; 6])> =
        given.args.iter().map(|args| (routine, six(args))).collect();
    let truth = ptrace::truth(&runs);
    let runs = runs.iter().zip(truth).map(|((_, args), addrs)| {
        let steps = fold(routine, &given.shadow(routine, addrs));
        let instructions: u64 = steps.iter().map(|(_, count)| u64::from(*count)).sum();
        // A function that sets no result has none.
        let result = (given.bytes != "c3").then(|| format!("{:#x}", routine.run(*args)));
        json!({"args": args, "result": result, "instructions": instructions, "steps": steps})
    });
    let case = json!({
        "name": given.name, "why": given.why, "bytes": given.bytes.replace(' ', ""),
        "runs": runs.collect::<Vec<_>>(),
    });
    case.to_string()
}

fn six(args: &[u64]) -> [u64; 6] {
    let mut six = [0; 6];
    six[..args.len()].copy_from_slice(args);
    six
}

impl Given {
    /// A processor takes no trap in the shadow of MOV SS: neither does the stepper's, so the one instruction is put in.
    fn shadow(&self, routine: Routine, addrs: Vec<u64>) -> Vec<u64> {
        let Some((loads, hidden)) = self.shadow else {
            return addrs;
        };
        let (loads, hidden) = (loads + routine.at as u64, hidden + routine.at as u64);
        assert!(!addrs.contains(&hidden), "the stepper saw it after all");
        let both = addrs.into_iter().flat_map(|addr| {
            let behind = (addr == loads).then_some(hidden);
            [Some(addr), behind].into_iter().flatten()
        });
        both.collect()
    }
}

/// `rep` instructions trap once an iteration; nothing else is folded.
fn fold(routine: Routine, addrs: &[u64]) -> Steps {
    let mut steps = Steps::new();
    for addr in addrs {
        let offset = addr - routine.at as u64;
        let at = usize::try_from(*addr).unwrap();
        let bytes = unsafe { std::slice::from_raw_parts(at as *const u8, 15) };
        let repeats = flow::is_repeated(&flow::decode(*addr, bytes).unwrap());
        match steps.last_mut() {
            Some((last, count)) if *last == offset && repeats => *count += 1,
            _ => steps.push((offset, 1)),
        }
    }
    steps
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}
