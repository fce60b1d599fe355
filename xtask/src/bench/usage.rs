//! What processes use, as the kernel accounts it: CPU time and memory.
use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// CPU time in ns of the live threads of a process, to the nanosecond.
pub(super) fn threads_ns(pid: u32) -> Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        // `ns on a processor, ns waited for one, slices`
        let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let first = text.split_whitespace().next();
        sum += first.and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}

/// `pid` and all that descend from it now.
pub(super) fn family(pid: u32) -> Result<Vec<u32>> {
    let mut parents: HashMap<u32, u32> = HashMap::new();
    for process in fs::read_dir("/proc")?.flatten() {
        let Ok(number) = process.file_name().to_string_lossy().parse() else {
            continue;
        };
        let text = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        // `pid (name) state parent ...`; a name may hold anything.
        let behind = text.rsplit_once(") ").map_or("", |(_, behind)| behind);
        if let Some(parent) = behind
            .split(' ')
            .nth(1)
            .and_then(|field| field.parse().ok())
        {
            parents.insert(number, parent);
        }
    }
    let descends = |mut of: u32| {
        while of != pid {
            match parents.get(&of) {
                Some(&parent) if parent != 0 => of = parent,
                _ => return false,
            }
        }
        true
    };
    Ok(parents.keys().copied().filter(|of| descends(*of)).collect())
}

/// The same, without those that come and go: as a list for `--pid`.
pub(super) fn lasting_family(pid: u32) -> Result<String> {
    let before = family(pid)?;
    std::thread::sleep(Duration::from_millis(500));
    let mut pids = family(pid)?;
    pids.retain(|pid| before.contains(pid));
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    Ok(pids.join(","))
}

/// A line of `/proc/PID/status` in KiB, as MiB: `VmRSS`, `VmHWM`.
pub(super) fn memory_mib(pid: u32, key: &str) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let kib = line.and_then(|line| line.trim_start_matches(':').split_whitespace().next());
    let kib: f64 = kib.with_context(|| format!("no {key} of {pid}"))?.parse()?;
    Ok(kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_memory_and_descends_from_its_parent() {
        let pid = std::process::id();
        assert!(memory_mib(pid, "VmHWM").unwrap() > 0.1);
        assert!(threads_ns(pid).unwrap() > 0);
        let parent = rustix::process::getppid().unwrap();
        let family = family(parent.as_raw_nonzero().get().cast_unsigned()).unwrap();
        assert!(family.contains(&pid));
    }
}
