//! Reads the facts that `caps` decides on. Looks, decides nothing, changes nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

use crate::caps::{Capability, Facts, Lockdown, Preemption, Release};

/// `PROC_PID_INIT_INO` and `PROC_USER_INIT_INO` of `include/linux/proc_ns.h`: fixed since Linux 3.8.
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";
const INITIAL_USER_NAMESPACE: &str = "user:[4026531837]";

/// Facts about this host.
pub fn facts() -> Facts {
    let uname = rustix::system::uname();
    let release_text = uname.release().to_string_lossy().into_owned();
    let cpuinfo = text("/proc/cpuinfo").unwrap_or_default();
    Facts {
        release: release_text.parse().unwrap_or(Release(0, 0, 0)),
        release_text,
        machine: uname.machine().to_string_lossy().into_owned(),
        emulated_by: text("/proc/version")
            .filter(|text| text.contains("gVisor"))
            .map(|_| "gVisor".into()),
        virtual_machine: cpuinfo.split_whitespace().any(|word| word == "hypervisor"),
        preemption: preemption(
            &uname.version().to_string_lossy(),
            text("/proc/cmdline").as_deref(),
            text("/sys/kernel/debug/sched/preempt").as_deref(),
        ),
        btf: Path::new("/sys/kernel/btf/vmlinux").exists(),
        lockdown: lockdown(text("/sys/kernel/security/lockdown").as_deref()),
        paranoid: number("/proc/sys/kernel/perf_event_paranoid"),
        max_sample_rate: number("/proc/sys/kernel/perf_event_max_sample_rate"),
        capabilities: capabilities(),
        pmu: ["cpu", "cpu_core"].iter().any(|name| event_source(name)),
        uprobe_pmu: event_source("uprobe"),
        tracefs: [
            "/sys/kernel/tracing/events",
            "/sys/kernel/debug/tracing/events",
        ]
        .iter()
        .any(|folder| fs::read_dir(folder).is_ok()),
        initial_pid_namespace: namespace("/proc/self/ns/pid")
            .map(|name| name == INITIAL_PID_NAMESPACE),
        initial_user_namespace: namespace("/proc/self/ns/user")
            .map(|name| name == INITIAL_USER_NAMESPACE),
        memlock: getrlimit(Resource::Memlock).current,
        open_files: getrlimit(Resource::Nofile).current,
        clocksource: text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .map(|name| name.trim().to_owned()),
        kernel_symbols: kernel_symbols(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        root: rustix::process::geteuid().is_root(),
        trial: None,
    }
}

fn text(path: &str) -> Option<String> {
    fs::read(path)
        .ok()
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn number<T: std::str::FromStr>(path: &str) -> Option<T> {
    text(path)?.trim().parse().ok()
}

fn event_source(name: &str) -> bool {
    Path::new("/sys/bus/event_source/devices")
        .join(name)
        .exists()
}

fn namespace(path: &str) -> Option<String> {
    Some(fs::read_link(path).ok()?.to_string_lossy().into_owned())
}

/// `none [integrity] confidentiality`: the one in brackets is on.
fn lockdown(text: Option<&str>) -> Lockdown {
    let on = text.and_then(|text| {
        text.split_whitespace()
            .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
    });
    match on {
        Some("none") => Lockdown::None,
        Some("integrity") => Lockdown::Integrity,
        Some("confidentiality") => Lockdown::Confidentiality,
        _ => Lockdown::Unknown,
    }
}

/// By what the kernel runs with (`(none) voluntary full lazy`), was told to at boot, or was built for. Of a dynamic
/// kernel that was told nothing, the build does not tell.
fn preemption(
    version: &str,
    command_line: Option<&str>,
    debugfs: Option<&str>,
) -> Option<Preemption> {
    let model = |word: &str| match word {
        "none" => Some(Preemption::None),
        "voluntary" => Some(Preemption::Voluntary),
        "lazy" => Some(Preemption::Lazy),
        "full" => Some(Preemption::Full),
        _ => None,
    };
    let running = debugfs.and_then(|text| {
        text.split_whitespace()
            .find_map(|word| word.strip_prefix('(')?.strip_suffix(')').and_then(model))
    });
    let told = || {
        command_line?
            .split_whitespace()
            .filter_map(|word| model(word.strip_prefix("preempt=")?))
            .next_back()
    };
    let built = || match version
        .split_whitespace()
        .find(|word| word.starts_with("PREEMPT"))
    {
        Some("PREEMPT_DYNAMIC") => None,
        Some("PREEMPT_LAZY") => Some(Preemption::Lazy),
        Some(_) => Some(Preemption::Full),
        None => Some(Preemption::Voluntary),
    };
    running.or_else(told).or_else(built)
}

fn capabilities() -> BTreeSet<Capability> {
    // Without the answer we are taken to have none: the kernel has the last word anyway.
    let held = ::caps::read(None, ::caps::CapSet::Effective).unwrap_or_default();
    let known = [
        (::caps::Capability::CAP_BPF, Capability::Bpf),
        (::caps::Capability::CAP_PERFMON, Capability::Perfmon),
        (::caps::Capability::CAP_SYS_ADMIN, Capability::SysAdmin),
        (::caps::Capability::CAP_SYS_PTRACE, Capability::SysPtrace),
        (
            ::caps::Capability::CAP_SYS_RESOURCE,
            Capability::SysResource,
        ),
        (
            ::caps::Capability::CAP_CHECKPOINT_RESTORE,
            Capability::CheckpointRestore,
        ),
    ];
    known
        .into_iter()
        .filter(|(theirs, _)| held.contains(theirs))
        .map(|(_, ours)| ours)
        .collect()
}

/// The kernel writes zeros for addresses that it hides (`kernel.kptr_restrict`).
fn kernel_symbols() -> bool {
    use std::io::Read;
    let mut head = [0; 16];
    let read = fs::File::open("/proc/kallsyms").and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head.iter().any(|&byte| byte != b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lockdown_is_the_word_in_brackets() {
        assert_eq!(
            lockdown(Some("none [integrity] confidentiality\n")),
            Lockdown::Integrity
        );
        assert_eq!(
            lockdown(Some("[none] integrity confidentiality\n")),
            Lockdown::None
        );
        assert_eq!(
            lockdown(Some("none integrity [confidentiality]")),
            Lockdown::Confidentiality
        );
        assert_eq!(lockdown(None), Lockdown::Unknown);
    }

    #[test]
    fn preemption_is_what_runs_then_what_was_told_then_what_was_built() {
        let dynamic = "#1 SMP PREEMPT_DYNAMIC Tue";
        let check =
            |version, told, running, expect| assert_eq!(preemption(version, told, running), expect);
        check(
            dynamic,
            Some("quiet preempt=full"),
            Some("(none) voluntary full\n"),
            Some(Preemption::None),
        );
        check(
            dynamic,
            Some("preempt=none preempt=lazy quiet"),
            None,
            Some(Preemption::Lazy),
        );
        check(dynamic, Some("quiet"), None, None);
        check("#1 SMP PREEMPT_RT Tue", None, None, Some(Preemption::Full));
        check(
            "#91-Ubuntu SMP Tue",
            None,
            None,
            Some(Preemption::Voluntary),
        );
    }

    #[test]
    fn this_host_is_described() {
        let facts = facts();
        assert!(facts.release > Release(2, 6, 0), "{facts:?}");
        assert!(facts.processors > 0);
        assert_eq!(facts.root, rustix::process::geteuid().is_root());
    }
}
