//! What can be done here, and why not more.

use serde::Serialize;

use super::hazards::{Hazard, hazards};
use super::{Capability, Facts, Lockdown, Release};

/// First release with `BPF_TRACE_UPROBE_MULTI` links.
const UPROBE_MULTI: Release = Release(6, 6, 0);
/// First release with uprobe sessions: d920179b3d48 in 6.13-rc1.
const UPROBE_SESSION: Release = Release(6, 13, 0);
/// First release with all that our programs use beside uprobes: BPF rings (5.8), task storage for tracing programs
/// (5.11), attach cookies (5.15).
const OLDEST: Release = Release(5, 15, 0);

/// A choice with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decision<T> {
    /// What was chosen.
    pub choice: T,
    /// Why.
    pub reason: String,
}

/// How probes are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Attach {
    /// `uprobe_multi` links.
    Multi,
    /// A perf event for each probe.
    Perf,
}

/// What drives sampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sampler {
    /// Hardware cycles.
    Cycles,
    /// The kernel's cpu-clock timer.
    CpuClock,
}

/// Which gate is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Gate {
    /// A capability, sysctl or lockdown: another user or setting opens it.
    Permission,
    /// Another kernel or machine would open it.
    System,
}

/// Something without which nothing can be recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{what}; {next}. `scalpel-ebpf doctor` tells more")]
pub struct Blocker {
    /// Kind.
    pub gate: Gate,
    /// What stands in the way.
    pub what: String,
    /// The next step.
    pub next: String,
}

/// What can be done here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Abilities {
    /// How to attach.
    pub attach: Decision<Attach>,
    /// Entry and return in one program.
    pub session: Decision<bool>,
    /// The kernel's filter by process may be used.
    pub pid_filter: Decision<bool>,
    /// What drives sampling.
    pub sampler: Decision<Sampler>,
    /// Return probes may be attached while user stacks are sampled.
    pub returns_while_sampling: Decision<bool>,
    /// What is known to go wrong on this kernel.
    pub hazards: Vec<Hazard>,
    /// Why nothing can be recorded; empty = it can.
    pub blockers: Vec<Blocker>,
}

impl Abilities {
    /// Decides.
    pub fn of(facts: &Facts) -> Self {
        let hazards = hazards(facts);
        let attach = attach(facts);
        Self {
            session: session(facts, attach.choice),
            pid_filter: pid_filter(&hazards, attach.choice),
            sampler: sampler(facts),
            returns_while_sampling: returns_while_sampling(&hazards),
            blockers: blockers(facts, attach.choice),
            attach,
            hazards,
        }
    }

    /// Whether this kernel has a known fault.
    pub fn is(&self, hazard: Hazard) -> bool {
        self.hazards.contains(&hazard)
    }

    /// The first reason why nothing can be recorded, permissions last: they help nobody on the wrong kernel.
    pub fn first_blocker(&self) -> Option<&Blocker> {
        let system = self
            .blockers
            .iter()
            .find(|blocker| blocker.gate == Gate::System);
        system.or_else(|| self.blockers.first())
    }
}

fn decide<T>(choice: T, reason: impl Into<String>) -> Decision<T> {
    Decision {
        choice,
        reason: reason.into(),
    }
}

fn attach(facts: &Facts) -> Decision<Attach> {
    if facts.release >= UPROBE_MULTI {
        return decide(
            Attach::Multi,
            format!("uprobe_multi links: Linux {} has them (6.6)", facts.release),
        );
    }
    let reason = format!(
        "one perf event per probe, slow and bounded in number: uprobe_multi came with Linux 6.6, this is {}",
        facts.release
    );
    decide(Attach::Perf, reason)
}

fn session(facts: &Facts, attach: Attach) -> Decision<bool> {
    match (attach, facts.release >= UPROBE_SESSION) {
        (Attach::Multi, true) => decide(true, "entry and return in one program (Linux 6.13)"),
        _ => decide(
            false,
            "entry and return are two probes: uprobe sessions came with Linux 6.13",
        ),
    }
}

fn pid_filter(hazards: &[Hazard], attach: Attach) -> Decision<bool> {
    match attach {
        Attach::Multi if hazards.contains(&Hazard::PidFilter) => decide(
            false,
            "uprobe_multi's filter is right from Linux 6.10 on: ours in BPF is used",
        ),
        Attach::Multi => decide(true, "uprobe_multi's filter is right from Linux 6.10 on"),
        Attach::Perf => decide(true, "perf events belong to a process"),
    }
}

fn sampler(facts: &Facts) -> Decision<Sampler> {
    match (facts.pmu, facts.virtual_machine) {
        (true, _) => decide(Sampler::Cycles, "the processor's cycle counter"),
        (false, true) => decide(
            Sampler::CpuClock,
            "cpu-clock timer: this virtual machine shows no cycle counter",
        ),
        (false, false) => decide(
            Sampler::CpuClock,
            "cpu-clock timer: the kernel shows no cycle counter",
        ),
    }
}

fn returns_while_sampling(hazards: &[Hazard]) -> Decision<bool> {
    if hazards.contains(&Hazard::CallchainRace) {
        return decide(
            false,
            "kernels before 6.13 can crash when user stacks are sampled under return probes",
        );
    }
    decide(true, "safe from Linux 6.13 on")
}

fn blockers(facts: &Facts, attach: Attach) -> Vec<Blocker> {
    let mut found = Vec::new();
    let mut add = |gate, what: String, next: &str| {
        found.push(Blocker {
            gate,
            what,
            next: next.into(),
        })
    };
    if let Some(name) = &facts.emulated_by {
        add(
            Gate::System,
            format!("this is {name}, not a Linux kernel: it has no uprobes"),
            "run scalpel on the host, or in a virtual machine",
        );
    }
    if facts.machine != "x86_64" {
        add(
            Gate::System,
            format!(
                "probe sites are chosen for x86_64 only, this is {}",
                facts.machine
            ),
            "record on an x86_64 machine",
        );
    }
    if facts.release < OLDEST {
        add(
            Gate::System,
            format!(
                "Linux {} is too old: {OLDEST} is needed, 6.13 is best",
                facts.release
            ),
            "update the kernel",
        );
    }
    if !facts.btf {
        add(
            Gate::System,
            "the kernel has no type information: /sys/kernel/btf/vmlinux is missing".into(),
            "use a kernel built with CONFIG_DEBUG_INFO_BTF=y; in a container, mount /sys",
        );
    }
    if facts.lockdown == Lockdown::Confidentiality {
        add(
            Gate::Permission,
            "kernel lockdown is `confidentiality`: it refuses programs that read memory".into(),
            "boot with lockdown=integrity, or with secure boot off",
        );
    }
    if facts.initial_user_namespace == Some(false) {
        add(
            Gate::Permission,
            "we are in a user namespace: capabilities in it do not count for BPF".into(),
            "run on the host, or in a container that is `--privileged` without user namespaces",
        );
    }
    if facts.initial_pid_namespace == Some(false) {
        add(
            Gate::System,
            "we are in a pid namespace: the kernel's pids would not be those in /proc".into(),
            "run on the host, or with --pid=host",
        );
    }
    let missing = missing(facts, attach);
    if !missing.is_empty() {
        add(
            Gate::Permission,
            format!("missing {}", missing.join(" and ")),
            next_for_capabilities(facts, attach),
        );
    }
    if let Some(Err(said)) = &facts.trial {
        add(
            Gate::System,
            format!("the kernel refused a trial program: {said}"),
            "see `dmesg`; -vv shows the verifier's log",
        );
    }
    found
}

fn missing(facts: &Facts, attach: Attach) -> Vec<&'static str> {
    let needed: &[Capability] = match attach {
        Attach::Multi => &[Capability::Bpf, Capability::Perfmon],
        Attach::Perf => &[Capability::SysAdmin],
    };
    needed
        .iter()
        .filter(|&&capability| !facts.has(capability))
        .map(|capability| capability.name())
        .collect()
}

const fn next_for_capabilities(facts: &Facts, attach: Attach) -> &'static str {
    match (facts.root, attach) {
        (true, _) => {
            "root without them is in a container: start it with `--cap-add BPF --cap-add PERFMON --cap-add SYS_PTRACE`, or `--privileged`"
        }
        (false, Attach::Multi) => {
            "run with sudo, or once: `sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace+ep \"$(command -v scalpel-ebpf)\"`"
        }
        (false, Attach::Perf) => "run with sudo: perf-event uprobes need CAP_SYS_ADMIN",
    }
}
