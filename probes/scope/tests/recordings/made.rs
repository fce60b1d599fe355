//! `perf.data` files made here, around packets whose path is known: chunks, side band, threads that move between processors.
use std::path::{Path, PathBuf};

use scalpel_scope::Reasons;
use scalpel_scope::decode::Request;
use scalpel_scope::pt::encode::{IpPacket, Writer};

use crate::{decoded, recordings, tests};

tests! {
    Recordings:
    a_thread_in_two_chunks_is_one_flow,
    bytes_that_are_missing_are_told,
    a_thread_that_moves_between_processors_is_one_flow,
    a_file_that_is_not_vouched_for_is_not_taken,
}

const SAMPLE_TYPE: u64 = 1 << 1 | 1 << 2 | 1 << 7;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const PID: u32 = 7;
/// Where the program of the recordings begins, and what it runs.
const ENTRY: u64 = 0x0040_1000;

/// Records, one after the other.
#[derive(Default)]
struct Made(Vec<u8>);

impl Made {
    fn record(&mut self, kind: u32, misc: u16, body: &[u8]) {
        self.0.extend(kind.to_le_bytes());
        self.0.extend(misc.to_le_bytes());
        self.0.extend((body.len() as u16 + 8).to_le_bytes());
        self.0.extend(body);
    }

    /// With who, when and where.
    fn known(&mut self, kind: u32, misc: u16, body: &[u8], (tid, time, cpu): (u32, u64, u32)) {
        let mut all = body.to_vec();
        all.extend([PID, tid].map(u32::to_le_bytes).concat());
        all.extend(time.to_le_bytes());
        all.extend(u64::from(cpu).to_le_bytes());
        self.record(kind, misc, &all);
    }

    /// Time stamps are nanoseconds.
    fn info(&mut self) {
        let words = [8_u64, 0, 1, 0, 1, 1 << 10, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0];
        let mut body = [1_u32, 0].map(u32::to_le_bytes).concat();
        body.extend(words.map(u64::to_le_bytes).concat());
        self.record(70, 0, &body);
    }

    fn program(&mut self) {
        let mut body = [PID, PID].map(u32::to_le_bytes).concat();
        body.extend([ENTRY, 0x1000, 0x1000].map(u64::to_le_bytes).concat());
        body.extend([0; 24]);
        body.extend([5_u32, 2].map(u32::to_le_bytes).concat());
        body.extend(b"/nowhere/hello\0\0");
        self.known(10, 2, &body, (PID, 1, 0));
    }

    fn traced(&mut self, index: u32, (tid, cpu): (u32, u32), offset: u64, bytes: &[u8]) {
        let mut body = [bytes.len() as u64, offset, 0]
            .map(u64::to_le_bytes)
            .concat();
        body.extend([index, tid, cpu, 0].map(u32::to_le_bytes).concat());
        self.record(71, 0, &body);
        self.0.extend(bytes);
    }

    /// The whole file.
    fn file(&self, folder: &Path) -> PathBuf {
        let mut attr = [8_u32, 112].map(u32::to_le_bytes).concat();
        // Packets with time.
        attr.extend(
            [1 << 10, 1, SAMPLE_TYPE, 0, SAMPLE_ID_ALL]
                .map(u64::to_le_bytes)
                .concat(),
        );
        attr.resize(112 + 16, 0);
        let mut all = b"PERFILE2".to_vec();
        let at = 104 + attr.len() as u64;
        let head = [
            104,
            128,
            104,
            128,
            at,
            self.0.len() as u64,
            0,
            0,
            0,
            0,
            0,
            0,
        ];
        all.extend(head.map(u64::to_le_bytes).concat());
        all.extend(&attr);
        all.extend(&self.0);
        let path = folder.join("perf.data");
        std::fs::write(&path, all).unwrap();
        path
    }
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

/// What a thread runs on a processor, from one system call to the next, with the time before it.
fn stay(from: u64, time: u64) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.psb(None);
    writer.tsc(time);
    writer.mode_64();
    writer.ip(IpPacket::Enable, from);
    writer.suppressed(IpPacket::Disable);
    writer.finish(false)
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
