//! `/proc/PID/maps`: what a process has mapped.
//!
//! Our own parser, over bytes: a path may hold any byte but NUL (readers by line of text fail for the whole
//! process because of one odd file name), and a line that does not parse is skipped, not fatal.

use std::path::{Path, PathBuf};

use super::bytes::{number, split_once, unescape_path};
use super::images::FileId;
use crate::event::Addr;

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: Addr,
    /// One past the last address.
    pub end: Addr,
    /// The processor may execute it.
    pub executable: bool,
    /// Written through to the file (or shared memory), not private.
    pub shared: bool,
    /// File offset of `start`, in bytes.
    pub offset: u64,
    /// What is behind it.
    pub backing: Backing,
}

/// What is behind a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A file.
    File {
        /// Device and inode.
        id: FileId,
        /// Path as the process sees it, without the mark of deletion.
        path: PathBuf,
        /// It has no name any more (or its name is another file's).
        deleted: bool,
    },
    /// Memory without a file; `[heap]`, `[stack]`, `[anon:NAME]` have a name.
    Anonymous {
        /// Name in brackets; empty if none.
        name: String,
    },
    /// Code that the kernel provides: `[vdso]`, `[vsyscall]`, `[uprobes]`.
    Kernel {
        /// Name in brackets.
        name: String,
    },
}

impl Mapping {
    /// Whether `address` lies in it.
    pub fn contains(&self, address: u64) -> bool {
        (self.start.0..self.end.0).contains(&address)
    }

    /// Path of the file behind it.
    pub fn path(&self) -> Option<&Path> {
        match &self.backing {
            Backing::File { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Name of its entry in `/proc/PID/map_files`.
    pub fn map_file_name(&self) -> String {
        format!("{:x}-{:x}", self.start.0, self.end.0)
    }
}

/// All lines of `/proc/PID/maps` that parse, in order of address, and how many did not.
pub fn parse_maps(text: &[u8]) -> (Vec<Mapping>, usize) {
    let lines = text
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty());
    let mut maps = Vec::new();
    let mut bad = 0;
    for line in lines {
        match parse_line(line) {
            Some(mapping) => maps.push(mapping),
            None => bad += 1,
        }
    }
    (maps, bad)
}

/// `START-END PERM OFFSET MAJOR:MINOR INODE   PATH`.
fn parse_line(line: &[u8]) -> Option<Mapping> {
    let (range, rest) = split_once(line, b' ')?;
    let (permissions, rest) = split_once(rest, b' ')?;
    let (offset, rest) = split_once(rest, b' ')?;
    let (device, rest) = split_once(rest, b' ')?;
    let (inode, path) = split_once(rest, b' ').unwrap_or((rest, b""));
    let (start, end) = split_once(range, b'-')?;
    let (major, minor) = split_once(device, b':')?;
    let &[_, _, execute, share] = permissions else {
        return None;
    };
    let (start, end) = (number(start, 16)?, number(end, 16)?);
    let id = FileId::from_numbers(number(major, 16)?, number(minor, 16)?, number(inode, 10)?);
    (start < end).then_some(Mapping {
        start: Addr(start),
        end: Addr(end),
        executable: execute == b'x',
        shared: share == b's',
        offset: number(offset, 16)?,
        // The kernel pads with blanks up to the path, and a path begins with `/` or `[`.
        backing: backing(id, path.trim_ascii_start()),
    })
}

fn backing(id: FileId, path: &[u8]) -> Backing {
    let name = || String::from_utf8_lossy(path).into_owned();
    if id.inode == 0 {
        return match path {
            b"[vdso]" | b"[vsyscall]" | b"[uprobes]" => Backing::Kernel { name: name() },
            _ => Backing::Anonymous { name: name() },
        };
    }
    let (path, deleted) = match path.strip_suffix(b" (deleted)") {
        Some(path) => (path, true),
        None => (path, false),
    };
    Backing::File {
        id,
        path: unescape_path(path),
        deleted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Mapping {
        let (mut maps, bad) = parse_maps(line.as_bytes());
        assert_eq!((maps.len(), bad), (1, 0), "{line}");
        maps.remove(0)
    }

    fn file(line: &str, expect: &str, expect_deleted: bool) {
        match one(line).backing {
            Backing::File { path, deleted, .. } => {
                assert_eq!(
                    (path.to_str().unwrap(), deleted),
                    (expect, expect_deleted),
                    "{line}"
                );
            }
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn an_ordinary_line_gives_all_its_fields() {
        let mapping = one("55d0c0a02000-55d0c0a07000 r-xp 00002000 fe:01 1841 /usr/bin/cat\n");
        assert_eq!(
            (mapping.start.0, mapping.end.0),
            (0x55d0_c0a0_2000, 0x55d0_c0a0_7000)
        );
        assert!(mapping.executable && !mapping.shared);
        assert_eq!(mapping.offset, 0x2000);
        assert_eq!(mapping.map_file_name(), "55d0c0a02000-55d0c0a07000");
        let Backing::File { id, .. } = mapping.backing else {
            panic!()
        };
        assert_eq!(
            (
                rustix::fs::major(id.device),
                rustix::fs::minor(id.device),
                id.inode
            ),
            (0xfe, 1, 1841)
        );
    }

    #[test]
    fn paths_may_hold_blanks_newlines_and_look_deleted() {
        let head = "7f0000000000-7f0000001000 r-xp 00000000 00:1a 77                         ";
        file(&format!("{head}/tmp/a b  c"), "/tmp/a b  c", false);
        file(&format!("{head}/tmp/a\\012b"), "/tmp/a\nb", false);
        file(&format!("{head}/tmp/a\\134b"), "/tmp/a\\134b", false);
        file(&format!("{head}/tmp/x (deleted)"), "/tmp/x", true);
        file(
            &format!("{head}/tmp/x (deleted) (deleted)"),
            "/tmp/x (deleted)",
            true,
        );
        file(&format!("{head}/memfd:jit (deleted)"), "/memfd:jit", true);
        file(&format!("{head}/dev/zero (deleted)"), "/dev/zero", true);
    }

    #[test]
    fn bytes_that_are_no_text_are_kept() {
        let line = b"7f0000000000-7f0000001000 r-xp 00000000 00:1a 77 /tmp/\xff\xfe\n7f0000001000-7f0000002000 rw-p 0 0:0 0\n";
        let (maps, bad) = parse_maps(line);
        assert_eq!((maps.len(), bad), (2, 0));
        use std::os::unix::ffi::OsStrExt;
        assert_eq!(
            maps[0].path().unwrap().as_os_str().as_bytes(),
            b"/tmp/\xff\xfe"
        );
    }

    #[test]
    fn memory_without_a_file_is_told_apart() {
        let kind = |name: &str| {
            one(&format!(
                "7f0000000000-7f0000001000 r-xp 00000000 00:00 0 {name}"
            ))
            .backing
        };
        assert_eq!(
            kind(""),
            Backing::Anonymous {
                name: String::new()
            }
        );
        assert_eq!(
            kind("  [heap]"),
            Backing::Anonymous {
                name: "[heap]".into()
            }
        );
        assert_eq!(
            kind("  [anon: jit code]"),
            Backing::Anonymous {
                name: "[anon: jit code]".into()
            }
        );
        assert_eq!(
            kind("  [vdso]"),
            Backing::Kernel {
                name: "[vdso]".into()
            }
        );
        assert_eq!(
            kind("  [uprobes]"),
            Backing::Kernel {
                name: "[uprobes]".into()
            }
        );
        let vsyscall = one(
            "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]",
        );
        assert_eq!(vsyscall.end.0, 0xffff_ffff_ff60_1000);
    }

    #[test]
    fn lines_that_do_not_parse_are_counted_and_skipped() {
        let text = b"garbage\n7f0000001000-7f0000000000 r-xp 0 0:0 0\n1-2 r-xp 0 0:0 0\n1-2 rwxps 0 0:0 0\n1-2 r-xp zz 0:0 0\n1-2 r-xp 0 0:0\n";
        let (maps, bad) = parse_maps(text);
        assert_eq!((maps.len(), bad), (1, 5));
        assert_eq!(parse_maps(b""), (vec![], 0));
    }

    #[test]
    fn a_process_with_a_hundred_thousand_mappings_is_read() {
        use std::fmt::Write;
        let mut text = String::new();
        for at in 0..100_000u64 {
            let start = 0x1000_0000 + at * 0x2000;
            writeln!(
                text,
                "{start:x}-{:x} r-xp 00000000 fe:01 {at}       /lib/lib{at}.so",
                start + 0x1000
            )
            .unwrap();
        }
        let (maps, bad) = parse_maps(text.as_bytes());
        assert_eq!((maps.len(), bad), (100_000, 0));
    }
}
