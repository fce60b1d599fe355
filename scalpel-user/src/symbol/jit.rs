//! Functions that a runtime compiled into memory, from the perf map that it writes: `/tmp/perf-PID.map`.
//!
//! The file is a stranger's: opened without following links, read up to a limit, and a line that does not parse is
//! skipped. Our own reader, because blazesym's works only while the process lives.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use super::Named;
use crate::event::Pid;
use crate::function::{ExitStrategy, FunctionInfo, Language, SourcePlace, UnknownReason};
use crate::rooted;

/// Most of a perf map that is read; Node grows its map for as long as it lives.
const LIMIT: u64 = 256 << 20;

/// The entries of one perf map, by address; where entries overlap the later one is right.
#[derive(Debug, Default)]
pub(super) struct JitMap {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    start: u64,
    end: u64,
    info: Arc<FunctionInfo>,
}

/// A function that a runtime compiled into memory.
#[derive(Clone, Debug)]
pub struct JitFunction {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// What is known of it.
    pub info: Arc<FunctionInfo>,
    /// The higher, the later it was written.
    pub written: usize,
}

/// The functions that a process says it compiled: its perf map, and a jitdump if it has one mapped. Later ones may stand
/// where earlier ones stood.
pub fn jit_functions(pid: Pid, inner: Pid, dump: Option<&[u8]>) -> Vec<JitFunction> {
    let text = read(pid, inner).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let dumped = super::jitdump::parse(dump.unwrap_or_default());
    let dumped = dumped
        .into_iter()
        .filter_map(|load| made(load.start, load.size, &load.name));
    text.lines()
        .filter_map(entry)
        .chain(dumped)
        .enumerate()
        .map(|(written, Entry { start, end, info })| JitFunction {
            start,
            end,
            info,
            written,
        })
        .collect()
}

fn read(pid: Pid, inner: Pid) -> io::Result<Vec<u8>> {
    let (root, map) = (
        format!("/proc/{pid}/root"),
        format!("/tmp/perf-{inner}.map"),
    );
    let open = |root: &str| rooted::open_unlinked(Path::new(root), Path::new(&map));
    let file = open(&root).or_else(|_gone| open("/"))?;
    let mut text = Vec::new();
    file.take(LIMIT).read_to_end(&mut text)?;
    Ok(text)
}

impl JitMap {
    /// The map of a process, in its own root or, when it has ended, in ours. No map is an empty map.
    pub(super) fn read(pid: Pid, inner: Pid) -> Self {
        read(pid, inner).map_or_else(|_| Self::default(), |text| Self::parse(&text))
    }

    /// `START SIZE NAME` a line, both numbers hexadecimal.
    pub(super) fn parse(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let mut entries: Vec<Entry> = text.lines().filter_map(entry).collect();
        // A stable sort keeps the order of writing among equal starts; the last is kept.
        entries.sort_by_key(|entry| entry.start);
        entries.reverse();
        entries.dedup_by_key(|entry| entry.start);
        entries.reverse();
        Self { entries }
    }

    pub(super) fn look_up(&self, address: u64) -> Named {
        let after = self.entries.partition_point(|entry| entry.start <= address);
        let last = after.checked_sub(1).and_then(|at| self.entries.get(at));
        match last {
            Some(entry) if address < entry.end => Ok(Arc::clone(&entry.info)),
            _ => Err(UnknownReason::Anonymous),
        }
    }
}

fn entry(line: &str) -> Option<Entry> {
    let (start, rest) = line.split_once(' ')?;
    let (size, name) = rest.split_once(' ')?;
    let hexadecimal = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    made(hexadecimal(start)?, hexadecimal(size)?, name)
}

fn made(start: u64, size: u64, name: &str) -> Option<Entry> {
    let end = start.checked_add(size)?;
    (size > 0 && !name.is_empty()).then(|| Entry {
        start,
        end,
        info: Arc::new(info(name.trim(), start, size)),
    })
}

fn info(raw: &str, start: u64, size: u64) -> FunctionInfo {
    let source = source_of(raw);
    FunctionInfo {
        name: source.name.to_owned(),
        raw_name: raw.to_owned(),
        module: "[jit]".into(),
        path: "[jit]".into(),
        file: source.file.map(str::to_owned),
        line: source.line,
        language: source.language,
        build_id: String::new(),
        // A function that is compiled again is the same function: its place in the source tells it apart, not its
        // address in memory.
        file_offset: match source.language {
            // Two methods may differ in what they give back alone.
            Language::Java => u64::from(crc32fast::hash(raw.as_bytes())),
            _ if source.file.is_some() => 0,
            _ => start,
        },
        size,
        site_delta: 0,
        exit: ExitStrategy::None,
        exit_reason: String::new(),
        unknown: None,
        ordinal: 0,
        place: SourcePlace::default(),
    }
}

struct Source<'a> {
    name: &'a str,
    file: Option<&'a str>,
    line: Option<u32>,
    language: Language,
}

/// What a runtime's way of naming tells: `py::f:/a.py` (Python 3.12), `JS:*f file:///a.js:3:7` (V8).
fn source_of(raw: &str) -> Source<'_> {
    if let Some((name, file)) = raw
        .strip_prefix("py::")
        .and_then(|rest| rest.split_once(':'))
    {
        return Source {
            name,
            file: Some(file),
            line: None,
            language: Language::Python,
        };
    }
    let js = ["JS:", "LazyCompile:", "Function:", "Script:", "Eval:"]
        .iter()
        .find_map(|kind| raw.strip_prefix(kind));
    let Some(rest) = js else {
        if let Some(name) = java(raw) {
            return Source {
                name,
                file: None,
                line: None,
                language: Language::Java,
            };
        }
        return Source {
            name: raw,
            file: None,
            line: None,
            language: Language::Native,
        };
    };
    // `~` interpreted, `^` baseline, `+` and `*` optimized: one function whatever its tier.
    let rest = rest.trim_start_matches(['~', '^', '+', '*']);
    let (name, place) = rest.split_once(' ').unwrap_or((rest, ""));
    let mut parts = place.rsplitn(3, ':');
    let (_column, line, file) = (parts.next(), parts.next(), parts.next());
    Source {
        name: if name.is_empty() { "<anonymous>" } else { name },
        file,
        line: line.and_then(|line| line.parse().ok()),
        language: Language::JavaScript,
    }
}

/// `shop.Item$Box.cost(int)` of `int shop.Item$Box.cost(int)`, as Java's virtual machine has it.
fn java(raw: &str) -> Option<&str> {
    let head = raw.strip_suffix(')')?.split_once('(')?.0;
    let (kind, path) = head.split_once(' ')?;
    let is_of_name = |letter: char| letter.is_alphanumeric() || "_$.<>/".contains(letter);
    let is_type = |text: &str| {
        text.chars()
            .all(|letter| is_of_name(letter) || "[]".contains(letter))
    };
    let is_it = path.contains('.') && path.chars().all(is_of_name) && is_type(kind);
    is_it.then(|| raw.split_once(' ').map(|(_, name)| name))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(map: &JitMap, address: u64) -> Result<String, UnknownReason> {
        map.look_up(address).map(|info| info.name.clone())
    }

    #[test]
    fn lines_that_parse_are_found_and_others_skipped() {
        let map = JitMap::parse(b"1000 20 one\n\nzz 1 bad\n2000 0 empty\n3000 10 with blanks\n1000 10 again\nffffffffffffffff 2 over\n4000 8 \xff\n");
        assert_eq!(name(&map, 0x1000), Ok("again".into()));
        assert_eq!(name(&map, 0x1010), Err(UnknownReason::Anonymous));
        assert_eq!(name(&map, 0x3005), Ok("with blanks".into()));
        assert_eq!(name(&map, 0x2000), Err(UnknownReason::Anonymous));
        assert_eq!(name(&map, 0), Err(UnknownReason::Anonymous));
        assert_eq!(name(&map, 0x4000), Ok("\u{fffd}".into()));
    }

    #[test]
    fn the_ways_of_python_and_v8_are_understood() {
        let check =
            |raw: &str, name: &str, file: Option<&str>, line: Option<u32>, language: Language| {
                let info = info(raw, 0x1000, 1);
                assert_eq!(
                    (&*info.name, info.file.as_deref(), info.line, info.language),
                    (name, file, line, language),
                    "{raw}"
                );
            };
        check(
            "py::Thing.run:/srv/app.py",
            "Thing.run",
            Some("/srv/app.py"),
            None,
            Language::Python,
        );
        check(
            "JS:*handle file:///srv/a.js:12:7",
            "handle",
            Some("file:///srv/a.js"),
            Some(12),
            Language::JavaScript,
        );
        check(
            "LazyCompile:~ /srv/a.js:3:1",
            "<anonymous>",
            Some("/srv/a.js"),
            Some(3),
            Language::JavaScript,
        );
        check(
            "int shop.Item$Box.cost(int, long)",
            "shop.Item$Box.cost(int, long)",
            None,
            None,
            Language::Java,
        );
        check(
            "void [App] App.Main::Run(int)",
            "void [App] App.Main::Run(int)",
            None,
            None,
            Language::Native,
        );
        check(
            "Builtin:ArrayMap",
            "Builtin:ArrayMap",
            None,
            None,
            Language::Native,
        );
    }
}
