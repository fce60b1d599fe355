//! Scopes one native function in two ways: a region around calls, and one call with all that it runs.
#![expect(clippy::print_stdout, reason = "an example shows what it gets")]
use std::hint::black_box;

use scalpel_scope::render::{self, Syntax};
use scalpel_scope::symbol::ProcessSymbols;
use scalpel_scope::{Code, Emit, HwTrace, Options};

#[inline(never)]
extern "C" fn collatz(mut value: u64) -> u64 {
    let mut steps = 0;
    while value > 1 {
        value = if value.is_multiple_of(2) {
            value / 2
        } else {
            3 * value + 1
        };
        steps += 1;
    }
    steps
}

#[expect(unsafe_code, reason = "a call by address")]
fn main() {
    let address = collatz as *const () as usize;
    if let Some(code) = Code::function(address) {
        let _scope = HwTrace::scope(&code, Emit::Stdout);
        black_box(collatz(black_box(27)));
    }
    let quiet = Options {
        emit: Emit::Off,
        ..Options::default()
    };
    // SAFETY: `collatz` is a C function of one integer, and it returns.
    let (steps, trace) = unsafe { HwTrace::call(address, [6, 0, 0, 0, 0, 0], quiet) };
    println!("collatz(6) = {steps}");
    println!(
        "{}",
        render::full(&trace, &mut ProcessSymbols::new(), Syntax::Intel)
    );
}
