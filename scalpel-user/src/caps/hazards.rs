//! Kernels that are known to harm a probed process, or themselves: a list, by release.
//!
//! A distribution may have fixed or broken what its release number tells, so a hazard leads to the careful way,
//! and only a deadly one to a refusal.

use serde::Serialize;

use super::{Facts, Preemption, Release};

/// What a kernel does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hazard {
    /// A return probe is a system call that a seccomp filter of the target may answer with death.
    SeccompKillsReturns,
    /// Sampling user stacks while return probes are attached can crash the kernel.
    CallchainRace,
    /// Preempted uprobe programs with a private stack overwrite each other's.
    PrivateStack,
    /// The first hit of an optimized probe writes below the stack pointer of a leaf function.
    OptimizedRedZone,
    /// The pid filter of `uprobe_multi` compares the wrong task.
    PidFilter,
    /// Return probes do not know user shadow stacks.
    ShadowStackReturns,
}

/// What follows from a hazard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It is worked around; nothing is lost.
    Handled,
    /// Something is not offered because of it.
    Restricts,
}

struct Range {
    hazard: Hazard,
    from: Release,
    /// First release without it; `None` = no fix is known.
    fixed: Option<Release>,
}

const fn range(hazard: Hazard, from: Release, fixed: Option<Release>) -> Range {
    Range {
        hazard,
        from,
        fixed,
    }
}

const RANGES: &[Range] = &[
    // uretprobe became a system call in 6.11; cf6cb56ef244 (CVE-2025-21834) made seccomp let it pass.
    range(
        Hazard::SeccompKillsReturns,
        Release(6, 11, 0),
        Some(Release(6, 12, 14)),
    ),
    range(
        Hazard::SeccompKillsReturns,
        Release(6, 13, 0),
        Some(Release(6, 13, 3)),
    ),
    // b583ef82b671 in 6.13-rc1. Seen on 6.6.58 as well (https://github.com/grafana/pyroscope/issues/3673): the code at
    // fault was taken into stable kernels, the repair into some of them.
    range(
        Hazard::CallchainRace,
        Release(0, 0, 0),
        Some(Release(6, 13, 0)),
    ),
    // a76ab5731e32 gave private stacks to programs that since 8c7dcb84e3b7 are preemptible
    // (https://github.com/open-telemetry/opentelemetry-ebpf-instrumentation/issues/3056). No fix known. Ours stay below
    // the 64 bytes from which on a function gets one: `kernel/object.rs` measures it.
    range(Hazard::PrivateStack, Release(6, 13, 0), None),
    // ba2bfc97b462 in 6.18; repaired by 554ba38456da, whose first release is not known to us.
    range(Hazard::OptimizedRedZone, Release(6, 18, 0), None),
    // 46ba0e49b642 in 6.10.
    range(Hazard::PidFilter, Release(6, 6, 0), Some(Release(6, 10, 0))),
    // Shadow stacks came in 6.6, return probes learned of them in 6.11.
    range(
        Hazard::ShadowStackReturns,
        Release(6, 6, 0),
        Some(Release(6, 11, 0)),
    ),
];

/// The hazards of this kernel.
pub fn hazards(facts: &Facts) -> Vec<Hazard> {
    let applies = |range: &&Range| {
        facts.release >= range.from
            && range.fixed.is_none_or(|fixed| facts.release < fixed)
            && concerns(range.hazard, facts)
    };
    RANGES
        .iter()
        .filter(applies)
        .map(|range| range.hazard)
        .collect()
}

/// Whether a fault of the release can show on this host; what is not known may be.
fn concerns(hazard: Hazard, facts: &Facts) -> bool {
    hazard != Hazard::PrivateStack || facts.preemption.is_none_or(Preemption::interrupts_programs)
}

impl Hazard {
    /// What it leads to.
    pub const fn severity(self) -> Severity {
        match self {
            Self::OptimizedRedZone | Self::PidFilter | Self::PrivateStack => Severity::Handled,
            Self::SeccompKillsReturns | Self::CallchainRace | Self::ShadowStackReturns => {
                Severity::Restricts
            }
        }
    }

    /// What happens, and what is done about it.
    pub const fn explain(self) -> (&'static str, &'static str) {
        match self {
            Self::SeccompKillsReturns => (
                "a return probe kills processes under a seccomp filter on this kernel (CVE-2025-21834)",
                "sandboxed targets get no return probes; 6.12.14, 6.13.3 and later are repaired",
            ),
            Self::CallchainRace => (
                "sampling user stacks while return probes are attached can crash this kernel",
                "calls are counted by entry only while sampling is on; `--freq 0` gives return probes; 6.13 is repaired",
            ),
            Self::PrivateStack => (
                "on this kernel a BPF program of a probe that needs 64 bytes of stack or more uses one that belongs to the \
                 processor, and can be preempted while another begins: other tracers' programs crashed kernels so",
                "ours need less, and use the thread's own stack",
            ),
            Self::OptimizedRedZone => (
                "a probe on a 5-byte nop writes below the stack pointer at its first hit on this kernel",
                "such a site is only used where nothing was stored there yet: at a function's first instruction",
            ),
            Self::PidFilter => (
                "the kernel's own filter by process misses threads on this kernel",
                "ours in BPF is used instead",
            ),
            Self::ShadowStackReturns => (
                "return probes break processes with a shadow stack (CET) on this kernel",
                "such targets get no return probes; 6.11 is repaired",
            ),
        }
    }
}
