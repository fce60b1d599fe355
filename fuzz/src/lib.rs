//! What several fuzz targets share: logs with right checksums, and the law that every tree keeps.

pub mod stream;

use std::collections::HashMap;
use std::path::PathBuf;

use scalpel_scope::decode::{self, Request};
use scalpel_scope::sink::Sink;
use scalpel_scope::symbol::Symbol;
use scalpel_scope::trace::{Code, Step};
use scalpel_user::tree::{ContextId, Tree};

const FILE_HEAD: usize = 16;
const CHUNK_HEAD: usize = 48;

/// The log in `bytes`, with the checksum of each chunk made right. Layout: FORMAT.md.
pub fn mended(bytes: &[u8]) -> Vec<u8> {
    let mut log = bytes.to_vec();
    let mut at = FILE_HEAD;
    while let Some(chunk) = log.get_mut(at..).filter(|rest| rest.len() >= CHUNK_HEAD) {
        let length = u32::from_le_bytes([chunk[4], chunk[5], chunk[6], chunk[7]]) as usize;
        let end = CHUNK_HEAD.saturating_add(length);
        let Some(chunk) = chunk.get_mut(..end) else { break };
        let crc = crc32fast::hash(&chunk[12..]);
        chunk[8..12].copy_from_slice(&crc.to_le_bytes());
        at += end;
    }
    log
}

/// Self time and the children's total times are the total time, on every context of every window and thread; sums
/// stop at the largest number.
pub fn assert_adds_up(tree: &Tree) {
    let mut children: HashMap<(u32, u32, ContextId), [u64; 2]> = HashMap::new();
    let below_root = || tree.cells.iter().filter(|cell| cell.context != ContextId::ROOT);
    for cell in below_root() {
        let parent = tree.contexts[cell.context.0 as usize].parent;
        let [wall, cpu] = children.entry((cell.window, cell.thread, parent)).or_default();
        *wall = wall.saturating_add(cell.metrics.total_wall_ns);
        *cpu = cpu.saturating_add(cell.metrics.total_cpu_ns);
    }
    for cell in below_root() {
        let m = cell.metrics;
        let [wall, cpu] = children.get(&(cell.window, cell.thread, cell.context)).copied().unwrap_or_default();
        assert_eq!(m.self_wall_ns.saturating_add(wall), m.total_wall_ns, "wall time of {cell:?}");
        assert_eq!(m.self_cpu_ns.saturating_add(cpu), m.total_cpu_ns, "CPU time of {cell:?}");
    }
}

/// A file of this process, as that recordings are read from; written anew.
pub fn written(name: &str, bytes: &[u8]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("scalpel-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for files");
    let file = folder.join(name);
    std::fs::write(&file, bytes).expect("a file that can be written");
    file
}

/// Counts: few bytes of a trace may tell of hundreds of millions of steps, which nobody keeps.
#[derive(Default)]
pub struct Counts {
    /// Distinct instructions.
    pub code: usize,
    /// Steps.
    pub steps: u64,
}

impl Sink for Counts {
    fn code(&mut self, _code: &Code, _symbol: Option<&Symbol>) {
        self.code += 1;
    }

    fn step(&mut self, _thread: u32, step: &Step) {
        assert!((step.code as usize) < self.code, "a step of code that is not known");
        self.steps += 1;
    }
}

/// Decodes a recording: as many steps come out as are counted, or it is refused with a reason.
pub fn decoded(name: &str, bytes: &[u8]) {
    let request = Request { trace: written(name, bytes), ..Request::default() };
    let mut counts = Counts::default();
    match decode::decode(&request, &mut counts, &mut |_, _| {}) {
        Ok(decoded) => assert_eq!(decoded.summary.instructions, counts.steps),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
