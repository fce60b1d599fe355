//! What a tracer may leave behind: breakpoints in a process's text, and links that are still open.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, bail, ensure};

/// Fails if any byte of a file's executable mapping in `pid` differs from the file: a breakpoint that stayed.
pub fn text_is_clean(pid: u32) -> anyhow::Result<()> {
    let altered = altered(pid)?;
    if let Some((path, offset)) = altered.first() {
        bail!(
            "{path} differs from its file at offset {offset:#x}, and in {} bytes in all: a breakpoint was left behind",
            altered.len()
        );
    }
    Ok(())
}

/// The bytes of executable file mappings in `pid` that are not the file's: path and offset of each.
pub fn altered(pid: u32) -> anyhow::Result<Vec<(String, u64)>> {
    let memory =
        File::open(format!("/proc/{pid}/mem")).context("cannot read the target's memory")?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let (mut compared, mut altered) = (0, Vec::new());
    for line in maps.lines() {
        let Some(text) = Text::of(line) else { continue };
        let (length, offsets) = text.compare(&memory)?;
        compared += length;
        altered.extend(
            offsets
                .into_iter()
                .map(|offset| (text.path.to_owned(), offset)),
        );
    }
    ensure!(
        compared > 0,
        "no executable file mapping of {pid} could be compared:\n{maps}"
    );
    Ok(altered)
}

/// Number of open uprobe links, in all processes, on the file `path`.
pub fn links_on(path: &Path) -> anyhow::Result<usize> {
    let needle = path.to_string_lossy().into_owned();
    let mut links = 0;
    for process in fs::read_dir("/proc")?.flatten() {
        let Ok(infos) = fs::read_dir(process.path().join("fdinfo")) else {
            continue;
        };
        for info in infos.flatten() {
            let text = fs::read_to_string(info.path()).unwrap_or_default();
            links +=
                usize::from(text.contains("link_type:\tuprobe_multi") && text.contains(&needle));
        }
    }
    Ok(links)
}

/// Processes of the group that `leader` began, and that are there without it.
pub fn group_of(leader: u32) -> anyhow::Result<Vec<u32>> {
    let mut group = Vec::new();
    for process in fs::read_dir("/proc")?.flatten() {
        let text = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        // `pid (name) state parent group ...`; a name may hold anything.
        let behind = text.rsplit_once(") ").map_or("", |(_, behind)| behind);
        let mut fields = behind.split(' ');
        let state = fields.next();
        let of = fields.nth(1).and_then(|field| field.parse().ok());
        let pid = process.file_name().to_string_lossy().parse().ok();
        if let Some(pid) = pid.filter(|_| of == Some(leader) && state != Some("Z")) {
            group.push(pid);
        }
    }
    Ok(group)
}

struct Text<'a> {
    start: u64,
    length: usize,
    offset: u64,
    path: &'a str,
}

impl<'a> Text<'a> {
    /// The executable file mapping that a line of `/proc/PID/maps` shows, if it is one.
    fn of(line: &'a str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let permissions = fields.next()?;
        let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
        let path = fields
            .nth(2)
            .filter(|path| path.starts_with('/') && permissions.contains('x'))?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let end = u64::from_str_radix(end, 16).ok()?;
        Some(Self {
            start,
            length: usize::try_from(end - start).ok()?,
            offset,
            path,
        })
    }

    /// Compares memory and file; returns the number of bytes compared, and the offsets of those that differ.
    fn compare(&self, memory: &File) -> anyhow::Result<(usize, Vec<u64>)> {
        let file = File::open(self.path).with_context(|| format!("cannot open {}", self.path))?;
        let mut loaded = vec![0; self.length];
        memory
            .read_exact_at(&mut loaded, self.start)
            .with_context(|| format!("cannot read {} in memory", self.path))?;
        let mut original = vec![0; self.length];
        let length = read_up_to(&file, &mut original, self.offset)?;
        let pairs = loaded.iter().zip(original.iter()).take(length).enumerate();
        let differing = pairs.filter(|(_, (loaded, original))| loaded != original);
        let offsets = differing.map(|(at, _)| self.offset + at as u64).collect();
        Ok((length, offsets))
    }
}

/// The last page of a mapping may lie past the end of the file.
fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> anyhow::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + done as u64)? {
            0 => break,
            n => done += n,
        }
    }
    Ok(done)
}
