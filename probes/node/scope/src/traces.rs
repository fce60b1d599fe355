//! What JavaScript asks of a closed trace.
use napi_sys::napi_value;
use scalpel_scope::handles::Pause;
use scalpel_scope::render::{self, Syntax};
use scalpel_scope::symbol::ProcessSymbols;
use scalpel_scope::trace::Trace;

use crate::Args;
use crate::value::Env;

/// Complete, reasons, tier, skip reason, instructions, traps; and the trace itself, unless nothing was recorded: what
/// JavaScript holds is given back late, and a scope that is skipped in a loop may not pile up.
#[expect(
    clippy::cast_precision_loss,
    reason = "no scope runs 2^53 instructions"
)]
pub(crate) fn answer(env: Env, trace: Trace) -> Option<napi_value> {
    let facts = [
        env.flag(trace.is_complete()),
        env.list(trace.reasons.words().map(|word| env.text(word))),
        env.text(trace.tier.word()),
        trace
            .skip_reason
            .as_deref()
            .map_or_else(|| env.none(), |why| env.text(why)),
        env.number(trace.counted as f64),
        env.number(trace.traps as f64),
    ];
    let held = if trace.skip_reason.is_some() {
        env.none()
    } else {
        env.hold(trace)
    };
    env.list(facts.into_iter().chain([held]))
}

/// The addresses in the order they ran, each as often as it ran.
pub(crate) fn addresses(env: Env, args: &Args) -> Option<napi_value> {
    let _pause = Pause::begin();
    let [trace, ..] = args;
    let trace: &Trace = env.held(*trace)?;
    env.list(trace.addresses().map(|address| env.big(address)))
}

/// Address, how often in a row, bytes in hexadecimal, what ran next; of each step.
pub(crate) fn steps(env: Env, args: &Args) -> Option<napi_value> {
    let _pause = Pause::begin();
    let [trace, ..] = args;
    let trace: &Trace = env.held(*trace)?;
    let steps = trace.steps.iter().filter_map(|step| {
        let code = trace.code_of(step)?;
        let bytes: String = code
            .bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Some(env.list([
            env.big(code.addr),
            env.number(step.count.into()),
            env.text(&bytes),
            env.big(step.next),
        ]))
    });
    env.list(steps)
}

/// The trace as "tree", "full" or "json", in "intel" or "att" syntax, in so many lines.
pub(crate) fn text(env: Env, args: &Args) -> Option<napi_value> {
    let _pause = Pause::begin();
    let [trace, how, syntax, lines, ..] = args;
    let trace: &Trace = env.held(*trace)?;
    let syntax = match env.to_text(*syntax)?.as_str() {
        "intel" => Syntax::Intel,
        "att" => Syntax::Att,
        _ => return env.refuse(c"syntax: \"intel\" or \"att\""),
    };
    let lines = usize::try_from(env.to_count(*lines)?).ok()?;
    let mut symbols = ProcessSymbols::new();
    match env.to_text(*how)?.as_str() {
        "tree" => env.text(&render::tree(trace, &mut symbols, lines)),
        "full" => env.text(&render::full(trace, &mut symbols, syntax)),
        _ => env.text(&render::json(trace, &mut symbols, syntax).ok()?),
    }
}
