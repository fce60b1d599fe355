//! What a function returned, as rows: how many calls gave which value, and what became of those that gave none.

use serde::Serialize;

use crate::event::FuncId;
use crate::function::FunctionInfo;
use crate::tree::{FunctionFaults, Metrics, Returns};

/// What the calls of a function returned. `calls` of all values + `other` + `without` = the calls of the function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReturnedRow {
    /// What the values are.
    pub register: &'static str,
    /// Values, the most frequent first.
    pub values: Vec<ValueRow>,
    /// Calls that returned another value.
    pub other: u64,
    /// Calls of which no value was seen.
    pub without: u64,
    /// What became of them.
    pub reasons: Vec<String>,
    /// The least value of all.
    pub least: Option<Value>,
    /// The greatest value of all.
    pub greatest: Option<Value>,
}

/// A value, and how many calls returned it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ValueRow {
    /// The value.
    #[serde(flatten)]
    pub value: Value,
    /// So many calls returned it.
    pub calls: u64,
    /// And no more: of other recordings that were added up it may be among `other`, too.
    pub exact: bool,
}

/// The bits of a register, in the ways in which a program may mean them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Value {
    /// As a signed number of 64 bits: a text, as it may have more digits than a number of JavaScript.
    pub value: String,
    /// As bits.
    pub bits: String,
    /// As a signed number of 32 bits, where the upper half says nothing else: the ABI leaves it undefined for one.
    pub int: Option<i32>,
}

impl Value {
    fn of(register: i64) -> Self {
        // The lower half, as it is.
        let low = register as i32;
        let says_nothing = register.cast_unsigned() >> 32 == 0 || i64::from(low) == register;
        Self {
            value: register.to_string(),
            bits: format!("{register:#x}"),
            int: says_nothing.then_some(low),
        }
    }
}

/// What is known of the calls besides.
pub(super) struct Ends<'a> {
    pub(super) info: &'a FunctionInfo,
    pub(super) metrics: &'a Metrics,
    pub(super) faults: FunctionFaults,
}

/// What a function returned; `None` if nobody asked.
pub(super) fn row(
    returns: &[(FuncId, Returns)],
    func: FuncId,
    ends: &Ends<'_>,
) -> Option<ReturnedRow> {
    let at = returns
        .binary_search_by_key(&func, |(func, _)| *func)
        .ok()?;
    let (_, returns) = returns.get(at)?;
    // Of runs that did not ask there are calls, too.
    let calls = ends.metrics.calls.max(returns.calls);
    let without = calls.saturating_sub(returns.seen());
    let mut values: Vec<ValueRow> = returns
        .values
        .iter()
        .map(|(&register, returned)| ValueRow {
            value: Value::of(register),
            calls: returned.calls,
            exact: returned.exact,
        })
        .collect();
    // Stable: of equally frequent ones the least comes first.
    values.sort_by_key(|row| std::cmp::Reverse(row.calls));
    Some(ReturnedRow {
        register: REGISTER,
        values,
        other: returns.other,
        without,
        reasons: reasons(calls - returns.calls, without, ends),
        least: returns.range.map(|(least, _)| Value::of(least)),
        greatest: returns.range.map(|(_, greatest)| Value::of(greatest)),
    })
}

/// Whether it returns anything, and how much of the register that is, nobody knows here.
const REGISTER: &str = "RAX, if the function returns anything there";

fn reasons(unasked: u64, without: u64, ends: &Ends<'_>) -> Vec<String> {
    let mut left = without;
    let mut reasons = Vec::new();
    let mut say = |count: u64, what: &str| {
        let count = count.min(left);
        left -= count;
        if count > 0 {
            reasons.push(format!("{count} {what}"));
        }
    };
    let Ends {
        info,
        metrics,
        faults,
    } = ends;
    say(unasked, "in recordings without --return-values");
    if info.exit == crate::function::ExitStrategy::EntryOnly {
        let why = format!("whose end is not watched: {}", info.exit_reason);
        say(without, why.trim_end_matches(": "));
    }
    say(metrics.unwound, "left by an exception or a jump");
    say(faults.return_refused, "not watched, to protect the program");
    say(faults.open_at_end, "still open at the end");
    say(
        faults.cut_by_loss,
        "cut by a loss, or open when their probe went",
    );
    say(
        faults.depth_limited,
        "beyond the kernel's depth of 64 returns",
    );
    say(
        without,
        "whose end was not seen, as of one that ends by a jump to another function",
    );
    reasons
}
