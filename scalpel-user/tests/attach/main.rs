//! The attach mechanisms on programs with known truth, without the rest of the collector. Needs root.

mod harm;
mod links;
mod subject;

use std::process::ExitCode;

use scalpel_tests::suite::{Suite, cannot_record};
use scalpel_tests::tests;

fn main() -> ExitCode {
    if let Some(outcome) = links::run_as_other() {
        return if outcome.is_ok() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    let mut suite = Suite::new("kernel", cannot_record());
    harm::add(&mut suite);
    {
        use links::*;
        tests!(suite, "links":
            a_refused_offset_is_found_and_the_others_are_attached,
            an_offset_beyond_the_file_is_refused,
            a_function_asked_for_twice_counts_once,
            a_deleted_file_can_be_probed,
            dropping_a_function_neither_misses_nor_doubles_calls_of_the_others,
            a_hot_function_is_dropped_by_the_breaker,
            a_hot_group_is_noticed_before_attach_returns,
            two_capabilities_are_enough_and_missing_ones_are_named,
            many_links_close_in_parallel,
            a_pid_filter_leaves_strangers_alone,
            a_filter_for_a_process_that_is_gone_says_so,
            too_many_perf_probes_are_refused_before_any_is_attached,
            a_killed_collector_leaves_nothing,
            dropping_attachments_leaves_nothing,
            the_cost_of_a_probe_is_measured_by_every_mechanism,
        );
    }
    suite.run()
}
