//! Fork, exec and exit of watched processes, by BPF; mappings of executable files, by perf's side band.
//!
//! Why not by BPF as well: the places where a mapping can be seen are `fentry`, LSM and kprobe programs, and kernels
//! forbid these (lockdown: the load answers EPERM) or are built without; a program on `sys_exit` would tax every system
//! call of the host. The side band is one dummy event a CPU: it costs nothing but one record for each *executable*
//! mapping, birth and end of a thread on the host, and its records carry the full path. Those of strangers are dropped here. One event a
//! thread would spare the strangers, but takes threads x CPUs descriptors and a switch of perf contexts each time a
//! watched thread is scheduled.
//!
//! The same records tell what descendants of the targets execute and map that are not watched: functions that run there
//! are seen by nobody, and must not look as if they never ran.

use std::io;
use std::sync::mpsc::Sender;

use aya::Btf;
use perf_event::data::{Mmap2, Record};
use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};
use scalpel_common::kernel::programs;

use super::error::KernelError;
use super::kin::Kin;
use super::lease::now;
use super::load::Kernel;
use super::tracepoint;
use super::watch::WatchedSet;
use crate::event::{Addr, Control, MonoTime, Pid, Tid};

/// Bytes of a CPU's ring: the birth and the end of a thread take some 64 each, and thousands may come between two passes.
const RING: usize = 1 << 20;

/// All rings together, on hosts with many CPUs.
const RINGS: usize = 32 << 20;

/// `PERF_RECORD_MISC_COMM_EXEC`: the new name is that of an executed program.
const COMM_EXEC: u16 = 1 << 13;

/// Least bytes of a CPU's ring: some 500 mappings.
const LEAST_RING: usize = 64 << 10;

/// Attaches the programs for fork, exec and exit.
pub(super) fn attach(kernel: &mut Kernel, types: &Btf) -> Result<(), KernelError> {
    tracepoint::attach(kernel, types, programs::PROCESS_FORK, "sched_process_fork")?;
    tracepoint::attach(kernel, types, programs::PROCESS_EXEC, "sched_process_exec")?;
    tracepoint::attach(kernel, types, programs::PROCESS_EXIT, "sched_process_exit")
}

/// Mappings of executable files in watched processes, as they are made.
///
/// The mappings of an exec come *before* its `Control::Exec`, which the kernel reports when they are all made: on an
/// exec the whole map is to be read anew anyhow.
pub struct Mappings {
    cpus: Vec<Sampler>,
    watched: WatchedSet,
    kin: Option<(Kin, Sender<Control>)>,
    /// Everything is told, of every process.
    tells_all: bool,
    lost: u64,
}

impl Mappings {
    /// Opens the side band on every online CPU.
    pub fn open(kernel: &Kernel) -> Result<Self, KernelError> {
        let cpus = aya::util::online_cpus().map_err(|(path, error)| KernelError::Host {
            path,
            source: error,
        })?;
        let bytes = ring_bytes(cpus.len());
        let cpus = cpus
            .into_iter()
            .map(|cpu| open_within(cpu as usize, bytes))
            .collect::<io::Result<_>>();
        let cpus = cpus.map_err(|source| KernelError::Perf {
            what: "side-band events",
            source,
        })?;
        Ok(Self {
            cpus,
            watched: kernel.watched_set()?,
            kin: None,
            tells_all: false,
            lost: 0,
        })
    }

    /// From now on tells the births, programs, mappings and ends of all processes of the host, in the place of mappings of
    /// watched ones.
    pub fn tell_all(&mut self) {
        self.tells_all = true;
    }

    /// From now on tells what the targets and all who descend from them do, watched or not. `members`: those who are there.
    pub fn tell_kin(&mut self, members: impl IntoIterator<Item = Pid>, to: Sender<Control>) {
        self.kin = Some((Kin::new(members), to));
    }

    /// Tells what has waited for the order to be certain. The last thing to do.
    pub(super) fn tell_the_rest(&mut self) {
        if let Some((kin, to)) = &mut self.kin {
            // Nobody listens: nobody wants to know.
            kin.rest().into_iter().all(|one| to.send(one).is_ok());
        }
    }

    /// What was mapped since the last call: by processes that are watched now, and by others.
    ///
    /// An "other" may be a watched process that has just ended: its `Control::Exit` was in the control ring before it
    /// left the set.
    pub(super) fn read(&mut self) -> (Vec<Control>, Vec<Control>) {
        let (mut watched, mut others, mut births) = (Vec::new(), Vec::new(), Vec::new());
        let before = MonoTime(now());
        for cpu in &mut self.cpus {
            while let Some(record) = cpu.next_record() {
                let time = time_of(&record.to_contiguous());
                let parsed = record.parse_record();
                if self.tells_all {
                    match &parsed {
                        Ok(Record::Lost(lost)) => self.lost += lost.lost,
                        Ok(other) => watched.extend(change(time, other, record.misc())),
                        Err(_) => {}
                    }
                    continue;
                }
                if self.kin.is_some()
                    && let Ok(parsed) = &parsed
                {
                    births.extend(change(time, parsed, record.misc()));
                }
                match parsed {
                    Ok(Record::Mmap2(map)) if is_file(&map.filename) => {
                        let is_watched = self.watched.contains(map.pid);
                        if let Some((kin, _)) = self.kin.as_mut().filter(|_| is_watched) {
                            kin.admit(Pid(map.pid));
                        }
                        let list = if is_watched {
                            &mut watched
                        } else {
                            &mut others
                        };
                        list.push(control(time, &map));
                    }
                    Ok(Record::Lost(lost)) => self.lost += lost.lost,
                    _ => {}
                }
            }
        }
        if let Some((kin, to)) = &mut self.kin {
            let told = kin.release(births, before);
            // Nobody listens: nobody wants to know.
            told.into_iter().all(|one| to.send(one).is_ok());
        }
        (watched, others)
    }

    /// Records that found no room, of watched processes or others: nobody can tell.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }
}

/// A power of two, within what all may take.
fn ring_bytes(cpus: usize) -> usize {
    let share = RINGS / cpus.max(1);
    let power = 1 << share.max(1).ilog2();
    power.clamp(LEAST_RING, RING)
}

/// Memory that perf may lock is limited for those without `CAP_IPC_LOCK`: then less.
fn open_within(cpu: usize, bytes: usize) -> io::Result<Sampler> {
    match open_on(cpu, bytes) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && bytes > LEAST_RING => {
            open_within(cpu, bytes / 2)
        }
        opened => opened,
    }
}

/// Executable mappings only, stamped by the clock of the events.
fn open_on(cpu: usize, bytes: usize) -> io::Result<Sampler> {
    let counter = Builder::new(Software::DUMMY)
        .any_pid()
        .one_cpu(cpu)
        .mmap(true)
        .mmap2(true)
        .comm(true)
        .sample(SampleFlag::TIME)
        .sample_id_all(true)
        .clockid(Clock::MONOTONIC)
        .wakeup_watermark(bytes / 4)
        .enabled(true)
        .build()?;
    counter.sampled(bytes)
}

/// The time stands at the end of every record (`sample_id_all`).
fn time_of(record: &[u8]) -> MonoTime {
    MonoTime(
        record
            .last_chunk()
            .map_or(0, |bytes| u64::from_ne_bytes(*bytes)),
    )
}

/// The kernel names mappings without a file `//anon`, `[vdso]`, `[stack]` and the like.
fn is_file(name: &[u8]) -> bool {
    name.starts_with(b"/") && !name.starts_with(b"//")
}

/// A birth, an end, a program or a mapping; threads have none but mappings.
fn change(time: MonoTime, record: &Record<'_>, misc: u16) -> Option<Control> {
    match record {
        Record::Fork(fork) if fork.pid == fork.tid => Some(Control::Fork {
            time,
            parent: Pid(fork.ppid),
            child: Pid(fork.pid),
            tid: Tid(fork.tid),
            name: String::new(),
        }),
        Record::Exit(exit) => Some(Control::Exit {
            time,
            pid: Pid(exit.pid),
            tid: Tid(exit.tid),
            process_ended: None,
        }),
        Record::Comm(comm) if misc & COMM_EXEC != 0 => Some(Control::Exec {
            time,
            pid: Pid(comm.pid),
            path: String::from_utf8_lossy(&comm.comm).into_owned(),
        }),
        Record::Mmap2(map) if is_file(&map.filename) => Some(control(time, map)),
        _ => None,
    }
}

fn control(time: MonoTime, map: &Mmap2<'_>) -> Control {
    // The name is padded with zeros.
    let name = map
        .filename
        .split(|&byte| byte == 0)
        .next()
        .unwrap_or_default();
    Control::Map {
        time,
        pid: Pid(map.pid),
        start: Addr(map.addr),
        end: Addr(map.addr.saturating_add(map.len)),
        offset: map.pgoff,
        path: String::from_utf8_lossy(name).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mappings_of_files_count() {
        for (name, expect) in [
            ("/usr/lib/libc.so.6", true),
            ("//anon", false),
            ("[vdso]", false),
            ("", false),
        ] {
            assert_eq!(is_file(name.as_bytes()), expect, "{name}");
        }
    }

    #[test]
    fn rings_are_powers_of_two_within_the_budget_of_all() {
        for (cpus, expect) in [
            (1, RING),
            (2, RING),
            (32, RING),
            (33, RING / 2),
            (4096, LEAST_RING),
        ] {
            assert_eq!(ring_bytes(cpus), expect, "{cpus}");
        }
        assert_eq!(ring_bytes(0), RING);
    }

    #[test]
    fn the_time_is_the_last_word_of_a_record() {
        assert_eq!(time_of(&[0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]), MonoTime(7));
        assert_eq!(time_of(&[1, 2]), MonoTime(0));
    }
}
