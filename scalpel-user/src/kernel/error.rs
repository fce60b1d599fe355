//! Why the kernel side could not be loaded or attached, and what to do about it.
//!
//! The hints (capability, lockdown, missing BTF) are looked up at the moment of the failure; the wording is pure.

use std::fmt;
use std::io;

use caps::{CapSet, Capability};

/// Why loading or attaching failed.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The object is not one that this collector understands.
    #[error(
        "the BPF object cannot be read: {reason}; build it again with `cargo xtask build-ebpf`"
    )]
    Object {
        /// What is wrong with it.
        reason: String,
        /// The reader's error.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// A program or map that the collector needs is not in the object, or of another type.
    #[error("the BPF object has no {what} `{name}`; build it again with `cargo xtask build-ebpf`")]
    Missing {
        /// `program` or `map`.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// The programs cannot learn the kernel's layout.
    #[error(transparent)]
    Types(#[from] super::btf::BtfError),
    /// The maps could not be created.
    #[error("the kernel refused the BPF maps ({hint})")]
    Maps {
        /// What probably is in the way.
        hint: Hint,
        /// The loader's error.
        #[source]
        source: Box<aya::EbpfError>,
    },
    /// The kernel did not take a program.
    #[error("the kernel refused the BPF program `{program}` ({hint}){}", log_lines(.verifier_log))]
    Program {
        /// Name of the program.
        program: String,
        /// What probably is in the way.
        hint: Hint,
        /// Last lines of the verifier's log; empty if it said nothing.
        verifier_log: String,
        /// The answer of the system call.
        #[source]
        source: io::Error,
    },
    /// A program that aya loads or attaches was refused.
    #[error("the kernel refused to {action} `{program}` ({hint})")]
    Aya {
        /// `load` or `attach`.
        action: &'static str,
        /// Name of the program.
        program: String,
        /// What probably is in the way.
        hint: Hint,
        /// The loader's error.
        #[source]
        source: Box<aya::programs::ProgramError>,
    },
    /// A ring could not be mapped or waited on.
    #[error("a ring buffer cannot be read")]
    Ring(#[source] io::Error),
    /// A thread of the collector could not be started.
    #[error("a thread could not be started")]
    Thread(#[source] io::Error),
    /// The kernel refused a perf event.
    #[error("the kernel refused {what}; they need CAP_PERFMON or a low kernel.perf_event_paranoid")]
    Perf {
        /// What the event is for.
        what: &'static str,
        /// The answer of the system call.
        #[source]
        source: io::Error,
    },
    /// A fact about the host could not be read.
    #[error("{path} cannot be read")]
    Host {
        /// The file.
        path: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A map could not be read or written.
    #[error("the map `{name}` cannot be accessed")]
    Map {
        /// Its name.
        name: &'static str,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Attaching failed for a reason that is not the fault of single functions.
    #[error("{sites} probes in {file} could not be attached ({hint})")]
    Attach {
        /// The file.
        file: String,
        /// How many probes the link would have had.
        sites: usize,
        /// What probably is in the way.
        hint: Hint,
        /// The answer of the system call.
        #[source]
        source: io::Error,
    },
    /// The watched process ended meanwhile.
    #[error("process {0} has ended; nothing was attached to it")]
    ProcessGone(u32),
    /// More functions than perf uprobes should carry.
    #[error(
        "{wanted} probes are more than the {limit} that perf uprobes can carry (each is a descriptor and closes \
         slowly); choose fewer functions with -f, or use a kernel with uprobe_multi (Linux 6.6)"
    )]
    TooManyForPerf {
        /// Probes asked for.
        wanted: usize,
        /// The limit.
        limit: usize,
    },
    /// The calibration found no way to run.
    #[error("the cost of a probe could not be measured: {0}")]
    Calibration(String),
}

/// What probably is in the way, in words for the user. Always says something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint(String);

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Facts about the host that explain a refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Host {
    missing_capabilities: Vec<&'static str>,
    lockdown: Option<String>,
    has_btf: bool,
}

impl Hint {
    /// For an error number of `bpf()`, and the capabilities that the attempt needs.
    pub(super) fn for_errno(errno: Option<i32>, needed: &[Capability]) -> Self {
        Self(explain(errno, &Host::look(needed)))
    }

    /// For an error that may have a number of `bpf()` somewhere below it.
    pub(super) fn for_error(
        error: &(dyn std::error::Error + 'static),
        needed: &[Capability],
    ) -> Self {
        Self::for_errno(errno_within(error), needed)
    }
}

impl Host {
    fn look(needed: &[Capability]) -> Self {
        Self {
            missing_capabilities: needed
                .iter()
                .filter(|&&capability| {
                    !caps::has_cap(None, CapSet::Effective, capability).unwrap_or(false)
                })
                .map(|&capability| name_of(capability))
                .collect(),
            lockdown: std::fs::read_to_string("/sys/kernel/security/lockdown")
                .ok()
                .and_then(|text| mode_of(&text)),
            has_btf: std::path::Path::new("/sys/kernel/btf/vmlinux").exists(),
        }
    }
}

const fn name_of(capability: Capability) -> &'static str {
    match capability {
        Capability::CAP_BPF => "CAP_BPF",
        Capability::CAP_PERFMON => "CAP_PERFMON",
        Capability::CAP_SYS_ADMIN => "CAP_SYS_ADMIN",
        _ => "another capability",
    }
}

/// The active mode in `none [integrity] confidentiality`.
fn mode_of(lockdown: &str) -> Option<String> {
    let (_, rest) = lockdown.split_once('[')?;
    rest.split_once(']').map(|(mode, _)| mode.to_owned())
}

fn explain(errno: Option<i32>, host: &Host) -> String {
    let denied = matches!(errno, Some(libc::EPERM | libc::EACCES));
    let confidential = host.lockdown.as_deref() == Some("confidentiality");
    match errno {
        _ if denied && !host.missing_capabilities.is_empty() => {
            format!("missing {}: run as root or grant it", host.missing_capabilities.join(" and "))
        }
        Some(_) if confidential && (denied || errno == Some(libc::EINVAL)) => {
            "kernel lockdown is `confidentiality`, which forbids tracing programs to read memory".into()
        }
        Some(libc::EACCES) => "rejected by the verifier, or by a security module".into(),
        Some(libc::EPERM) => {
            "not permitted although the capabilities are there: a security module, a seccomp filter or \
             RLIMIT_MEMLOCK of a kernel before 5.11"
                .into()
        }
        _ if !host.has_btf => "this kernel has no BTF in /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF)".into(),
        Some(libc::EINVAL) => "this kernel does not know this kind of program, map or attach".into(),
        Some(libc::ENOMEM) => "out of kernel memory: ask for smaller rings".into(),
        Some(libc::EMFILE | libc::ENFILE) => "too many open files: raise `ulimit -n`".into(),
        Some(number) => format!("error {number}"),
        None => "see the cause".into(),
    }
}

fn errno_within(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    std::iter::successors(Some(error), |error| error.source()).find_map(|error| {
        error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::raw_os_error)
    })
}

/// The last lines of a verifier log: the reason stands there.
pub(super) fn tail(log: &str) -> String {
    const LINES: usize = 12;
    let lines: Vec<&str> = log.lines().collect();
    lines
        .get(lines.len().saturating_sub(LINES)..)
        .unwrap_or_default()
        .join("\n")
}

fn log_lines(log: &str) -> String {
    if log.is_empty() {
        String::new()
    } else {
        format!("; the verifier said:\n{log}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(errno: i32, host: &Host, expect: &str) {
        let text = explain(Some(errno), host);
        assert!(text.contains(expect), "{text}");
    }

    fn host() -> Host {
        Host {
            missing_capabilities: vec![],
            lockdown: None,
            has_btf: true,
        }
    }

    #[test]
    fn a_missing_capability_is_named() {
        let host = Host {
            missing_capabilities: vec!["CAP_BPF", "CAP_PERFMON"],
            ..host()
        };
        check(libc::EPERM, &host, "CAP_BPF and CAP_PERFMON");
    }

    #[test]
    fn lockdown_is_named_before_the_verifier() {
        let host = Host {
            lockdown: mode_of("none integrity [confidentiality]"),
            ..host()
        };
        check(libc::EACCES, &host, "lockdown");
        check(libc::EINVAL, &host, "lockdown");
    }

    #[test]
    fn integrity_lockdown_is_not_in_the_way() {
        let host = Host {
            lockdown: mode_of("none [integrity] confidentiality"),
            ..host()
        };
        check(libc::EACCES, &host, "verifier");
    }

    #[test]
    fn a_kernel_without_btf_is_named() {
        check(
            libc::ENOENT,
            &Host {
                has_btf: false,
                ..host()
            },
            "BTF",
        );
    }

    #[test]
    fn only_the_end_of_a_log_is_kept() {
        let log: String = (0..100).map(|line| format!("line {line}\n")).collect();
        assert!(tail(&log).starts_with("line 88") && tail(&log).ends_with("line 99"));
    }

    #[test]
    fn the_error_number_is_found_below_other_errors() {
        let inner = io::Error::from_raw_os_error(libc::EPERM);
        let outer = KernelError::Attach {
            file: "x".into(),
            sites: 1,
            hint: Hint(String::new()),
            source: inner,
        };
        assert_eq!(errno_within(&outer), Some(libc::EPERM));
    }
}
