//! What root gives up before it reads what strangers wrote: every capability that watching a process takes none of.
//!
//! Only ours: a command that we start executes with all that root has (`capabilities(7)`: the bounding set is untouched).
//! Capabilities belong to a thread and are inherited by those that it makes: this is done while there is one.

use caps::{CapSet, Capability, CapsHashSet};

/// What a recording takes at most.
const KEPT: &[Capability] = &[
    // To load programs, to attach them, to sample.
    Capability::CAP_BPF,
    Capability::CAP_PERFMON,
    // Rings beyond the limits of a user.
    Capability::CAP_IPC_LOCK,
    Capability::CAP_SYS_RESOURCE,
    // Births, before Linux 6.6 and in containers.
    Capability::CAP_NET_ADMIN,
    // Memory, files and namespaces of other users' processes, and files that their owners alone may read.
    Capability::CAP_SYS_PTRACE,
    Capability::CAP_CHECKPOINT_RESTORE,
    Capability::CAP_DAC_READ_SEARCH,
    // Addresses of the kernel's functions.
    Capability::CAP_SYSLOG,
    // Results in folders of whoever typed `sudo`, and as theirs; files that a probe's process is to read.
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_CHOWN,
    Capability::CAP_FOWNER,
    // The end of a command that changed its user, and the word to a runtime that it is to load its probe.
    Capability::CAP_KILL,
];

/// Gives up the others, if this is root; whoever was given single capabilities keeps those. `attaches_by_perf`: probes by
/// perf events take `CAP_SYS_ADMIN`. What was given up.
pub fn limit(attaches_by_perf: bool) -> Result<CapsHashSet, caps::errors::CapsError> {
    if !rustix::process::geteuid().is_root() || is_bound_to_capabilities() {
        return Ok(CapsHashSet::new());
    }
    let held = caps::read(None, CapSet::Permitted)?;
    // Linux before 5.9 knows nothing finer for some of these.
    let admin = attaches_by_perf || !held.contains(&Capability::CAP_CHECKPOINT_RESTORE);
    let is_kept =
        |one: &Capability| KEPT.contains(one) || (admin && *one == Capability::CAP_SYS_ADMIN);
    let (kept, given_up): (CapsHashSet, CapsHashSet) = held.into_iter().partition(is_kept);
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    Ok(given_up)
}

/// Whether an exec by root gives no capabilities here: then a command would miss what we give up.
fn is_bound_to_capabilities() -> bool {
    rustix::thread::capabilities_secure_bits().map_or(true, |bits| {
        bits.contains(rustix::thread::CapabilitiesSecureBits::NO_ROOT)
    })
}
