//! The host's checks.

use super::Check;
use crate::caps::{Abilities, Attach, Capability, Facts, Lockdown, Sampler, Severity};

/// Every fact about the host, judged.
pub fn check_host(facts: &Facts, able: &Abilities) -> Vec<Check> {
    let mut checks = vec![
        kernel(facts),
        Check::ok("attach", able.attach.reason.clone()),
        Check::ok("returns", able.session.reason.clone()),
        capabilities(facts, able),
        btf(facts),
        lockdown(facts),
        namespaces(facts),
        sampler(able),
        paranoid(facts),
        kernel_symbols(facts),
        map_files(facts),
        memlock(facts),
        clock(facts),
    ];
    if able.attach.choice == Attach::Perf {
        checks.extend(perf_uprobes(facts));
    }
    checks.extend(trial(facts));
    checks.extend(able.hazards.iter().map(|hazard| {
        let (why, next) = hazard.explain();
        match hazard.severity() {
            Severity::Handled => Check {
                why: next.into(),
                ..Check::ok("hazard", why)
            },
            Severity::Restricts => Check::warn("hazard", why, next, ""),
        }
    }));
    with_blockers(checks, able)
}

/// What blocks is said by `caps`; a check that does not show it yet gets a line of its own.
fn with_blockers(mut checks: Vec<Check>, able: &Abilities) -> Vec<Check> {
    for blocker in &able.blockers {
        let known = checks
            .iter()
            .any(|check| check.status == super::Status::Fail && check.next == blocker.next);
        if !known {
            checks.push(Check::fail(
                "blocked",
                blocker.what.clone(),
                "nothing can be recorded",
                blocker.next.clone(),
            ));
        }
    }
    checks
}

fn kernel(facts: &Facts) -> Check {
    let machine = if facts.virtual_machine {
        ", in a virtual machine"
    } else {
        ""
    };
    let found = format!(
        "Linux {} on {}, {} processors{machine}",
        facts.release_text, facts.machine, facts.processors
    );
    Check::ok("kernel", found)
}

fn capabilities(facts: &Facts, able: &Abilities) -> Check {
    let held: Vec<_> = facts
        .capabilities
        .iter()
        .map(|capability| capability.name())
        .collect();
    let found = if held.is_empty() {
        "none that matter".into()
    } else {
        held.join(", ")
    };
    let missing = able
        .blockers
        .iter()
        .find(|blocker| blocker.what.starts_with("missing CAP_"));
    if let Some(blocker) = missing {
        return Check::fail(
            "capabilities",
            blocker.what.clone(),
            format!("we have {found}"),
            blocker.next.clone(),
        );
    }
    if !facts.has(Capability::SysPtrace) {
        let why = "without CAP_SYS_PTRACE only processes of the same user can be watched";
        return Check::warn(
            "capabilities",
            found,
            why,
            "run with sudo, or add cap_sys_ptrace with setcap",
        );
    }
    Check::ok("capabilities", found)
}

fn btf(facts: &Facts) -> Check {
    if facts.btf {
        Check::ok("btf", "/sys/kernel/btf/vmlinux")
    } else {
        Check::warn("btf", "missing", "", "")
    }
}

fn lockdown(facts: &Facts) -> Check {
    match facts.lockdown {
        Lockdown::None => Check::ok("lockdown", "off"),
        Lockdown::Integrity => Check::ok("lockdown", "integrity: tracing may read"),
        Lockdown::Confidentiality => Check::warn("lockdown", "confidentiality", "", ""),
        // Nothing is wrong with that: the load itself tells.
        Lockdown::Unknown => Check::ok(
            "lockdown",
            "not shown: securityfs is not mounted, or the kernel has none",
        ),
    }
}

fn namespaces(facts: &Facts) -> Check {
    let found = match (facts.initial_pid_namespace, facts.initial_user_namespace) {
        (Some(true), Some(true)) => return Check::ok("namespaces", "the initial ones"),
        (None, _) | (_, None) => "cannot be told",
        (Some(false), _) => "in a pid namespace",
        (_, Some(false)) => "in a user namespace",
    };
    Check::warn(
        "namespaces",
        found,
        "probes need the initial pid and user namespace",
        "run on the host",
    )
}

fn sampler(able: &Abilities) -> Check {
    let reason = able.sampler.reason.clone();
    match able.sampler.choice {
        Sampler::Cycles => Check::ok("sampling", reason),
        Sampler::CpuClock => Check {
            why: "good to a sample per millisecond and processor".into(),
            ..Check::ok("sampling", reason)
        },
    }
}

fn paranoid(facts: &Facts) -> Check {
    let Some(level) = facts.paranoid else {
        let why = "this kernel has no perf events: no sampling";
        return Check::warn(
            "perf_event_paranoid",
            "not there",
            why,
            "use --freq 0, or a kernel with CONFIG_PERF_EVENTS",
        );
    };
    let found = format!(
        "{level}, at most {} samples/s",
        facts
            .max_sample_rate
            .map_or_else(|| "?".into(), |rate| rate.to_string())
    );
    if level > 2 && !facts.has(Capability::Perfmon) {
        return Check::warn(
            "perf_event_paranoid",
            found,
            "sampling needs CAP_PERFMON at this level",
            "run with sudo",
        );
    }
    Check::ok("perf_event_paranoid", found)
}

fn kernel_symbols(facts: &Facts) -> Check {
    if facts.kernel_symbols {
        return Check::ok("kernel symbols", "shown");
    }
    let why = "--kernel-stacks will show addresses without names";
    Check::warn(
        "kernel symbols",
        "hidden",
        why,
        "run with sudo, or `sysctl kernel.kptr_restrict=0`",
    )
}

fn map_files(facts: &Facts) -> Check {
    if facts.has(Capability::CheckpointRestore) {
        return Check::ok(
            "mapped files",
            "readable through /proc/PID/map_files, deleted ones too",
        );
    }
    let why = "files that were deleted or replaced since they were mapped stay without names";
    Check::warn(
        "mapped files",
        "by path only",
        why,
        "run with sudo, or add cap_checkpoint_restore with setcap",
    )
}

/// Below this a kernel that charges BPF maps to the limit (before 5.11) refuses our rings.
const ENOUGH_MEMLOCK: u64 = 64 << 20;

fn memlock(facts: &Facts) -> Check {
    match facts.memlock {
        None => Check::ok("locked memory", "unlimited"),
        Some(bytes)
            if bytes >= ENOUGH_MEMLOCK
                || facts.has(Capability::SysResource)
                || facts.release >= crate::caps::Release(5, 11, 0) =>
        {
            Check::ok("locked memory", format!("{} KiB", bytes >> 10))
        }
        Some(bytes) => Check::warn(
            "locked memory",
            format!("{} KiB", bytes >> 10),
            "this kernel counts BPF maps as locked memory",
            "`ulimit -l unlimited`",
        ),
    }
}

fn clock(facts: &Facts) -> Check {
    match facts.clocksource.as_deref() {
        Some("tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page") => {
            Check::ok("clock", facts.clocksource.clone().unwrap_or_default())
        }
        Some(other) => {
            let why = "every event reads the clock, and this one is slow";
            Check::warn(
                "clock",
                other,
                why,
                "see `dmesg | grep -i tsc` for why the kernel left the tsc",
            )
        }
        None => Check::ok("clock", "not shown"),
    }
}

fn perf_uprobes(facts: &Facts) -> Vec<Check> {
    let pmu = if facts.uprobe_pmu {
        Check::ok("uprobe events", "/sys/bus/event_source/devices/uprobe")
    } else {
        Check::fail(
            "uprobe events",
            "missing",
            "this kernel has neither uprobe_multi nor uprobe events",
            "use a kernel with CONFIG_UPROBE_EVENTS",
        )
    };
    let files = facts.open_files.map(|limit| {
        let found = format!("{limit}: so many functions at most, each takes two files");
        Check::warn(
            "open files",
            found,
            "each probe is an open file",
            "`ulimit -n 65536`",
        )
    });
    std::iter::once(pmu).chain(files).collect()
}

fn trial(facts: &Facts) -> Option<Check> {
    Some(match facts.trial.as_ref()? {
        Ok(()) => Check::ok("trial", "the kernel took our programs"),
        Err(said) => Check::warn("trial", said.clone(), "", ""),
    })
}
