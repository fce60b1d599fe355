//! What `/proc` tells of the watched process: its threads, the signals it handles, its mappings.
use std::fs;
use std::os::unix::fs::FileExt;

use super::sys::Tid;
use crate::flow;
use crate::maps::Map;

/// Signals that do nothing by default.
const IGNORED: [i32; 4] = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH];
/// Those of them that may stand for a breakpoint: nothing of the program depends on them.
const TRIGGERS: [i32; 3] = [libc::SIGURG, libc::SIGWINCH, libc::SIGCHLD];

/// The signal sets of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Signals {
    blocked: u64,
    ignored: u64,
    caught: u64,
    pending: u64,
    /// Who traces the process.
    pub(super) tracer: u32,
    /// It runs under a seccomp filter.
    pub(super) filtered: bool,
}

impl Signals {
    /// Of a thread; nothing where it is gone.
    pub(super) fn of(tid: Tid) -> Self {
        Self::parse(&fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default())
    }

    fn parse(status: &str) -> Self {
        let mut all = Self::default();
        for line in status.lines() {
            let Some((key, value)) = line.split_once(":\t") else {
                continue;
            };
            let set = || u64::from_str_radix(value, 16).unwrap_or(0);
            match key {
                "SigBlk" => all.blocked = set(),
                "SigIgn" => all.ignored = set(),
                // The thread's own, and the process's.
                "SigPnd" | "ShdPnd" => all.pending |= set(),
                "SigCgt" => all.caught = set(),
                "TracerPid" => all.tracer = value.parse().unwrap_or(0),
                "Seccomp" => all.filtered = value != "0",
                _ => {}
            }
        }
        all
    }

    /// Whether a handler runs for it.
    pub(super) fn catches(&self, signal: i32) -> bool {
        self.caught & bit(signal) != 0
    }

    /// Whether it has come, and waits for its mask.
    pub(super) fn has_pending(&self, signal: i32) -> bool {
        self.pending & bit(signal) != 0
    }

    /// Whether it does nothing.
    pub(super) fn ignores(&self, signal: i32) -> bool {
        self.ignored & bit(signal) != 0 || IGNORED.contains(&signal) && !self.catches(signal)
    }

    /// A signal that the thread would not notice, better one that it does not block now; where Go handles all, the one
    /// that it takes for its own.
    pub(super) fn trigger(&self, go: bool) -> Option<i32> {
        let silent = |signal: &i32| self.ignores(*signal);
        let open = |signal: &i32| self.blocked & bit(*signal) == 0;
        let find = |test: &dyn Fn(&i32) -> bool| TRIGGERS.into_iter().find(|signal| test(signal));
        find(&|signal| silent(signal) && open(signal))
            .or_else(|| find(&silent))
            .or_else(|| go.then_some(libc::SIGURG))
    }
}

fn bit(signal: i32) -> u64 {
    u32::try_from(signal - 1)
        .ok()
        .and_then(|shift| 1_u64.checked_shl(shift))
        .unwrap_or(0)
}

/// Whether this process has `CAP_SYS_ADMIN`.
pub(super) fn may_administer() -> bool {
    const SYS_ADMIN: u32 = 21;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:\t"));
    let set = set.and_then(|set| u64::from_str_radix(set, 16).ok());
    set.is_some_and(|set| set & 1 << SYS_ADMIN != 0)
}

/// The threads of a process, as they are now.
pub(super) fn threads(pid: Tid) -> Vec<Tid> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    entries
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// The processor that a thread ran on last.
pub(super) fn processor(tid: Tid) -> Option<usize> {
    let stat = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(36)?.parse().ok()
}

/// Executable mappings where the handler may lie: the vDSO first, then the files.
pub(super) fn handler_places(pid: Tid) -> Vec<(u64, u64)> {
    let (mut vdso, mut files) = (Vec::new(), Vec::new());
    for map in Map::of(pid) {
        match map.path.as_deref() {
            Some("[vdso]") => vdso.push((map.start, map.end)),
            Some(path) if path.starts_with('/') && map.executable => {
                files.push((map.start, map.end));
            }
            _ => {}
        }
    }
    vdso.extend(files);
    vdso
}

/// The instruction that a mapped file has at an address where memory has a breakpoint.
pub(super) fn instruction_in_file(pid: Tid, addr: u64) -> Option<Vec<u8>> {
    let maps = Map::of(pid);
    let map = maps.iter().find(|map| map.holds(addr))?;
    let file = format!("/proc/{pid}/map_files/{:x}-{:x}", map.start, map.end);
    let mut bytes = [0; 15];
    let at = addr - map.start + map.offset;
    let got = fs::File::open(file).ok()?.read_at(&mut bytes, at).ok()?;
    let instruction = flow::decode(addr, bytes.get(..got)?)?;
    let bytes = bytes.get(..instruction.len())?;
    (bytes != [0xcc]).then(|| bytes.to_vec())
}

/// Whether the kernel's trampoline for return probes is there.
pub(super) fn is_trampoline(pid: Tid, addr: u64) -> bool {
    let maps = Map::of(pid);
    let map = maps.iter().find(|map| map.holds(addr));
    map.is_some_and(|map| map.path.as_deref() == Some("[uprobes]"))
}

/// Where the program begins, behind its loader.
pub(super) fn entry(pid: Tid) -> Option<u64> {
    const AT_ENTRY: u64 = 9;
    let bytes = fs::read(format!("/proc/{pid}/auxv")).ok()?;
    let (words, _) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let (pairs, _) = words.as_chunks::<2>();
    pairs
        .iter()
        .find(|[key, _]| *key == AT_ENTRY)
        .map(|[_, value]| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signals(caught: u64, ignored: u64, blocked: u64) -> Signals {
        Signals::parse(&format!(
            "Name:\tx\nTracerPid:\t7\nSeccomp:\t2\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n"
        ))
    }

    #[test]
    fn a_trigger_is_a_signal_that_the_program_does_not_notice() {
        let urgent = bit(libc::SIGURG);
        let all = signals(0, 0, 0);
        assert_eq!((all.tracer, all.filtered), (7, true));
        assert_eq!(all.trigger(false), Some(libc::SIGURG));
        assert_eq!(signals(urgent, 0, 0).trigger(false), Some(libc::SIGWINCH));
        assert_eq!(signals(0, 0, urgent).trigger(false), Some(libc::SIGWINCH));
        let every = u64::MAX;
        assert_eq!(signals(every, 0, 0).trigger(false), None);
        assert_eq!(signals(every, 0, 0).trigger(true), Some(libc::SIGURG));
        // Blocked for a while, as around a fork: it comes late, and does nothing then.
        assert_eq!(signals(0, 0, every).trigger(false), Some(libc::SIGURG));
    }

    #[test]
    fn what_is_ignored_by_default_or_by_wish_does_nothing() {
        let some = signals(bit(libc::SIGCHLD), bit(libc::SIGUSR1), 0);
        assert!(!some.ignores(libc::SIGCHLD) && some.catches(libc::SIGCHLD));
        assert!(some.ignores(libc::SIGUSR1) && some.ignores(libc::SIGWINCH));
        assert!(!some.ignores(libc::SIGUSR2));
    }

    #[test]
    fn a_process_begins_somewhere() {
        let pid = std::process::id().cast_signed();
        assert!(entry(pid).is_some_and(|entry| entry > 0));
        assert!(threads(pid).contains(&pid));
        assert!(processor(pid).is_some());
        assert!(!handler_places(pid).is_empty());
    }
}
