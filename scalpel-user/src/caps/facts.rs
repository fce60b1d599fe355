//! What was found out about the host, undigested. `None` = could not be found out.

use std::collections::BTreeSet;

use serde::Serialize;

use super::Release;

/// Facts about the host and about ourselves on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// Kernel release as a number.
    pub release: Release,
    /// Kernel release as the kernel writes it.
    pub release_text: String,
    /// Machine (`x86_64`).
    pub machine: String,
    /// Whose kernel this only looks like (`gVisor`).
    pub emulated_by: Option<String>,
    /// Running in a virtual machine (the processor's `hypervisor` flag).
    pub virtual_machine: bool,
    /// When the kernel takes the processor from a task that runs in it.
    pub preemption: Option<Preemption>,
    /// `/sys/kernel/btf/vmlinux` is there.
    pub btf: bool,
    /// Kernel lockdown.
    pub lockdown: Lockdown,
    /// `kernel.perf_event_paranoid`.
    pub paranoid: Option<i32>,
    /// `kernel.perf_event_max_sample_rate`.
    pub max_sample_rate: Option<u32>,
    /// Effective capabilities that matter here.
    pub capabilities: BTreeSet<Capability>,
    /// A hardware PMU that counts cycles.
    pub pmu: bool,
    /// The `uprobe` PMU.
    pub uprobe_pmu: bool,
    /// tracefs is mounted and readable.
    pub tracefs: bool,
    /// We are in the initial pid namespace.
    pub initial_pid_namespace: Option<bool>,
    /// We are in the initial user namespace.
    pub initial_user_namespace: Option<bool>,
    /// Limit of locked memory in bytes; `None` = unlimited.
    pub memlock: Option<u64>,
    /// Limit of open files.
    pub open_files: Option<u64>,
    /// Clock source in use (`tsc`).
    pub clocksource: Option<String>,
    /// Addresses in `/proc/kallsyms` are shown to us.
    pub kernel_symbols: bool,
    /// Processors online.
    pub processors: usize,
    /// Our effective user id is 0.
    pub root: bool,
    /// The program was refused by trial: what the kernel said to a tiny probe program, if it was asked.
    pub trial: Option<Result<(), String>>,
}

/// Preemption model of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Preemption {
    /// Only where the task gives it up itself.
    None,
    /// As `None`, and at marked places.
    Voluntary,
    /// At any place, but late.
    Lazy,
    /// At any place.
    Full,
}

impl Preemption {
    /// Whether a BPF program can be interrupted by another task on its processor.
    pub const fn interrupts_programs(self) -> bool {
        matches!(self, Self::Lazy | Self::Full)
    }
}

/// Kernel lockdown, `/sys/kernel/security/lockdown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Lockdown {
    /// Off.
    None,
    /// The kernel cannot be changed: tracing reads, but cannot write user memory.
    Integrity,
    /// Nor can secrets be read from it: BPF tracing programs are refused.
    Confidentiality,
    /// securityfs is not mounted, or there is no lockdown.
    Unknown,
}

/// Capabilities that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Capability {
    /// Load BPF programs (Linux 5.8).
    Bpf,
    /// Tracing programs and perf events of others (Linux 5.8).
    Perfmon,
    /// Stands for both on older kernels; perf-event uprobes need it on new ones.
    SysAdmin,
    /// Look into other users' processes.
    SysPtrace,
    /// Raise limits.
    SysResource,
    /// Open mapped files through `/proc/PID/map_files`.
    CheckpointRestore,
}

impl Capability {
    /// Its name, as in capabilities(7).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bpf => "CAP_BPF",
            Self::Perfmon => "CAP_PERFMON",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::SysResource => "CAP_SYS_RESOURCE",
            Self::CheckpointRestore => "CAP_CHECKPOINT_RESTORE",
        }
    }
}

impl Facts {
    /// Whether we hold `capability`, or the one that includes it.
    pub fn has(&self, capability: Capability) -> bool {
        let covered = matches!(
            capability,
            Capability::Bpf | Capability::Perfmon | Capability::CheckpointRestore
        );
        self.capabilities.contains(&capability)
            || covered && self.capabilities.contains(&Capability::SysAdmin)
    }
}
