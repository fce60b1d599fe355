//! One process, held so that a reused pid cannot be mistaken for it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use procfs::FromRead;
use procfs::process::Stat;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid as RawPid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::maps::{Mapping, parse_maps};
use super::{MappedImage, Runtime, Status, TargetError};
use crate::event::{Pid, Tid};

/// `PF_KTHREAD` of `include/linux/sched.h`: field 9 of `/proc/PID/stat` shows it on every kernel.
const KERNEL_THREAD_FLAG: u32 = 0x0020_0000;

/// A process: pid, start time, and a pidfd that keeps meaning this one.
#[derive(Clone, Debug)]
pub struct Process {
    pid: Pid,
    start_time: u64,
    name: String,
    handle: Arc<OwnedFd>,
}

/// One thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its id.
    pub tid: Tid,
    /// Its name.
    pub name: String,
}

/// What the kernel keeps of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accounts {
    /// It has waited for children: each takes faults to begin and to end. Nothing is kept of those that it did not wait for.
    pub has_had_children: bool,
    /// Where its program lies; 0 = nothing is loaded yet or any more, 1 = it is not told to us.
    pub code_at: u64,
    /// Where its stack begins: another place after each exec, also of a program that is linked to lie at one place only.
    pub stack_at: u64,
}

impl Process {
    /// Takes hold of a process that can be watched: no zombie, kernel thread or mere thread.
    pub fn open(pid: Pid) -> Result<Self, TargetError> {
        let handle = open_handle(pid)?;
        // The identity is read while the pidfd is held: should the process end in between, the pidfd tells.
        let stat = read_stat(pid)?;
        let status = Status::parse(&read_file(pid, "status")?);
        let name = status.name.clone();
        if status.kernel_thread || stat.flags & KERNEL_THREAD_FLAG != 0 {
            return Err(TargetError::KernelThread { pid, name });
        }
        if matches!(stat.state, 'Z' | 'X') {
            return Err(TargetError::Zombie {
                pid,
                name,
                parent: Pid(status.parent),
            });
        }
        let start_time = ticks_to_ns(stat.starttime);
        let process = Self {
            pid,
            start_time,
            name,
            handle: Arc::new(handle),
        };
        if process.is_alive() {
            Ok(process)
        } else {
            Err(TargetError::Gone { pid })
        }
    }

    /// Its pid, in our pid namespace.
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// When it started, in ns of `CLOCK_BOOTTIME`, rounded down to the kernel's clock tick (10 ms): with the pid,
    /// its identity. The exact time is the kernel's only.
    pub const fn start_time(&self) -> u64 {
        self.start_time
    }

    /// Its name (`comm`) when it was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its pidfd; becomes readable when the process ends.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Whether it still runs.
    pub fn is_alive(&self) -> bool {
        let mut ready = [PollFd::new(&*self.handle, PollFlags::IN)];
        matches!(
            poll(
                &mut ready,
                Some(&Timespec {
                    tv_sec: 0,
                    tv_nsec: 0
                })
            ),
            Ok(0)
        )
    }

    /// Sends it a signal; a process that has ended is no error.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&*self.handle, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Path of a file below its `/proc` folder.
    pub fn proc_path(&self, name: impl AsRef<Path>) -> PathBuf {
        proc_path(self.pid, name.as_ref())
    }

    /// Content of a file below its `/proc` folder, proven to be this process's.
    pub fn read(&self, name: impl AsRef<Path>) -> Result<Vec<u8>, TargetError> {
        let bytes = read_file(self.pid, name.as_ref())?;
        if self.is_alive() {
            Ok(bytes)
        } else {
            Err(TargetError::Gone { pid: self.pid })
        }
    }

    /// What the kernel tells of it.
    pub fn status(&self) -> Result<Status, TargetError> {
        Ok(Status::parse(&self.read("status")?))
    }

    /// Everything it has mapped, in order of address.
    pub fn maps(&self) -> Result<Vec<Mapping>, TargetError> {
        Ok(parse_maps(&self.read("maps")?).0)
    }

    /// Each distinct file that it has mapped executable, opened. See [`MappedImage`].
    pub fn images(&self) -> Result<Vec<MappedImage>, TargetError> {
        Ok(MappedImage::open_all(self, &self.maps()?))
    }

    /// The same of some of its mappings.
    pub fn images_of(&self, maps: &[Mapping]) -> Vec<MappedImage> {
        match maps {
            [] => Vec::new(),
            maps => MappedImage::open_all(self, maps),
        }
    }

    /// Its threads, in order of id.
    pub fn threads(&self) -> Result<Vec<Thread>, TargetError> {
        let folder = self.proc_path("task");
        let entries =
            fs::read_dir(&folder).map_err(|source| failed(self.pid, Path::new("task"), source))?;
        let mut threads: Vec<Thread> = entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().map(Tid))
            // A thread may end between the two reads: it is then none any more.
            .filter_map(|tid| {
                Some(Thread {
                    tid,
                    name: comm(&fs::read(folder.join(format!("{tid}/comm"))).ok()?),
                })
            })
            .collect();
        threads.sort_by_key(|thread| thread.tid);
        if self.is_alive() {
            Ok(threads)
        } else {
            Err(TargetError::Gone { pid: self.pid })
        }
    }

    /// Children of all its threads, as they are now.
    pub fn children(&self) -> Result<Vec<Pid>, TargetError> {
        let mut children = Vec::new();
        for thread in self.threads()? {
            // CONFIG_PROC_CHILDREN; without it a process has no children that we can see.
            let list = fs::read_to_string(self.proc_path(format!("task/{}/children", thread.tid)))
                .unwrap_or_default();
            children.extend(
                list.split_whitespace()
                    .filter_map(|word| word.parse().ok().map(Pid)),
            );
        }
        children.sort_unstable();
        Ok(children)
    }

    /// What the kernel keeps in its accounts, even of a process that has ended, until its parent asks.
    pub fn accounts(&self) -> Result<Accounts, TargetError> {
        let stat = read_stat(self.pid)?;
        if ticks_to_ns(stat.starttime) != self.start_time {
            return Err(TargetError::Gone { pid: self.pid });
        }
        let faults = stat.cminflt + stat.cmajflt;
        Ok(Accounts {
            has_had_children: faults > 0 || stat.cutime + stat.cstime > 0,
            code_at: stat.startcode,
            stack_at: stat.startstack,
        })
    }

    /// The file it executes, as itself sees it.
    pub fn exe(&self) -> Result<PathBuf, TargetError> {
        fs::read_link(self.proc_path("exe"))
            .map_err(|source| failed(self.pid, Path::new("exe"), source))
    }

    /// Its arguments. They may hold secrets: shown and recorded on request only.
    pub fn command_line(&self) -> Result<Vec<OsString>, TargetError> {
        let bytes = self.read("cmdline")?;
        let args = bytes
            .strip_suffix(b"\0")
            .unwrap_or(&bytes)
            .split(|&byte| byte == 0);
        Ok(args
            .map(|arg| OsString::from_vec(arg.to_vec()))
            .filter(|arg| !arg.is_empty())
            .collect())
    }

    /// Whether it writes the names of what it compiles to where samplers look: `/tmp/perf-PID.map`, by its own number.
    pub fn writes_perf_map(&self) -> bool {
        let inner = self
            .status()
            .ok()
            .and_then(|status| status.namespace_pids.last().copied())
            .unwrap_or(self.pid.0);
        self.proc_path(format!("root/tmp/perf-{inner}.map"))
            .exists()
    }

    /// Language runtimes that its mappings show.
    pub fn runtimes(&self) -> Result<Vec<Runtime>, TargetError> {
        Ok(Runtime::of(&self.maps()?))
    }
}

fn open_handle(pid: Pid) -> Result<OwnedFd, TargetError> {
    let missing = || TargetError::NoSuchProcess { pid };
    let raw = i32::try_from(pid.0)
        .ok()
        .and_then(RawPid::from_raw)
        .ok_or_else(missing)?;
    match pidfd_open(raw, PidfdFlags::empty()) {
        Ok(handle) => Ok(handle),
        Err(rustix::io::Errno::SRCH) => Err(missing()),
        // The number of a thread that leads no process (EINVAL; ENOENT since Linux 6.9).
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {
            Err(match read_file(pid, "status") {
                Ok(text) => TargetError::IsThread {
                    tid: pid,
                    pid: Pid(Status::parse(&text).tgid),
                },
                Err(_) => missing(),
            })
        }
        Err(error) => Err(failed(pid, Path::new("pidfd"), error.into())),
    }
}

fn read_stat(pid: Pid) -> Result<Stat, TargetError> {
    let text = read_file(pid, "stat")?;
    Stat::from_read(text.as_slice())
        .map_err(|error| failed(pid, Path::new("stat"), io::Error::other(error)))
}

fn proc_path(pid: Pid, name: &Path) -> PathBuf {
    Path::new("/proc").join(pid.to_string()).join(name)
}

fn read_file(pid: Pid, name: impl AsRef<Path>) -> Result<Vec<u8>, TargetError> {
    fs::read(proc_path(pid, name.as_ref())).map_err(|source| failed(pid, name.as_ref(), source))
}

/// Names what went wrong with a file of `/proc/PID`.
pub(super) fn failed(pid: Pid, what: &Path, source: io::Error) -> TargetError {
    let gone = source.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
        || source.kind() == io::ErrorKind::NotFound;
    if gone {
        return TargetError::Gone { pid };
    }
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            let uid = fs::read(proc_path(pid, Path::new("status")))
                .map_or(0, |text| Status::parse(&text).uid);
            TargetError::NotPermitted {
                pid,
                uid,
                what: what.to_owned(),
            }
        }
        _ => TargetError::Io {
            pid,
            what: what.to_owned(),
            source,
        },
    }
}

/// Text of a `comm` file.
pub(super) fn comm(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.strip_suffix(b"\n").unwrap_or(bytes)).into_owned()
}

/// CPU time of the children that a process has waited for, and of theirs, in ns, as coarse as the kernel's ticks; `None` = it is
/// gone.
pub fn waited_for_cpu_ns(pid: Pid) -> Option<u64> {
    let stat = read_stat(pid).ok()?;
    let ticks = stat.cutime.saturating_add(stat.cstime);
    Some(ticks_to_ns(u64::try_from(ticks).unwrap_or(0)))
}

fn ticks_to_ns(ticks: u64) -> u64 {
    ticks.saturating_mul(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ourselves() -> Process {
        Process::open(Pid(std::process::id())).unwrap()
    }

    #[test]
    fn a_process_knows_itself() {
        let process = ourselves();
        assert!(process.is_alive());
        assert!(process.start_time() > 0);
        assert_eq!(process.exe().unwrap(), std::env::current_exe().unwrap());
        assert!(
            process
                .threads()
                .unwrap()
                .iter()
                .any(|thread| thread.tid.0 == process.pid().0)
        );
        assert_eq!(
            process.command_line().unwrap().len(),
            std::env::args_os().len()
        );
        assert_eq!(process.status().unwrap().tgid, process.pid().0);
    }

    #[test]
    fn the_end_of_a_process_is_seen_even_if_nobody_waits_for_it() {
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        let process = Process::open(Pid(child.id())).unwrap();
        assert!(ourselves().children().unwrap().contains(&process.pid()));
        process.signal(Signal::KILL).unwrap();
        let mut ready = [PollFd::new(&process.handle, PollFlags::IN)];
        poll(&mut ready, None).unwrap();
        assert!(!process.is_alive());
        assert!(matches!(process.maps(), Err(TargetError::Gone { .. })));
        assert!(matches!(
            Process::open(process.pid()),
            Err(TargetError::Zombie { .. })
        ));
        process.signal(Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(matches!(
            Process::open(process.pid()),
            Err(TargetError::NoSuchProcess { .. })
        ));
    }

    #[test]
    fn children_that_were_waited_for_are_in_the_accounts_of_a_process_that_has_ended() {
        let check = |script: &str, expect: bool| {
            let mut child = std::process::Command::new("sh")
                .args(["-c", script])
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let process = Process::open(Pid(child.id())).unwrap();
            // The parent goes on while the program is being loaded.
            while process.accounts().unwrap().code_at == 0 {}
            assert_ne!(process.accounts().unwrap().code_at, 1);
            drop(child.stdin.take());
            let mut ended = [PollFd::new(&process.handle, PollFlags::IN)];
            poll(&mut ended, None).unwrap();
            assert_eq!(
                process.accounts().unwrap().has_had_children,
                expect,
                "{script}"
            );
            child.wait().unwrap();
            process.accounts().unwrap_err();
        };
        check("read line; true", false);
        check("read line; (exit 0)", true);
    }

    #[test]
    fn a_kernel_thread_and_a_thread_id_are_refused_by_name() {
        assert!(matches!(
            Process::open(Pid(u32::MAX)),
            Err(TargetError::NoSuchProcess { .. })
        ));
        assert!(matches!(
            Process::open(Pid(0)),
            Err(TargetError::NoSuchProcess { .. })
        ));
        let kthreadd = read_file(Pid(2), "comm").is_ok_and(|name| name == b"kthreadd\n");
        if kthreadd {
            assert!(matches!(
                Process::open(Pid(2)),
                Err(TargetError::KernelThread { .. })
            ));
        }
        let (send, receive) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send.send(rustix::thread::gettid().as_raw_nonzero().get())
                .unwrap();
            stopped.recv().unwrap_err();
        });
        let tid = receive.recv().unwrap().cast_unsigned();
        let error = Process::open(Pid(tid)).unwrap_err();
        assert!(
            matches!(error, TargetError::IsThread { pid, .. } if pid.0 == std::process::id()),
            "{error:?}"
        );
        drop(stop);
        thread.join().unwrap();
    }
}
