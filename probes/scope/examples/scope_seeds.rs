//! Small sound inputs for the fuzz targets of scopes, made here: `scope_seeds FOLDER` writes a folder for each target.
#![expect(clippy::unwrap_used, reason = "an example ends where it cannot write")]
#[path = "../tests/recordings/perf_file.rs"]
#[expect(dead_code, reason = "the tests of recordings need more of it")]
mod perf_file;

use std::fs;
use std::path::Path;

use perf_file::{ENTRY, Made, PID, SAMPLE_TYPE, stay};
use scalpel_scope::pt::encode::{IpPacket, Writer};

const BASE: u64 = 0x0040_0000;
/// `nop`, and a jump back to it; `call` of a `ret`; `jmp rax`; `syscall`.
const LOOP: &[u8] = &[0x90, 0x75, 0xfd, 0xc3];
const CALLS: &[u8] = &[0xe8, 3, 0, 0, 0, 0xff, 0xe0, 0xc3, 0xc3];
const SYSTEM: &[u8] = &[0x0f, 5, 0x31, 0xc0, 0xc3];

fn main() {
    let folder = std::env::args_os().nth(1).expect("a folder");
    let folder = Path::new(&folder);
    let put = |target: &str, name: &str, bytes: &[u8]| {
        fs::create_dir_all(folder.join(target)).unwrap();
        fs::write(folder.join(target).join(name), bytes).unwrap();
    };
    for (name, code, packets) in [
        ("loop", LOOP, looped()),
        ("calls", CALLS, called()),
        ("system", SYSTEM, returned()),
    ] {
        let head = [u8::try_from(code.len()).unwrap(), 64];
        put("pt", name, &[&head[..], code, &packets].concat());
        let json = bundle();
        put(
            "lldb_bundle",
            name,
            &[json.as_bytes(), &[0], &packets].concat(),
        );
    }
    // Where from, where to, flags: the newest first.
    let head = [u8::try_from(LOOP.len()).unwrap()];
    let branches = [1, 0, 2, 1, 0, 2, 0, 0, 0, 1, 0, 1];
    put("lbr", "loop", &[&head[..], LOOP, &branches].concat());
    for (name, sample_type, made) in recordings() {
        let file = made.file_of(sample_type, folder);
        let bytes = fs::read(&file).unwrap();
        put("perf_data", name, &bytes);
        fs::remove_file(file).unwrap();
    }
}

fn begun() -> Writer {
    let mut writer = Writer::default();
    writer.psb(None);
    writer.tsc(1_000);
    writer.ip(IpPacket::Enable, BASE);
    writer
}

/// Some turns, a synchronisation point, and out.
fn looped() -> Vec<u8> {
    let mut writer = begun();
    for _ in 0..8 {
        writer.branch(true, false);
    }
    writer.flush(false);
    writer.psb(Some(BASE));
    writer.branch(true, true);
    writer.branch(false, true);
    writer.flush(true);
    writer.ip(IpPacket::Disable, 0x1000);
    writer.finish(false)
}

/// A call, its return in a bit and in an address, and a jump.
fn called() -> Vec<u8> {
    let mut writer = begun();
    writer.branch(true, false);
    writer.flush(false);
    writer.ip(IpPacket::Tip, BASE);
    writer.ip(IpPacket::Tip, BASE + 5);
    writer.overflow();
    writer.ip(IpPacket::Fup, BASE);
    writer.ip(IpPacket::Tip, BASE + 5);
    writer.ip(IpPacket::Disable, BASE);
    writer.finish(false)
}

/// A system call.
fn returned() -> Vec<u8> {
    let mut writer = begun();
    writer.suppressed(IpPacket::Disable);
    writer.ip(IpPacket::Enable, BASE + 2);
    writer.ip(IpPacket::Disable, 0x1000);
    writer.finish(false)
}

/// As LLDB writes it, its packets in the file that the target writes beside.
fn bundle() -> String {
    r#"{"type":"intel-pt","cpuInfo":{"vendor":"GenuineIntel","family":6,"model":85,"stepping":4},"processes":[{"pid":1,"threads":[{"tid":1,"iptTrace":"3842849.trace"}],"modules":[{"file":"a.out","systemPath":"a.out","loadAddress":4194304}]}]}"#
        .to_owned()
}

/// Of a thread, of processors, of samples with pieces, compressed.
fn recordings() -> Vec<(&'static str, u64, Made)> {
    const AUX: u64 = 1 << 20;
    let begun = || {
        let mut made = Made::default();
        made.info();
        made.program();
        made.known(15, 0, &[0; 8], (PID, 1_000, 0));
        made
    };
    let mut thread = begun();
    thread.traced(0, (PID, u32::MAX), 0, &stay(ENTRY, 1_100));
    let mut processors = begun();
    processors.traced(0, (u32::MAX, 0), 0, &stay(ENTRY, 1_100));
    processors.traced(1, (u32::MAX, 1), 0, &stay(ENTRY + 27, 2_100));
    let mut samples = begun();
    samples.sampled((PID, 3_000, 0), &stay(ENTRY, 1_100));
    samples.sampled((PID, 3_001, 0), &stay(ENTRY + 27, 2_100));
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let stream = ruzstd::encoding::compress_to_vec(begun().0.as_slice(), level);
    let mut compressed = Made::default();
    for piece in stream.chunks(40) {
        compressed.record(81, 0, piece);
    }
    compressed.traced(0, (PID, u32::MAX), 0, &stay(ENTRY, 1_100));
    vec![
        ("thread", SAMPLE_TYPE, thread),
        ("processors", SAMPLE_TYPE, processors),
        ("samples", SAMPLE_TYPE | AUX, samples),
        ("compressed", SAMPLE_TYPE, compressed),
    ]
}
