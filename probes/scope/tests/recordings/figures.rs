//! The figures of the recordings.
use scalpel_scope::decode;
use scalpel_scope::lbr::Speculation;
use scalpel_scope::trace::{Reasons, Tier};

use crate::{decoded, recordings, request, tests};

tests! {
    Recordings:
    a_static_program_runs_eight_instructions,
    a_bundle_of_one_thread_has_21_instructions,
    a_bundle_of_three_modules_is_truncated_where_code_is_missing,
    a_bundle_of_a_processor_has_61825_instructions,
    a_wrong_module_is_told_and_is_a_truncation,
    a_perf_data_has_its_packets,
    a_perf_data_with_the_kernel_is_truncated_and_says_why,
    amd_branch_stacks_keep_their_entries,
    intel_branch_stacks_keep_empty_entries,
    a_survey_is_never_complete,
}

fn a_static_program_runs_eight_instructions() {
    let mut request = request("pt/dynamorio-simple/pt.bin");
    let program = recordings().join("pt/dynamorio-simple/hello");
    request.images = vec![(program, Some(0x0040_0000))];
    let (decoded, kept) = decoded(&request);
    let offsets: Vec<u64> = kept
        .steps
        .iter()
        .map(|step| kept.code[step.code as usize].addr - 0x0040_1000)
        .collect();
    assert_eq!(offsets, [0, 5, 10, 20, 25, 27, 32, 37]);
    assert_eq!(decoded.tier, Tier::IntelPt);
    assert_eq!(decoded.summary.reasons, Reasons::NONE);
    assert_eq!(decoded.summary.ends, Some((0x0040_1000, 0x0040_1027)));
}

fn a_bundle_of_one_thread_has_21_instructions() {
    let (decoded, kept) = decoded(&request("pt/lldb-single"));
    assert_eq!(decoded.summary.instructions, 21, "{decoded:?}");
    assert_eq!(kept.code[kept.steps[0].code as usize].addr, 0x0040_0511);
    assert_eq!(decoded.summary.reasons, Reasons::NONE);
}

fn a_bundle_of_three_modules_is_truncated_where_code_is_missing() {
    let mut request = request("pt/lldb-multi-file/multi-file-no-ld.json");
    request.thread = Some(815_455);
    let (decoded, _) = decoded(&request);
    assert_eq!(decoded.summary.instructions, 45, "{decoded:?}");
    assert!(decoded.summary.reasons.contains(Reasons::NO_CODE));
}

fn a_bundle_of_a_processor_has_61825_instructions() {
    let (decoded, kept) = decoded(&request("pt/lldb-multi-core"));
    assert_eq!(decoded.summary.instructions, 61_825, "{decoded:?}");
    assert_eq!(kept.steps.len(), 61_825);
}

fn a_wrong_module_is_told_and_is_a_truncation() {
    let folder = tempfile::tempdir().unwrap();
    let from = recordings().join("pt/lldb-single");
    for name in ["trace.json", "3842849.trace"] {
        std::fs::copy(from.join(name), folder.path().join(name)).unwrap();
    }
    // A program that has a build-id, and another one.
    std::fs::copy(
        std::env::current_exe().unwrap(),
        folder.path().join("a.out"),
    )
    .unwrap();
    let mut request = request("");
    request.trace = folder.path().to_owned();
    let (decoded, _) = decoded(&request);
    assert!(
        decoded.summary.reasons.contains(Reasons::NO_CODE),
        "{decoded:?}"
    );
    assert!(
        decoded.complaints[0].contains("another build"),
        "{decoded:?}"
    );
}

fn a_perf_data_has_its_packets() {
    let counts = decode::packets(&recordings().join("perf-data/perf.data.intel_pt-4.14")).unwrap();
    // As libipt numbers them: synchronisation points, TIP, short TNT, PIP.
    let [psb, tip, tnt, pip] = [counts[3], counts[6], counts[9], counts[12]];
    assert_eq!(
        (psb, tip, tnt, pip),
        (10, 12_039, 69_516, 441),
        "{counts:?}"
    );
}

fn a_perf_data_with_the_kernel_is_truncated_and_says_why() {
    let (decoded, _) = decoded(&request("perf-data/perf.data.intel_pt-4.14"));
    assert!(
        decoded.summary.reasons.contains(Reasons::NO_CODE),
        "{decoded:?}"
    );
    assert!(
        decoded.complaints.iter().any(|why| why.contains("kernel")),
        "{decoded:?}"
    );
}

fn amd_branch_stacks_keep_their_entries() {
    let stacks =
        decode::branch_stacks(&recordings().join("perf-data/perf.data.branch_stack_spec")).unwrap();
    let lengths: Vec<usize> = stacks.iter().map(Vec::len).collect();
    assert_eq!(lengths, [16; 8]);
    for branch in stacks.iter().flatten() {
        assert_eq!(branch.speculation(), Speculation::NotSpeculated);
        assert!(
            branch.from >> 47 != 0 && branch.to >> 47 != 0,
            "{branch:x?}"
        );
    }
}

fn intel_branch_stacks_keep_empty_entries() {
    let stacks =
        decode::branch_stacks(&recordings().join("perf-data/perf.data.branch-4.14")).unwrap();
    assert_eq!(stacks.len(), 13);
    let all = || stacks.iter().flatten();
    assert!(all().any(scalpel_scope::lbr::Branch::is_empty));
    assert!(all().any(|branch| !branch.is_empty()));
}

fn a_survey_is_never_complete() {
    for name in ["perf.data.branch_stack_spec", "perf.data.branch-4.14"] {
        let (decoded, _) = decoded(&request(&format!("perf-data/{name}")));
        assert_eq!(decoded.tier, Tier::Lbr);
        assert!(
            decoded.summary.reasons.contains(Reasons::SAMPLED),
            "{decoded:?}"
        );
        assert!(!decoded.complaints.is_empty());
    }
}
