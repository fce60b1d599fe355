//! `perf.data` files made here, around packets whose path is known: chunks, side band, threads that move between processors.
use std::path::PathBuf;

use scalpel_scope::Reasons;
use scalpel_scope::decode::{self, Request};
use scalpel_scope::sink::Kept;
use scalpel_scope::trace::{Link, Step};

use crate::perf_file::{ENTRY, Made, PID, SAMPLE_TYPE, stay};
use crate::{decoded, recordings, tests};

tests! {
    Recordings:
    a_thread_in_two_chunks_is_one_flow,
    bytes_that_are_missing_are_told,
    a_thread_that_moves_between_processors_is_one_flow,
    a_file_that_is_not_vouched_for_is_not_taken,
    a_trace_of_absurd_size_or_place_ends_with_the_file,
    compressed_records_are_read_as_plain_ones,
    compressed_records_that_are_damaged_are_told,
    pieces_of_samples_are_gaps_apart,
    pieces_of_samples_that_overlap_are_one_flow,
    pieces_of_samples_take_the_place_of_no_buffer,
}

fn request(file: PathBuf) -> Request {
    Request {
        trace: file,
        folders: vec![recordings().join("pt/dynamorio-simple")],
        ..Request::default()
    }
}

fn packets() -> Vec<u8> {
    std::fs::read(recordings().join("pt/dynamorio-simple/pt.bin")).unwrap()
}

fn of_one_thread(second: u64) -> Made {
    let packets = packets();
    let (first, rest) = packets.split_at(1_000);
    let mut made = Made::default();
    made.info();
    made.program();
    made.traced(0, (PID, u32::MAX), 0, first);
    made.traced(0, (PID, u32::MAX), second, rest);
    made
}

fn a_thread_in_two_chunks_is_one_flow() {
    let folder = tempfile::tempdir().unwrap();
    let (decoded, _) = decoded(&request(of_one_thread(1_000).file(folder.path())));
    assert_eq!(decoded.summary.instructions, 8, "{decoded:?}");
    assert_eq!(decoded.summary.reasons, Reasons::NONE);
}

fn bytes_that_are_missing_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let (decoded, _) = decoded(&request(of_one_thread(1_500).file(folder.path())));
    assert!(
        decoded.summary.reasons.contains(Reasons::BUFFER_FULL),
        "{decoded:?}"
    );
}

fn a_thread_that_moves_between_processors_is_one_flow() {
    let folder = tempfile::tempdir().unwrap();
    let mut made = Made::default();
    made.info();
    made.program();
    let switch = |made: &mut Made, time, cpu| {
        made.known(15, 0, &[0; 8], (PID, time, cpu));
    };
    // To the first system call on processor 1, from there on processor 0, whose buffer comes first in the file.
    switch(&mut made, 2_000, 0);
    switch(&mut made, 1_000, 1);
    made.traced(0, (u32::MAX, 0), 0, &stay(ENTRY + 27, 2_100));
    made.traced(1, (u32::MAX, 1), 0, &stay(ENTRY, 1_100));
    let (decoded, kept) = decoded(&request(made.file(folder.path())));
    let offsets: Vec<u64> = kept
        .steps
        .iter()
        .map(|step| kept.code[step.code as usize].addr - ENTRY)
        .collect();
    assert_eq!(offsets, [0, 5, 10, 20, 25, 27, 32, 37], "{decoded:?}");
    assert_eq!(decoded.summary.reasons, Reasons::NONE, "{decoded:?}");
    assert_eq!(decoded.summary.threads, 1);
}

fn a_trace_of_absurd_size_or_place_ends_with_the_file() {
    let folder = tempfile::tempdir().unwrap();
    for size in [1 << 43, 1 << 62, u64::MAX] {
        for offset in [0, 1_500, u64::MAX - 7] {
            let mut made = of_one_thread(offset);
            // The last record's size, behind which the packets are.
            let at = made.0.len() - (packets().len() - 1_000) - 40;
            made.0[at..at + 8].copy_from_slice(&size.to_le_bytes());
            let (decoded, _) = decoded(&request(made.file(folder.path())));
            assert!(
                decoded.summary.reasons.contains(Reasons::BUFFER_FULL),
                "{size:x} {offset:x} {decoded:?}"
            );
        }
    }
}

fn a_file_that_is_not_vouched_for_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let mut request = request(of_one_thread(1_000).file(folder.path()));
    request.folders.clear();
    let (decoded, _) = decoded(&request);
    assert!(
        decoded.summary.reasons.contains(Reasons::NO_CODE),
        "{decoded:?}"
    );
    assert!(decoded.complaints[0].contains("--symfs"), "{decoded:?}");
}

/// Plain bytes as a stream of Zstandard that goes on: no block of it is the last.
fn unfinished(plain: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x48];
    for block in plain.chunks(50) {
        stream.extend((block.len() as u32 * 8).to_le_bytes().iter().take(3));
        stream.extend(block);
    }
    stream
}

/// The side band in compressed records of either kind, the packets behind it.
fn compressed(stream: &[u8], kind: u32) -> Made {
    let mut made = Made::default();
    for piece in stream.chunks(37) {
        let mut body = Vec::new();
        if kind == 83 {
            body.extend((piece.len() as u64).to_le_bytes());
        }
        body.extend(piece);
        body.resize(body.len() + usize::from(kind == 83) * 3, 0);
        made.record(kind, 0, &body);
    }
    made.traced(0, (PID, u32::MAX), 0, &packets());
    made
}

fn compressed_records_are_read_as_plain_ones() {
    let mut plain = Made::default();
    plain.info();
    plain.program();
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let finished = ruzstd::encoding::compress_to_vec(plain.0.as_slice(), level);
    let folder = tempfile::tempdir().unwrap();
    for stream in [unfinished(&plain.0), finished] {
        for kind in [81, 83] {
            let made = compressed(&stream, kind);
            let (decoded, _) = decoded(&request(made.file(folder.path())));
            assert_eq!(decoded.summary.instructions, 8, "{decoded:?}");
            assert_eq!(decoded.summary.reasons, Reasons::NONE);
        }
    }
}

fn compressed_records_that_are_damaged_are_told() {
    let mut plain = Made::default();
    plain.info();
    plain.program();
    let stream = unfinished(&plain.0);
    let folder = tempfile::tempdir().unwrap();
    // In the middle of a block: what came before it is there, and the rest is missing.
    let cut = compressed(&stream[..stream.len() - 4], 81);
    let (decoded, _) = decoded(&request(cut.file(folder.path())));
    assert!(
        decoded.summary.reasons.contains(Reasons::BUFFER_FULL),
        "{decoded:?}"
    );
    let mut broken = stream;
    broken[0] ^= 1;
    let broken = compressed(&broken, 81).file(folder.path());
    let error = decode::decode(&request(broken), &mut Kept::default(), &mut |_, _| {});
    let error = error.unwrap_err().to_string();
    assert!(error.contains("compressed records"), "{error}");
}

const AUX: u64 = 1 << 20;

/// From the entry to the end, in pieces of samples.
fn in_pieces(pieces: &[&[u8]]) -> (decode::Decoded, Vec<(u64, Link)>) {
    let folder = tempfile::tempdir().unwrap();
    let mut made = Made::default();
    made.info();
    made.program();
    // The buffer is a processor's.
    made.known(15, 0, &[0; 8], (PID, 1_000, 0));
    for (place, piece) in pieces.iter().enumerate() {
        made.sampled((PID, 3_000 + place as u64, 0), piece);
    }
    let file = made.file_of(SAMPLE_TYPE | AUX, folder.path());
    let (decoded, kept) = decoded(&request(file));
    let offset = |step: &Step| kept.code[step.code as usize].addr - ENTRY;
    let steps = kept.steps.iter().map(|step| (offset(step), step.link));
    (decoded, steps.collect())
}

fn pieces_of_samples_are_gaps_apart() {
    let (decoded, steps) = in_pieces(&[&stay(ENTRY, 1_100), &stay(ENTRY + 27, 2_100)]);
    let offsets: Vec<u64> = steps.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets, [0, 5, 10, 20, 25, 27, 32, 37], "{decoded:?}");
    assert_eq!(steps[5].1, Link::Gap);
    assert_eq!(
        decoded.summary.reasons,
        Reasons::SAMPLED.with(Reasons::GAP),
        "{decoded:?}"
    );
}

fn pieces_of_samples_that_overlap_are_one_flow() {
    let (first, second) = (stay(ENTRY, 1_100), stay(ENTRY + 27, 2_100));
    let all = [&first[..], &second[..]].concat();
    // The second piece begins before the first one ends, which is behind the time of the second stay.
    let (end, begin) = (first.len() + 34, first.len() - 3);
    let (decoded, steps) = in_pieces(&[&all[..end], &all[begin..]]);
    let offsets: Vec<u64> = steps.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets, [0, 5, 10, 20, 25, 27, 32, 37], "{decoded:?}");
    assert!(steps.iter().all(|(_, link)| *link == Link::Flow));
    assert_eq!(decoded.summary.reasons, Reasons::SAMPLED, "{decoded:?}");
}

fn pieces_of_samples_take_the_place_of_no_buffer() {
    let folder = tempfile::tempdir().unwrap();
    for index in [0, 1, u32::MAX - 1, u32::MAX] {
        let mut made = Made::default();
        made.info();
        made.program();
        made.known(15, 0, &[0; 8], (PID, 1_000, 0));
        made.traced(index, (PID, u32::MAX), 0, &packets());
        made.sampled((PID, 3_000, 0), &stay(ENTRY, 1_100));
        let (decoded, _) = decoded(&request(made.file_of(SAMPLE_TYPE | AUX, folder.path())));
        assert!(decoded.summary.instructions > 8, "{index}: {decoded:?}");
        assert!(decoded.summary.reasons.contains(Reasons::SAMPLED));
    }
}
