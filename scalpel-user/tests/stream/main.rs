//! The kernel's stream on programs with known truth, without the rest of the collector. Needs root.
#![expect(clippy::wildcard_imports, reason = "the lists name every test")]

mod calls;
mod processes;
mod recording;
#[path = "../attach/subject.rs"]
#[expect(dead_code, reason = "the attach tests use more of it")]
mod subject;

use std::process::ExitCode;

use scalpel_tests::suite::{Suite, cannot_record};
use scalpel_tests::tests;

fn main() -> ExitCode {
    let mut suite = Suite::new("kernel", cannot_record());
    {
        use calls::*;
        tests!(suite, "calls":
            every_call_is_an_entry_and_an_exit_in_sequence,
            a_call_past_the_return_depth_says_that_it_has_no_exit,
            complete_records_find_their_own_call_under_recursion,
            complete_records_survive_tail_calls_and_jumps,
            the_guard_refuses_returns_on_alternate_stacks_only,
            a_refused_return_is_told_to_those_who_ask,
            cpu_time_agrees_with_the_threads_own_clock,
            what_a_small_ring_loses_is_counted_to_the_event,
            without_a_lease_nothing_is_recorded,
        );
    }
    {
        use processes::*;
        tests!(suite, "processes":
            children_are_watched_from_their_first_instruction,
            children_are_strangers_unless_asked_for,
            an_exec_is_reported,
            a_late_library_is_reported_with_its_path,
            samples_show_where_a_busy_program_is,
        );
    }
    suite.run()
}
