//! The mappings of a process, as `/proc/PID/maps` tells them.
use std::fs;

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Map {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) executable: bool,
    pub(crate) writable: bool,
    /// Offset of `start` in the file.
    pub(crate) offset: u64,
    /// A file, or a name in brackets.
    pub(crate) path: Option<String>,
}

impl Map {
    /// All of them; none where `/proc` is not there.
    pub(crate) fn all() -> Vec<Self> {
        Self::read("self")
    }

    /// Those of another process.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    pub(crate) fn of(pid: i32) -> Vec<Self> {
        Self::read(&pid.to_string())
    }

    fn read(process: &str) -> Vec<Self> {
        // A path may hold any byte.
        let text = fs::read(format!("/proc/{process}/maps")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        text.lines().filter_map(Self::parse).collect()
    }

    pub(crate) fn holds(&self, addr: u64) -> bool {
        (self.start..self.end).contains(&addr)
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let access = words.next()?.as_bytes();
        let offset = words.next()?;
        let path = words.nth(2).map(|path| path.trim_start().to_owned());
        let hex = |text| u64::from_str_radix(text, 16).ok();
        Some(Self {
            start: hex(start)?,
            end: hex(end)?,
            executable: access.get(2) == Some(&b'x'),
            writable: access.get(1) == Some(&b'w'),
            offset: hex(offset)?,
            path: path.filter(|path| !path.is_empty()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_is_read() {
        let line = "7f00-7f20 r-xp 00001000 fe:00 1234                       /usr/lib/a b.so";
        let map = Map::parse(line).expect("a mapping");
        assert_eq!((map.start, map.end, map.offset), (0x7f00, 0x7f20, 0x1000));
        assert!(map.executable && !map.writable);
        assert_eq!(map.path.as_deref(), Some("/usr/lib/a b.so"));
        let line = "7f00-7f20 rw-p 00000000 00:00 0 ";
        let map = Map::parse(line).expect("a mapping");
        assert_eq!((map.path, map.executable), (None, false));
        assert!(map.writable);
    }
}
