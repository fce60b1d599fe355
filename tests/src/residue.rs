//! What a tracer may leave behind: breakpoints in a process's text, and links that are still open.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, ensure};

/// Fails if any byte of a file's executable mapping in `pid` differs from the file: a breakpoint that stayed.
pub fn text_is_clean(pid: u32) -> anyhow::Result<()> {
    let memory =
        File::open(format!("/proc/{pid}/mem")).context("cannot read the target's memory")?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let mut compared = 0;
    for line in maps.lines() {
        let Some(text) = Text::of(line) else { continue };
        compared += text.compare(&memory)?;
    }
    ensure!(
        compared > 0,
        "no executable file mapping of {pid} could be compared:\n{maps}"
    );
    Ok(())
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

    /// Compares memory and file; returns the number of bytes compared.
    fn compare(&self, memory: &File) -> anyhow::Result<usize> {
        let file = File::open(self.path).with_context(|| format!("cannot open {}", self.path))?;
        let mut loaded = vec![0; self.length];
        memory
            .read_exact_at(&mut loaded, self.start)
            .with_context(|| format!("cannot read {} in memory", self.path))?;
        let mut original = vec![0; self.length];
        let length = read_up_to(&file, &mut original, self.offset)?;
        let differing = loaded
            .iter()
            .zip(original.iter())
            .take(length)
            .position(|(a, b)| a != b);
        ensure!(
            differing.is_none(),
            "{} differs from its file at offset {:#x}: a breakpoint was left behind",
            self.path,
            self.offset + differing.unwrap_or(0) as u64
        );
        Ok(length)
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
