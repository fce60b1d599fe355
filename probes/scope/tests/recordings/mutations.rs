//! Damaged recordings: a bit flipped, a byte dropped, an end cut off. What comes out is truncated, or another trace; it is
//! never a crash.
use std::path::Path;

use scalpel_scope::decode::{self, Request};
use scalpel_scope::sink::Kept;

use crate::programs::Dice;
use crate::{recordings, tests};

tests! {
    Recordings:
    damaged_packets_are_told,
    damaged_bundles_do_not_crash,
    damaged_perf_data_do_not_crash,
}

/// What a decoding comes to; `None` if it is refused.
fn result(request: &Request) -> Option<(bool, Kept)> {
    let mut kept = Kept::default();
    let decoded = decode::decode(request, &mut kept, &mut |_, _| {}).ok()?;
    Some((decoded.summary.reasons.is_empty(), kept))
}

/// One way to damage bytes.
fn damaged(bytes: &[u8], dice: &mut Dice, from: usize) -> Vec<u8> {
    let mut all = bytes.to_vec();
    let at = from + dice.roll((bytes.len() - from) as u64) as usize;
    match dice.roll(3) {
        0 => all[at] ^= 1 << dice.roll(8),
        1 => {
            all.remove(at);
        }
        _ => all.truncate(at),
    }
    all
}

/// Same path, still called complete: only where the damage is in what does not tell of the path.
fn damaged_packets_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("pt.bin");
    let program = recordings().join("pt/dynamorio-simple/hello");
    let bytes = std::fs::read(recordings().join("pt/dynamorio-simple/pt.bin")).unwrap();
    let mut request = Request {
        trace: recordings().join("pt/dynamorio-simple/pt.bin"),
        images: vec![(program, Some(0x0040_0000))],
        ..Request::default()
    };
    let (complete, truth) = result(&request).unwrap();
    assert!(complete);
    request.trace = trace.clone();
    let mut dice = Dice(0x00da_4a6e);
    let mut told = 0;
    for _ in 0..1_500 {
        std::fs::write(&trace, damaged(&bytes, &mut dice, 0)).unwrap();
        match result(&request) {
            Some((true, kept)) => {
                // Most of this trace are packets of time: damage there leaves the path as it was.
                told += usize::from(kept.steps != truth.steps);
            }
            _ => told += 1,
        }
    }
    assert!(told > 100, "{told}");
}

fn damaged_bundles_do_not_crash() {
    for (name, trace) in [
        ("lldb-single", "3842849.trace"),
        ("lldb-multi-core", "cores/45.intelpt_trace"),
        ("lldb-multi-core", "cores/45.perf_context_switch_trace"),
        ("lldb-multi-core", "trace.json"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        copy(&recordings().join("pt").join(name), folder.path());
        let file = folder.path().join(trace);
        let bytes = std::fs::read(&file).unwrap();
        // The buffer of the one thread is mostly empty.
        let from = bytes.iter().position(|byte| *byte != 0).unwrap();
        let mut dice = Dice(0x00b0_4d1e);
        let request = Request {
            trace: folder.path().to_owned(),
            ..Request::default()
        };
        for _ in 0..60 {
            std::fs::write(&file, damaged(&bytes, &mut dice, from)).unwrap();
            drop(result(&request));
        }
    }
}

fn damaged_perf_data_do_not_crash() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    for name in [
        "perf.data.branch-4.14",
        "perf.data.branch_stack_spec",
        "perf.data.intel_pt-4.14",
    ] {
        let bytes = std::fs::read(recordings().join("perf-data").join(name)).unwrap();
        let mut dice = Dice(0x0fe4_f0da);
        for turn in 0..60 {
            // Half of them in the header and the records at the beginning.
            let part = if turn % 2 == 0 { 4_096 } else { bytes.len() };
            let mut all = damaged(&bytes[..part], &mut dice, 8);
            all.extend_from_slice(&bytes[part..]);
            std::fs::write(&file, all).unwrap();
            let request = Request {
                trace: file.clone(),
                ..Request::default()
            };
            drop(result(&request));
        }
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir_all(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            std::fs::write(&target, std::fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}
