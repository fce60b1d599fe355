//! Catches each thread of a process at one moment of its own.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use anyhow::Context;
use rustc_hash::FxHashMap;

use crate::event::Tid;
use crate::kernel::registers::{Caught, Listed, Registers, ThreadLister, catch_running};
use crate::target::Process;
use crate::unwind::{At, Walk};

use super::code::Code;

/// How often a thread is tried that ran while its stack was read.
const ROUNDS: usize = 5;

/// How long a running thread may stay off its processor before it counts as waiting for one.
const PATIENCE: Duration = Duration::from_millis(20);

/// Memory is read in pages.
const PAGE: u64 = 4096;

/// A thread, and its frames or why they are not known.
pub(super) struct Found {
    pub(super) tid: Tid,
    pub(super) syscall: Option<String>,
    pub(super) walk: Result<Walk, String>,
}

/// The frames of one thread.
enum Tried {
    /// From a copy that was taken in one moment.
    Copied(Walk),
    /// From its memory: right if it has not run meanwhile.
    Read(Walk),
}

/// Reads registers and stacks of one process.
pub(super) struct Catcher {
    lister: ThreadLister,
    code: Code,
    memory: File,
}

impl Catcher {
    /// Opens the process's memory, for reading.
    pub(super) fn new(process: &Process, lister: ThreadLister, code: Code) -> anyhow::Result<Self> {
        let memory = File::open(process.proc_path("mem")).with_context(|| {
            format!(
                "cannot read the memory of pid {}: it takes root, or CAP_SYS_PTRACE",
                process.pid()
            )
        })?;
        Ok(Self {
            lister,
            code,
            memory,
        })
    }

    /// All threads, or one.
    pub(super) fn all(&mut self, only: Option<Tid>) -> anyhow::Result<Vec<Found>> {
        let mut found: FxHashMap<Tid, Found> = FxHashMap::default();
        for round in 0..ROUNDS {
            let before = self.list(only)?;
            let missing = |thread: &Listed| {
                let known = found.get(&thread.tid);
                known.is_none_or(|known| known.walk.is_err())
            };
            let tried: Vec<(Listed, Tried)> = before
                .into_iter()
                .filter(missing)
                .map(|thread| Ok((thread, self.try_one(&thread, round > 0)?)))
                .collect::<anyhow::Result<_>>()?;
            if tried.is_empty() {
                break;
            }
            let after: FxHashMap<Tid, Listed> = self
                .list(only)?
                .into_iter()
                .map(|thread| (thread.tid, thread))
                .collect();
            for (thread, tried) in tried {
                let stayed = after.get(&thread.tid).is_some_and(|now| {
                    (now.switches, now.registers) == (thread.switches, thread.registers)
                });
                let walk = match tried {
                    Tried::Copied(walk) => Ok(walk),
                    Tried::Read(walk) if stayed => Ok(walk),
                    Tried::Read(_) => Err("it ran while its stack was read, each time".to_owned()),
                };
                let syscall = thread.syscall.filter(|_| !thread.running).map(syscall_name);
                let tid = thread.tid;
                found.insert(tid, Found { tid, syscall, walk });
            }
        }
        let mut found: Vec<Found> = found.into_values().collect();
        found.sort_by_key(|thread| thread.tid);
        Ok(found)
    }

    fn list(&mut self, only: Option<Tid>) -> anyhow::Result<Vec<Listed>> {
        let mut listed = self.lister.list()?;
        listed.retain(|thread| only.is_none_or(|tid| tid == thread.tid));
        Ok(listed)
    }

    /// `restless`: it did not stand still the last time, so that it will be caught on its next turn on a processor.
    fn try_one(&mut self, thread: &Listed, restless: bool) -> anyhow::Result<Tried> {
        if (thread.running || restless)
            && let Some(caught) = catch_running(thread.tid, PATIENCE)?
        {
            return Ok(Tried::Copied(self.walk(caught.registers, Some(&caught))));
        }
        // It sleeps, or waits for a processor.
        Ok(Tried::Read(self.walk(thread.registers, None)))
    }

    /// From a copy of the stack, else from the memory of a thread that sleeps.
    fn walk(&mut self, registers: Registers, copy: Option<&Caught>) -> Walk {
        let Registers { ip, sp, bp } = registers;
        let mut pages = Pages::of(&self.memory);
        let mut read = |address: u64| match copy {
            Some(caught) => from_copy(caught, address),
            None => pages.u64(address),
        };
        self.code.unwinder.walk(At { ip, sp, bp }, &mut read)
    }

    /// The process's code, when all threads are caught.
    pub(super) fn into_code(self) -> Code {
        self.code
    }
}

fn from_copy(caught: &Caught, address: u64) -> Option<u64> {
    let at = usize::try_from(address.checked_sub(caught.registers.sp)?).ok()?;
    let bytes = caught.stack.get(at..at.checked_add(8)?)?;
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

fn syscall_name(number: u32) -> String {
    syscalls::Sysno::new(number as usize).map_or_else(
        || format!("system call {number}"),
        |known| known.name().to_owned(),
    )
}

/// Memory of a process, read by pages and kept while one stack is walked.
struct Pages<'a> {
    memory: &'a File,
    read: FxHashMap<u64, Option<Vec<u8>>>,
}

impl<'a> Pages<'a> {
    fn of(memory: &'a File) -> Self {
        Self {
            memory,
            read: FxHashMap::default(),
        }
    }

    fn u64(&mut self, address: u64) -> Option<u64> {
        let (page, at) = (address & !(PAGE - 1), (address % PAGE) as usize);
        if at as u64 > PAGE - 8 {
            // Over the edge of a page: no stack that is aligned has such a slot.
            return None;
        }
        let memory = self.memory;
        let bytes = self.read.entry(page).or_insert_with(|| {
            let mut bytes = vec![0; PAGE as usize];
            memory.read_exact_at(&mut bytes, page).ok().map(|()| bytes)
        });
        let bytes = bytes.as_ref()?.get(at..at + 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }
}
