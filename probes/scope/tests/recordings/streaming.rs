//! A recording larger than the memory that decoding it may take: made here, and decoded in a process of its own, whose
//! memory the kernel tells. `SCALPEL_STREAM_MIB` makes it as large as one likes.
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

use scalpel_scope::decode::{self, Request};
use scalpel_scope::pt::encode::{IpPacket, Writer};
use scalpel_scope::sink::Sink;
use scalpel_scope::symbol::Symbol;
use scalpel_scope::trace::{Code, Reasons, Step};

use crate::tests;

tests! {
    Library:
    a_long_recording_takes_little_memory,
}

const BLOCK: usize = 4 << 10;
const BASE: u64 = 0x0040_0000;
/// `nop`, and a jump back to it.
const CODE: [u8; 3] = [0x90, 0x75, 0xfd];
/// Packets of six turns in a block; the rest are times.
const SIXES: u64 = 10;
const TURNS: u64 = 6 * SIXES;
/// What decoding may take, in KiB, however long the recording is.
const MOST_KIB: u64 = 64 << 10;
/// Its folder, for the process that decodes it.
pub(crate) const FOLDER: &str = "SCALPEL_TEST_STREAM";

/// From one synchronisation point to the next.
fn block(number: u64) -> Vec<u8> {
    let mut writer = Writer::default();
    if number == 0 {
        writer.psb(None);
        writer.ip(IpPacket::Enable, BASE);
    } else {
        writer.psb(Some(BASE));
    }
    for turn in 0..TURNS {
        writer.branch(true, false);
        if turn % 6 == 5 {
            writer.tsc(number << 8 | turn);
        }
    }
    while writer.len() + 8 <= BLOCK {
        writer.tsc((number << 8) + 0xff);
    }
    writer.finish(false)
}

/// The recording; how many instructions it tells of.
fn write(folder: &Path, bytes: u64) -> std::io::Result<u64> {
    let mut file = BufWriter::new(File::create(folder.join("pt.bin"))?);
    let blocks = bytes.div_ceil(BLOCK as u64);
    for number in 0..blocks {
        file.write_all(&block(number))?;
    }
    let mut end = Writer::default();
    end.ip(IpPacket::Disable, BASE);
    file.write_all(&end.finish(false))?;
    std::fs::write(folder.join("code"), CODE)?;
    // It ends where the last turn comes to.
    Ok(2 * TURNS * blocks)
}

struct Counted(u64);

impl Sink for Counted {
    fn code(&mut self, _code: &Code, _symbol: Option<&Symbol>) {}

    fn step(&mut self, _thread: u32, _step: &Step) {
        self.0 += 1;
    }

    fn steps(&mut self, _thread: u32, steps: &[Step]) {
        self.0 += steps.len() as u64;
    }
}

/// Decodes it, and prints: how many instructions, how many reports of progress, the most memory in KiB.
pub(crate) fn child(folder: &Path) {
    let request = Request {
        trace: folder.join("pt.bin"),
        images: vec![(folder.join("code"), Some(BASE))],
        ..Request::default()
    };
    let mut counted = Counted(0);
    let (mut reports, mut last) = (0, (0, 1));
    let decoded = decode::decode(&request, &mut counted, &mut |done, all| {
        reports += 1;
        assert!(done >= last.0 && done <= all, "{done} of {all}");
        last = (done, all);
    });
    let summary = decoded.unwrap().summary;
    assert_eq!(summary.reasons, Reasons::NONE, "{summary:?}");
    assert_eq!(summary.instructions, counted.0);
    assert_eq!(last.0, last.1, "progress comes to the end");
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let most = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.split_whitespace().next())
        .unwrap();
    println!("{} {reports} {most}", counted.0);
}

fn a_long_recording_takes_little_memory() {
    let mib = std::env::var("SCALPEL_STREAM_MIB").map_or(160, |mib| mib.parse::<u64>().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let expected = write(folder.path(), mib << 20).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.env(FOLDER, folder.path()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let numbers: Vec<u64> = printed
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    let [instructions, reports, most_kib] = numbers[..] else {
        panic!("{printed}");
    };
    eprintln!("{mib} MiB: {instructions} instructions, {reports} reports, at most {most_kib} KiB");
    assert_eq!(instructions, expected);
    assert!(reports >= mib / 8, "{reports}");
    assert!(most_kib < MOST_KIB, "{most_kib} KiB");
}
