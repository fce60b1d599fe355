//! A `perf.data` file, record by record, around a program whose path is known.
use std::path::{Path, PathBuf};

use scalpel_scope::pt::encode::{IpPacket, Writer};

pub(crate) const SAMPLE_TYPE: u64 = 1 << 1 | 1 << 2 | 1 << 7;
const SAMPLE_ID_ALL: u64 = 1 << 18;
pub(crate) const PID: u32 = 7;
/// Where the program of the recordings begins, and what it runs.
pub(crate) const ENTRY: u64 = 0x0040_1000;

/// Records, one after the other.
#[derive(Default)]
pub(crate) struct Made(pub(crate) Vec<u8>);

impl Made {
    pub(crate) fn record(&mut self, kind: u32, misc: u16, body: &[u8]) {
        self.0.extend(kind.to_le_bytes());
        self.0.extend(misc.to_le_bytes());
        self.0.extend((body.len() as u16 + 8).to_le_bytes());
        self.0.extend(body);
    }

    /// With who, when and where.
    pub(crate) fn known(
        &mut self,
        kind: u32,
        misc: u16,
        body: &[u8],
        (tid, time, cpu): (u32, u64, u32),
    ) {
        let mut all = body.to_vec();
        all.extend([PID, tid].map(u32::to_le_bytes).concat());
        all.extend(time.to_le_bytes());
        all.extend(u64::from(cpu).to_le_bytes());
        self.record(kind, misc, &all);
    }

    /// Time stamps are nanoseconds.
    pub(crate) fn info(&mut self) {
        let words = [8_u64, 0, 1, 0, 1, 1 << 10, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0];
        let mut body = [1_u32, 0].map(u32::to_le_bytes).concat();
        body.extend(words.map(u64::to_le_bytes).concat());
        self.record(70, 0, &body);
    }

    pub(crate) fn program(&mut self) {
        let mut body = [PID, PID].map(u32::to_le_bytes).concat();
        body.extend([ENTRY, 0x1000, 0x1000].map(u64::to_le_bytes).concat());
        body.extend([0; 24]);
        body.extend([5_u32, 2].map(u32::to_le_bytes).concat());
        body.extend(b"/nowhere/hello\0\0");
        self.known(10, 2, &body, (PID, 1, 0));
    }

    pub(crate) fn traced(&mut self, index: u32, (tid, cpu): (u32, u32), offset: u64, bytes: &[u8]) {
        let mut body = [bytes.len() as u64, offset, 0]
            .map(u64::to_le_bytes)
            .concat();
        body.extend([index, tid, cpu, 0].map(u32::to_le_bytes).concat());
        self.record(71, 0, &body);
        self.0.extend(bytes);
    }

    /// A sample that holds a piece of trace.
    pub(crate) fn sampled(&mut self, (tid, time, cpu): (u32, u64, u32), piece: &[u8]) {
        let mut body = [PID, tid].map(u32::to_le_bytes).concat();
        body.extend(time.to_le_bytes());
        body.extend(u64::from(cpu).to_le_bytes());
        body.extend((piece.len() as u64).to_le_bytes());
        body.extend(piece);
        self.record(9, 2, &body);
    }

    /// The whole file.
    pub(crate) fn file(&self, folder: &Path) -> PathBuf {
        self.file_of(SAMPLE_TYPE, folder)
    }

    pub(crate) fn file_of(&self, sample_type: u64, folder: &Path) -> PathBuf {
        let mut attr = [8_u32, 112].map(u32::to_le_bytes).concat();
        // Packets with time.
        attr.extend(
            [1 << 10, 1, sample_type, 0, SAMPLE_ID_ALL]
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

/// What a thread runs on a processor, from one system call to the next, with the time before it.
pub(crate) fn stay(from: u64, time: u64) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.psb(None);
    writer.tsc(time);
    writer.mode_64();
    writer.ip(IpPacket::Enable, from);
    writer.suppressed(IpPacket::Disable);
    writer.finish(false)
}
