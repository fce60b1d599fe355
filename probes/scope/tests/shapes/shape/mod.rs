//! The shapes by name. A shape that returns is well; a panic, a death or a hang is a failure.
mod callouts;
mod copies;
mod flags;
mod flow;
mod foreign;
mod handlers;
mod landings;
mod life;
mod moves;
mod mutation;
mod random;
mod real;
mod recovers;
mod surface;
mod swallowed;
mod text;

pub(crate) use callouts::may as may_watch;
pub(crate) use flow::has_protection_keys;
pub(crate) use foreign::can_probe;
#[cfg(feature = "uncured")]
pub(crate) use swallowed::each::ALL as SWALLOWED;

/// How the process of a shape has to end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Well,
    By(i32),
}

macro_rules! shapes {
    ($($room:ident { $($name:ident),* $(,)? })*) => {
        pub(crate) const ALL: &[(&str, fn(), End)] = &[
            $($((stringify!($name), $room::$name as fn(), End::Well),)*)*
            ("an_int3_that_nobody_handles_kills_as_it_would", foreign::int3_unhandled, End::By(libc::SIGTRAP)),
            ("a_fault_in_a_copy_that_nobody_handles_kills_as_it_would", copies::a_fault_that_nobody_handles, End::By(libc::SIGSEGV)),
        ];
    };
}

shapes! {
    flow {
        the_instruction_behind_a_system_call_is_there,
        the_instruction_behind_int_80_is_there,
        the_shadow_of_mov_ss_is_there,
        a_loop_of_one_instruction_is_not_folded,
        a_repeated_string_instruction_is_folded_with_its_count,
        self_recursion_is_exact,
        a_long_string_instruction_runs_at_once,
        a_longjmp_into_the_scope_is_exact,
        code_that_changes_itself_is_shown_as_it_ran,
        a_return_at_the_end_of_a_mapping_does_not_fault,
        execute_only_code_is_traced,
        two_system_calls_in_a_row_are_exact,
        what_hides_behind_a_shadow_is_a_reason,
        cpuid_rdtsc_and_the_vdso_are_stepped,
        loops_and_jumps_on_a_counter_are_exact,
        indirect_jumps_are_exact,
        an_instruction_that_rewrites_itself_is_a_reason,
        a_system_call_that_rewrites_what_is_behind_it_is_a_reason,
        code_that_is_made_anew_at_the_same_place_is_shown_twice,
        a_wide_vector_state_survives,
        code_under_a_protection_key_is_traced,
        an_exception_with_destructors_is_exact,
        a_callback_into_the_region_is_seen_each_time,
        every_longjmp_back_is_exact,
    }
    flags {
        pushed_flags_do_not_show_the_trap_flag,
        r11_does_not_show_the_trap_flag,
        popped_flags_do_not_end_the_trace,
        flags_that_were_saved_in_the_scope_are_harmless_behind_it,
        the_red_zone_is_kept,
    }
    foreign {
        an_int3_is_handed_on,
        a_sent_sigtrap_is_handed_on,
        a_handler_set_in_the_scope_gets_what_is_not_a_step,
        sigtrap_default_set_in_the_scope_does_not_kill,
        a_blocked_sigtrap_does_not_kill,
        a_mask_from_a_bad_pointer_is_efault,
        the_mask_that_the_program_wants_is_kept,
        a_signal_handler_is_excluded,
        a_small_stack_survives,
        a_uprobe_in_the_code_is_stepped,
        a_handler_that_is_handed_on_runs_as_the_kernel_runs_it,
        a_breakpoint_in_a_signal_handler_is_not_the_flow,
        the_signal_stack_that_the_program_sets_is_kept,
        a_handler_on_its_own_stack_is_excluded_and_returns,
        a_pending_signal_is_noted,
        a_return_probe_in_the_code_is_exact,
    }
    recovers {
        a_siglongjmp_from_a_fault_handler_is_exact_or_told,
        a_siglongjmp_from_a_handler_on_its_own_stack_is_exact_or_told,
    }
    text {
        text_that_the_thread_patches_is_shown_as_it_ran,
        text_that_the_thread_unmaps_is_no_change,
        text_that_another_thread_patches_is_a_reason,
    }
    swallowed {
        sent_traps_lose_no_call_that_a_stub_makes,
        sent_traps_lose_no_turn_of_one_instruction,
        sent_traps_lose_no_turn_of_a_string_instruction,
    }
    life {
        a_fork_is_stepped_over_and_the_child_runs_free,
        every_way_to_fork_is_exact,
        a_child_with_handlers_cleared_lives,
        a_vfork_is_stepped_over,
        a_child_has_the_mask_that_the_program_wants,
        a_failed_exec_is_stepped_over,
        an_exec_in_a_scope_runs_the_program,
        a_thread_is_not_followed_and_both_live,
        a_spawned_command_is_not_followed_and_runs,
        system_runs_its_command,
        a_restartable_sequence_is_a_reason_and_commits,
        a_spent_budget_really_stops,
        spent_time_really_stops,
        a_drop_on_another_thread_is_a_thread_hop,
        two_threads_at_once_are_exact,
        a_thousand_scopes_leave_nothing,
        a_million_passes_of_one_site_are_bounded,
        a_scope_in_a_forked_child_works,
        a_scope_that_is_dropped_in_a_forked_child_says_so,
        a_thread_that_ends_with_a_scope_open_leaves_nothing_armed,
        a_forgotten_scope_ends_by_its_budget,
    }
    surface {
        sixteen_scopes_nest_and_the_seventeenth_is_skipped,
        a_wrong_order_is_an_error_and_a_reason,
        a_double_close_is_an_error,
        handles_are_never_used_twice,
        a_thread_records_again_after_its_scopes_were_closed_elsewhere,
        a_region_shows_its_instructions_only,
        a_window_sees_what_the_thread_runs,
        an_inner_scope_leaves_the_outer_one_complete,
        scopes_are_turned_off_by_the_environment,
        a_named_tier_is_never_replaced,
        nothing_is_installed_before_the_first_open,
        a_site_sleeps_when_its_budget_is_spent,
        a_debugger_is_a_reason_to_skip,
        another_engine_is_a_reason_to_skip,
        a_panic_through_a_scope_closes_it,
        renderings_say_what_ran,
    }
    callouts {
        a_callee_runs_at_full_speed,
        a_callee_may_fork_spawn_and_start_threads,
        a_callee_that_blocks_sigtrap_is_a_reason,
        an_exception_through_the_region_is_exact,
        an_exception_through_many_frames_is_exact_or_told,
        a_longjmp_back_into_the_region_is_exact,
        a_longjmp_past_the_region_is_exact_or_told,
        a_callback_into_the_region_is_exact,
        a_scope_in_a_callee_leaves_the_outer_one_exact,
        nothing_is_left_behind_a_thousand_scopes,
    }
    handlers {
        a_callee_that_takes_the_handler_away_does_not_kill,
        a_handler_that_a_raw_call_replaces_is_a_reason,
        a_scope_behind_a_replaced_handler_is_not_armed,
        a_handler_that_is_taken_away_outside_the_region_does_not_kill,
    }
    landings {
        a_longjmp_past_a_function_is_exact_at_any_depth,
        a_longjmp_past_a_region_and_straight_to_the_close_is_exact,
        an_exception_past_a_function_without_landings_is_exact,
        an_exception_past_a_cleanup_is_exact_each_time,
        a_jump_back_that_no_slot_shows_is_a_reason,
        a_longjmp_past_code_of_no_file_is_a_reason,
    }
    copies {
        a_fault_in_a_copy_is_told_where_it_belongs,
        a_fault_of_an_indirect_branch_keeps_the_registers,
        a_string_instruction_that_faults_is_folded,
        a_division_by_zero_in_a_copy_is_told_where_it_belongs,
        no_handler_sees_an_address_of_a_copy,
        a_sent_fault_signal_arrives,
        a_sent_trap_arrives,
        an_exception_passes_through_copies,
        a_backtrace_in_a_copy_names_the_program,
        code_that_is_rewritten_in_the_scope_runs_as_it_is,
        code_that_can_be_written_is_stepped,
        a_region_that_its_callee_rewrites_runs_as_it_is,
        a_forked_child_has_copies_of_its_own,
        a_full_log_of_copies_is_a_budget_that_is_spent,
        vectors_and_flags_are_kept,
        real_functions_are_alike,
        two_threads_run_from_copies_at_once,
    }
    moves {
        a_handler_that_skips_an_instruction_is_followed,
        a_handler_that_moves_the_first_instruction_is_followed,
        a_handler_that_calls_a_function_is_followed,
        a_move_behind_a_system_call_is_followed,
        a_move_out_of_the_region_and_back_is_exact,
        a_move_in_a_callee_at_full_speed_is_exact,
        a_thousand_moves_are_exact,
        a_handler_that_repairs_a_fault_is_no_move,
        a_handler_of_a_sent_signal_that_moves_rip_is_a_reason,
        a_handler_of_a_fault_set_in_the_scope_is_the_programs,
    }
    real {
        a_parser_of_json_is_complete_and_parses,
        a_pool_of_threads_is_not_followed_and_works,
    }
    random {
        a_path_is_decoded_from_its_packets,
        random_programs_of_spring,
        random_programs_of_summer,
        random_programs_of_autumn,
        random_programs_of_winter,
    }
    mutation {
        random_traces_lose_swap_or_double_nothing_unseen,
        visits_of_a_region_are_not_lost_swapped_or_doubled_unseen,
        versions_of_code_are_not_swapped_unseen,
    }
}
