//! Why a process cannot be watched, each with the next step.

use std::io;
use std::path::PathBuf;

use crate::event::{Pid, Tid};

/// A process cannot be watched or looked at.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// There is none.
    #[error(
        "there is no process {pid}; `scalpel-ebpf list processes` shows those that can be watched"
    )]
    NoSuchProcess {
        /// As asked for.
        pid: Pid,
    },
    /// The number is a thread's.
    #[error("{tid} is a thread of process {pid}; watch the process: --pid {pid}")]
    IsThread {
        /// As asked for.
        tid: Pid,
        /// Its process.
        pid: Pid,
    },
    /// It has no such thread.
    #[error(
        "process {pid} has no thread {tid}; `scalpel-ebpf dump --pid {pid}` shows those that it has"
    )]
    NoSuchThread {
        /// Process.
        pid: Pid,
        /// As asked for.
        tid: Tid,
    },
    /// It ended, and its parent has not asked for its status yet.
    #[error(
        "process {pid} ({name}) is a zombie: it has ended and only waits for its parent, {parent}, to notice"
    )]
    Zombie {
        /// Process.
        pid: Pid,
        /// Its name.
        name: String,
        /// Parent.
        parent: Pid,
    },
    /// It is part of the kernel.
    #[error(
        "process {pid} ({name}) is a kernel thread: it runs no program that could be probed; `perf record -a` samples the kernel"
    )]
    KernelThread {
        /// Process.
        pid: Pid,
        /// Its name.
        name: String,
    },
    /// It ended while it was looked at.
    #[error("process {pid} ended while it was being looked at")]
    Gone {
        /// Process.
        pid: Pid,
    },
    /// It is another user's.
    #[error("not permitted to read {} of process {pid}, which belongs to uid {uid}; run with sudo, or give the program CAP_SYS_PTRACE: `setcap cap_bpf,cap_perfmon,cap_sys_ptrace+ep scalpel-ebpf`", what.display())]
    NotPermitted {
        /// Process.
        pid: Pid,
        /// Its owner.
        uid: u32,
        /// File below `/proc/PID`.
        what: PathBuf,
    },
    /// No process has the name.
    #[error(
        "no process is named `{comm}`{}; the name is the one that `ps -o comm` shows, at most 15 bytes",
        near(nearest)
    )]
    NoSuchComm {
        /// As asked for.
        comm: String,
        /// Names that look like it.
        nearest: Vec<String>,
    },
    /// A cgroup is not there.
    #[error(
        "there is no cgroup `{}`: a path with `cgroup.procs` in it, or one under /sys/fs/cgroup (`systemd-cgls` shows them)",
        path.display()
    )]
    NoSuchCgroup {
        /// As asked for.
        path: PathBuf,
    },
    /// A command is not there.
    #[error("there is no command `{program}`{}", where_looked(*in_path))]
    NoSuchCommand {
        /// As typed.
        program: String,
        /// It was looked up in `PATH`.
        in_path: bool,
    },
    /// A command cannot be run.
    #[error("`{}` cannot be run: {reason}", path.display())]
    NotRunnable {
        /// File.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The command could not be started.
    #[error("cannot start `{}`", path.display())]
    Spawn {
        /// File.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// `/proc` said something else.
    #[error("cannot read {} of process {pid}", what.display())]
    Io {
        /// Process.
        pid: Pid,
        /// File below `/proc/PID`.
        what: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl TargetError {
    /// Whether a missing permission is the cause.
    pub fn is_not_permitted(&self) -> bool {
        match self {
            Self::NotPermitted { .. } | Self::NotRunnable { .. } => true,
            Self::Spawn { source, .. } | Self::Io { source, .. } => {
                source.kind() == io::ErrorKind::PermissionDenied
            }
            _ => false,
        }
    }
}

fn near(names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    format!(" (did you mean {}?)", names.join(", "))
}

const fn where_looked(in_path: bool) -> &'static str {
    if in_path {
        " in PATH; give its path, as in ./program"
    } else {
        "; is the path right?"
    }
}
