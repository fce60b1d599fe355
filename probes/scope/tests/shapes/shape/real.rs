//! Code that programs really use within scopes: it computes what it does without.
use rayon::prelude::*;
use scalpel_scope::trace::Fact;
use scalpel_scope::{Budget, HwTrace, Options, Reasons, Trace};
use serde_json::Value;

use crate::code::quiet;

const DOCUMENT: &str = r#"{"a": [1, 2.5, "text \u00e9"], "b": {"c": null, "d": true}}"#;

/// What the body computes in a window, and the trace.
fn within<T>(body: impl Fn() -> T) -> (T, Trace) {
    let mut scope = HwTrace::window(Options {
        budget: Budget::default(),
        ..quiet()
    });
    let result = body();
    let trace = scope.close().unwrap();
    assert_eq!(trace.skip_reason, None);
    assert!(trace.counted > 0);
    (result, trace)
}

pub(crate) fn a_parser_of_json_is_complete_and_parses() {
    let parse = || serde_json::from_str::<Value>(DOCUMENT).unwrap();
    let (value, trace) = within(parse);
    assert_eq!(value, parse());
    let reasons = trace.reasons;
    assert!(
        trace.is_complete() || reasons == Reasons::BUDGET,
        "{reasons}"
    );
    let (text, trace) = within(|| value.to_string());
    assert_eq!(text, value.to_string());
    let reasons = trace.reasons;
    assert!(
        trace.is_complete() || reasons == Reasons::BUDGET,
        "{reasons}"
    );
}

pub(crate) fn a_pool_of_threads_is_not_followed_and_works() {
    let ((sum, threads), trace) = within(|| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(2)
            .build()
            .unwrap();
        let sum = pool.install(|| (0..1_000_u64).into_par_iter().map(|n| n * n).sum::<u64>());
        (sum, pool.current_num_threads())
    });
    assert_eq!(sum, (0..1_000).map(|n| n * n).sum::<u64>());
    assert_eq!(threads, 2);
    // They are listed, or the budget was spent before they were made.
    let told = trace.assumed.contains(&Fact::ChildrenNotFollowed);
    let listed = trace.started == 2 && trace.not_followed.iter().all(|child| child.thread);
    let reasons = trace.reasons;
    assert!(
        told && listed || reasons.contains(Reasons::BUDGET),
        "{trace:?}"
    );
    assert!(
        trace.is_complete() || reasons == Reasons::BUDGET,
        "{reasons}"
    );
}
