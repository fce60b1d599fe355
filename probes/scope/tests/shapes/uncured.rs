//! Each cure, and the shapes that must fail when it is taken out: a test that holds without its cure proves nothing.
//! Needs the feature `uncured`.

/// The cure by its name in the engine, and shapes that need it.
pub(crate) const ALL: &[(&str, &[&str])] = &[
    (
        "LostStepInserted",
        &[
            "the_instruction_behind_a_system_call_is_there",
            "the_instruction_behind_int_80_is_there",
            "the_shadow_of_mov_ss_is_there",
        ],
    ),
    (
        "OnlyRepeatsFolded",
        &["a_loop_of_one_instruction_is_not_folded"],
    ),
    ("StoppedForGood", &["a_spent_budget_really_stops"]),
    (
        "FlagHidden",
        &[
            "pushed_flags_do_not_show_the_trap_flag",
            "r11_does_not_show_the_trap_flag",
        ],
    ),
    ("FlagKeptByPop", &["popped_flags_do_not_end_the_trace"]),
    (
        "ForkUnstepped",
        &[
            "a_child_with_handlers_cleared_lives",
            "a_fork_is_stepped_over_and_the_child_runs_free",
            "a_child_has_the_mask_that_the_program_wants",
        ],
    ),
    (
        "SequenceRunsOn",
        &["a_restartable_sequence_is_a_reason_and_commits"],
    ),
    ("ProbeStepKnown", &["a_uprobe_in_the_code_is_stepped"]),
    ("ReturnProbeKnown", &["a_return_probe_in_the_code_is_exact"]),
    (
        "FaultSafeReads",
        &["a_return_at_the_end_of_a_mapping_does_not_fault"],
    ),
    (
        "HandlerStays",
        &[
            "flags_that_were_saved_in_the_scope_are_harmless_behind_it",
            "nothing_is_installed_before_the_first_open",
        ],
    ),
    (
        "StrayFlagCleared",
        &["flags_that_were_saved_in_the_scope_are_harmless_behind_it"],
    ),
    (
        "ActionEmulated",
        &[
            "sigtrap_default_set_in_the_scope_does_not_kill",
            "a_handler_set_in_the_scope_gets_what_is_not_a_step",
        ],
    ),
    (
        "MaskEmulated",
        &[
            "a_blocked_sigtrap_does_not_kill",
            "a_thread_is_not_followed_and_both_live",
            "system_runs_its_command",
        ],
    ),
    ("OwnStack", &["a_small_stack_survives"]),
    (
        "StackEmulated",
        &["the_signal_stack_that_the_program_sets_is_kept"],
    ),
    (
        "ForeignHandedOn",
        &["an_int3_is_handed_on", "a_sent_sigtrap_is_handed_on"],
    ),
    (
        "ForeignAsKernel",
        &["a_handler_that_is_handed_on_runs_as_the_kernel_runs_it"],
    ),
    (
        "HandlerNotTraced",
        &["a_breakpoint_in_a_signal_handler_is_not_the_flow"],
    ),
    ("SignalNoted", &["a_pending_signal_is_noted"]),
    (
        "ChangedCodeNoted",
        &[
            "an_instruction_that_rewrites_itself_is_a_reason",
            "a_system_call_that_rewrites_what_is_behind_it_is_a_reason",
        ],
    ),
    (
        "HiddenCallByStub",
        &[
            "two_system_calls_in_a_row_are_exact",
            "what_hides_behind_a_shadow_is_a_reason",
        ],
    ),
    (
        "ReturnSlotWatched",
        &[
            "an_exception_through_the_region_is_exact",
            "a_longjmp_back_into_the_region_is_exact",
        ],
    ),
    ("RepeatsRunOn", &["a_long_string_instruction_runs_at_once"]),
    (
        "MoveFollowed",
        &["a_handler_that_skips_an_instruction_is_followed"],
    ),
    (
        "FaultActionEmulated",
        &["a_handler_of_a_fault_set_in_the_scope_is_the_programs"],
    ),
    (
        "LandingsKnown",
        &["a_jump_back_that_no_slot_shows_is_a_reason"],
    ),
    (
        "HandlerRechecked",
        &["a_scope_behind_a_replaced_handler_is_not_armed"],
    ),
    ("OneEngine", &["another_engine_is_a_reason_to_skip"]),
    (
        "StubKnownByPlace",
        &["calls_by_stubs_whose_traps_are_all_swallowed"],
    ),
    (
        "SelfLoopCounted",
        &[
            "turns_of_one_instruction_whose_traps_are_all_swallowed",
            "string_instructions_whose_traps_are_all_swallowed",
        ],
    ),
    (
        "FirstKnownByPlace",
        &[
            "turns_of_one_instruction_whose_traps_are_all_swallowed",
            "a_window_whose_traps_are_all_swallowed",
        ],
    ),
    (
        "PoppedFlagKnown",
        &["random_programs_whose_traps_are_all_swallowed"],
    ),
    ("EntriesWatched", &["a_callback_into_the_region_is_exact"]),
    (
        "CallOutsVerified",
        &["a_callee_that_blocks_sigtrap_is_a_reason"],
    ),
];
