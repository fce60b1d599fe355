//! Giving up rights: the user, the capabilities, and every system call that reading does not take.

use std::io;

use caps::{CapSet, Capability, CapsHashSet};
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use rustix::thread::{Gid, Uid};
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use syscalls::Sysno;

/// `nobody`, by the kernel's own custom (`overflowuid`).
const NOBODY: u32 = 65_534;

/// `PROT_EXEC`.
const EXECUTABLE: u64 = 4;

/// `CLONE_THREAD`.
const THREAD: u64 = 0x1_0000;

/// What reading takes: files that are open, memory, threads, and the channel. Nothing makes a descriptor but the other side.
const ALLOWED: &[Sysno] = &[
    Sysno::read,
    Sysno::pread64,
    Sysno::readv,
    Sysno::lseek,
    Sysno::fstat,
    Sysno::newfstatat,
    Sysno::statx,
    Sysno::close,
    Sysno::fcntl,
    Sysno::write,
    Sysno::writev,
    Sysno::sendmsg,
    Sysno::sendto,
    Sysno::recvmsg,
    Sysno::recvfrom,
    Sysno::munmap,
    Sysno::mremap,
    Sysno::madvise,
    Sysno::brk,
    Sysno::futex,
    Sysno::clone3,
    Sysno::set_robust_list,
    Sysno::rseq,
    Sysno::prctl,
    Sysno::sched_yield,
    Sysno::sched_getaffinity,
    Sysno::getrandom,
    Sysno::gettid,
    Sysno::getpid,
    Sysno::clock_gettime,
    Sysno::clock_nanosleep,
    Sysno::rt_sigaction,
    Sysno::rt_sigprocmask,
    Sysno::rt_sigreturn,
    Sysno::sigaltstack,
    Sysno::restart_syscall,
    Sysno::exit,
    Sysno::exit_group,
];

/// What it takes to have the kernel account for programs, beside `bpf` with this command.
const ACCOUNTING: &[Sysno] = &[
    Sysno::read,
    Sysno::write,
    Sysno::sendmsg,
    Sysno::sendto,
    Sysno::recvmsg,
    Sysno::recvfrom,
    Sysno::close,
    Sysno::fcntl,
    Sysno::mmap,
    Sysno::munmap,
    Sysno::mremap,
    Sysno::brk,
    Sysno::rt_sigreturn,
    Sysno::sigaltstack,
    Sysno::exit_group,
];

/// `BPF_ENABLE_STATS` of `enum bpf_cmd`.
const ENABLE_STATS: u64 = 32;

/// Gives up everything, for good. Must be called while there is one thread.
pub(super) fn confine() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::geteuid().is_root() {
        become_nobody()?;
    }
    keep(&CapsHashSet::new())?;
    forbid(ALLOWED, reading).map_err(io::Error::other)
}

/// The same, but for the one right to have the kernel account for programs.
pub(super) fn to_accounts() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    keep(&CapsHashSet::from([Capability::CAP_SYS_ADMIN]))?;
    forbid(ACCOUNTING, accounting).map_err(io::Error::other)
}

/// Capabilities for good, and no file of its own.
fn keep(kept: &CapsHashSet) -> io::Result<()> {
    for set in [CapSet::Ambient, CapSet::Inheritable] {
        caps::clear(None, set).map_err(io::Error::other)?;
    }
    for set in [CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, kept).map_err(io::Error::other)?;
    }
    rustix::thread::set_no_new_privs(true)?;
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    setrlimit(Resource::Fsize, none)?;
    Ok(())
}

/// Another user, where there is another: in a user namespace of one user there is none.
fn become_nobody() -> io::Result<()> {
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    let become_it = || {
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(group, group, group)?;
        rustix::thread::set_thread_res_uid(user, user, user)
    };
    match become_it() {
        Ok(()) => Ok(()),
        // The capabilities go all the same, and files cannot be opened.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::PERM) => Ok(()),
        Err(other) => Err(other.into()),
    }
}

/// Calls that are allowed with some arguments only.
type Bounded = Vec<(Sysno, Vec<SeccompRule>)>;

fn reading() -> Result<Bounded, seccompiler::BackendError> {
    Ok(vec![
        (Sysno::clone, only_if(0, THREAD, THREAD)?),
        // No memory ever becomes code.
        (Sysno::mmap, only_if(2, EXECUTABLE, 0)?),
        (Sysno::mprotect, only_if(2, EXECUTABLE, 0)?),
    ])
}

fn accounting() -> Result<Bounded, seccompiler::BackendError> {
    Ok(vec![(Sysno::bpf, only_if(0, u64::MAX, ENABLE_STATS)?)])
}

/// An argument, masked, has this value.
fn only_if(
    argument: u8,
    mask: u64,
    value: u64,
) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let is = SeccompCmpOp::MaskedEq(mask);
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Qword, is, value)?;
    Ok(vec![SeccompRule::new(vec![condition])?])
}

/// Two filters: the kernel obeys the stricter of both answers.
fn forbid(
    calls: &[Sysno],
    bounded: fn() -> Result<Bounded, seccompiler::BackendError>,
) -> Result<(), seccompiler::Error> {
    let arch = std::env::consts::ARCH.try_into()?;
    // Its flags lie in memory, where no filter sees them: libraries then take `clone`, whose flags are seen.
    let hidden = [(Sysno::clone3 as i64, Vec::new())];
    let absent = SeccompAction::Errno(rustix::io::Errno::NOSYS.raw_os_error().cast_unsigned());
    let first = SeccompFilter::new(hidden.into(), SeccompAction::Allow, absent, arch)?;
    let always = calls.iter().map(|&call| (call as i64, Vec::new()));
    let mut allowed: std::collections::BTreeMap<i64, Vec<SeccompRule>> = always.collect();
    allowed.extend(
        bounded()?
            .into_iter()
            .map(|(call, rules)| (call as i64, rules)),
    );
    let kill = SeccompAction::KillProcess;
    let second = SeccompFilter::new(allowed, kill, SeccompAction::Allow, arch)?;
    for filter in [first, second] {
        let program: seccompiler::BpfProgram = filter.try_into()?;
        seccompiler::apply_filter(&program)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus};

    use super::*;

    const DEED: &str = "SCALPEL_TEST_DEED";

    /// What the confined process does; `true` = it was let.
    fn done(deed: &str, mut open: File) -> bool {
        match deed {
            "read what is open" => open.read_to_string(&mut String::new()).is_ok(),
            "begin a thread" => std::thread::spawn(|| ()).join().is_ok(),
            "take memory" => vec![1_u8; 64 << 20].iter().all(|byte| *byte == 1),
            "open" => File::open("/proc/self/status").is_ok(),
            "make a socket" => UnixStream::pair().is_ok(),
            "execute" => Command::new("true").status().is_ok(),
            "signal" => {
                let parent = rustix::process::getppid();
                parent.is_some_and(|it| rustix::process::kill_process(it, Signal::CONT).is_ok())
            }
            "make code" => {
                let memory = memmap2::MmapMut::map_anon(4096);
                memory.is_ok_and(|memory| memory.make_exec().is_ok())
            }
            _ => false,
        }
    }

    #[test]
    fn who_accounts_can_do_that_and_nothing_else() {
        for deed in [
            "open",
            "make a socket",
            "execute",
            "signal",
            "make code",
            "begin a thread",
        ] {
            let status = confined(&format!("accounts: {deed}"));
            assert_eq!(status.signal(), Some(31), "{deed}: {status}");
        }
    }

    /// Is run by the test below, in a process of its own.
    #[test]
    fn what_a_confined_process_does() {
        let Ok(deed) = std::env::var(DEED) else {
            return;
        };
        let open = File::open("/proc/self/status").unwrap();
        let Some(deed) = deed.strip_prefix("accounts: ") else {
            confine().unwrap();
            assert!(done(&deed, open), "{deed}");
            return;
        };
        to_accounts().unwrap();
        assert!(done(deed, open), "{deed}");
    }

    fn confined(deed: &str) -> ExitStatus {
        let test = "sandbox::confine::tests::what_a_confined_process_does";
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1", "-q"])
            .env(DEED, deed)
            .output()
            .unwrap()
            .status
    }

    #[test]
    fn it_can_read_and_think_and_nothing_else() {
        for deed in ["read what is open", "begin a thread", "take memory"] {
            assert_eq!(confined(deed).code(), Some(0), "{deed}");
        }
        // SIGSYS
        for deed in ["open", "make a socket", "execute", "signal", "make code"] {
            assert_eq!(confined(deed).signal(), Some(31), "{deed}");
        }
    }
}
