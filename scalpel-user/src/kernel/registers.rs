//! Where the threads of a process are, without stopping them: registers of sleeping threads by a BPF iterator, and
//! registers with a copy of the stack of running ones by a perf event.
//!
//! No ptrace: a stop ends a system call early, and what it returns then is not what the program expects of it.

use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use aya::programs::{Iter, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader};
use perf_event::data::{Record, SampleRegsAbi};
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag};
use scalpel_common::kernel::{LISTED_PROCESS, ThreadRegisters, maps, programs};

use super::btf::KernelTypes;
use super::error::KernelError;
use super::load::refused_maps;
use super::object::OBJECT;
use super::{diagnostics, tracepoint};
use crate::event::{Pid, Tid};

/// `PERF_REG_X86_BP`, `_SP` and `_IP`: a sample has their values in the order of these numbers.
const REGISTERS: [u32; 3] = [6, 7, 8];

/// Bytes of stack in a sample: the most that a perf record holds, less its other fields.
const STACK_BYTES: u32 = 63 << 10;

/// The sample's ring: one record fits, and the next one, which may come before the event is switched off.
const SAMPLE_RING: usize = 256 << 10;

/// Time on a processor after which a running thread is sampled, in ns.
const SAMPLE_AFTER_NS: u64 = 100_000;

/// The registers of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// `rbp`.
    pub bp: u64,
}

/// One thread in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The thread.
    pub tid: Tid,
    /// Where it goes on in user mode; of no use while it runs.
    pub registers: Registers,
    /// It runs, or could.
    pub running: bool,
    /// The system call it is in; `None` = an interrupt or exception brought it into the kernel.
    pub syscall: Option<u32>,
    /// How often it has left the processor: the same twice, and it has not run in between.
    pub switches: u64,
}

/// Lists the threads of one process. Dropping it unloads the program.
pub struct ThreadLister {
    ebpf: Ebpf,
}

impl ThreadLister {
    /// Loads the iterator; nothing of the object's other programs or rings is in use.
    pub fn load(pid: Pid) -> Result<Self, KernelError> {
        const LEAST: u32 = 4096;
        let globals = KernelTypes::of_this_kernel()?.globals()?;
        let mut loader = EbpfLoader::new();
        loader
            .allow_unsupported_maps()
            .map_max_entries(maps::HITS, 1)
            .map_max_entries(maps::FUNCTION_LOSSES, 1)
            .map_max_entries(maps::SAMPLE_RING, LEAST)
            .map_max_entries(maps::CONTROL_RING, LEAST);
        for (name, value) in &globals {
            loader.override_global(name, value, true);
        }
        let (level, listed) = (diagnostics::level(false), u64::from(pid.0));
        loader
            .override_global(diagnostics::LEVEL, &level, true)
            .override_global(LISTED_PROCESS, &listed, true);
        let mut lister = Self {
            ebpf: loader.load(OBJECT).map_err(refused_maps)?,
        };
        let types = tracepoint::kernel_types()?;
        lister
            .program()?
            .load("task", &types as &Btf)
            .map_err(|error| refused("load", error))?;
        Ok(lister)
    }

    /// All its threads, as they are now, in order of id.
    pub fn list(&mut self) -> Result<Vec<Listed>, KernelError> {
        let program = self.program()?;
        let link = program.attach().map_err(|error| refused("attach", error))?;
        let link = program
            .take_link(link)
            .map_err(|error| refused("attach", error))?;
        let failed = |source| KernelError::Perf {
            what: "the list of threads",
            source,
        };
        let file = link
            .into_file()
            .map_err(|error| failed(io::Error::other(error)))?;
        let mut listed = records(file).map_err(failed)?;
        listed.sort_by_key(|thread| thread.tid);
        Ok(listed)
    }

    fn program(&mut self) -> Result<&mut Iter, KernelError> {
        let missing = || KernelError::Missing {
            what: "program",
            name: programs::THREAD_REGISTERS.into(),
        };
        let program = self
            .ebpf
            .program_mut(programs::THREAD_REGISTERS)
            .ok_or_else(missing)?;
        program.try_into().map_err(|_other_kind| missing())
    }
}

fn refused(action: &'static str, error: ProgramError) -> KernelError {
    tracepoint::refused(action, programs::THREAD_REGISTERS, error)
}

fn records(mut file: File) -> io::Result<Vec<Listed>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let (whole, _cut) = bytes.as_chunks::<{ size_of::<ThreadRegisters>() }>();
    Ok(whole.iter().map(record).collect())
}

/// Byte positions as `ThreadRegisters` has them.
fn record(bytes: &[u8; size_of::<ThreadRegisters>()]) -> Listed {
    let u32_at = |at: usize| {
        let field = bytes
            .get(at..at + 4)
            .and_then(|field| field.try_into().ok());
        u32::from_ne_bytes(field.unwrap_or_default())
    };
    let u64_at = |at: usize| {
        let field = bytes
            .get(at..at + 8)
            .and_then(|field| field.try_into().ok());
        u64::from_ne_bytes(field.unwrap_or_default())
    };
    use std::mem::offset_of;
    Listed {
        tid: Tid(u32_at(offset_of!(ThreadRegisters, tid))),
        registers: Registers {
            ip: u64_at(offset_of!(ThreadRegisters, ip)),
            sp: u64_at(offset_of!(ThreadRegisters, sp)),
            bp: u64_at(offset_of!(ThreadRegisters, bp)),
        },
        running: u32_at(offset_of!(ThreadRegisters, state)) == 0,
        syscall: u32::try_from(u64_at(offset_of!(ThreadRegisters, syscall)).cast_signed()).ok(),
        switches: u64_at(offset_of!(ThreadRegisters, switches)),
    }
}

/// Registers and stack of a thread at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caught {
    /// Its registers.
    pub registers: Registers,
    /// Bytes from its stack pointer on.
    pub stack: Vec<u8>,
}

/// Waits until a running thread has been on a processor for a moment, and catches it there. `None` = it did not run
/// within `patience`, or runs in a mode whose registers are not told (32 bits).
pub fn catch_running(tid: Tid, patience: Duration) -> Result<Option<Caught>, KernelError> {
    let failed = |source| KernelError::Perf {
        what: "a sample of a running thread",
        source,
    };
    let mask = REGISTERS
        .iter()
        .fold(0, |mask, number| mask | 1u64 << number);
    let counter = Builder::new(Software::CPU_CLOCK)
        .observe_pid(tid.0.cast_signed())
        .any_cpu()
        // Without the kernel's half a thread in a system call would not be told; its user registers are.
        .include_kernel()
        .sample_period(SAMPLE_AFTER_NS)
        .sample(SampleFlag::REGS_USER)
        .sample(SampleFlag::STACK_USER)
        .sample_regs_user(mask)
        .sample_stack_user(STACK_BYTES)
        .wakeup_events(1)
        .enabled(true)
        .build();
    let mut sampler = match counter.and_then(|counter| counter.sampled(SAMPLE_RING)) {
        Ok(sampler) => sampler,
        // It has ended.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let until = Instant::now() + patience;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        let Some(record) = sampler.next_blocking(Some(left)) else {
            return Ok(None);
        };
        if let Ok(Record::Sample(sample)) = record.parse_record()
            && let Some(registers) = sample.regs_user()
            && registers.abi == SampleRegsAbi::ABI_64
            && let &[bp, sp, ip] = &*registers.regs
        {
            let stack = sample.stack_user().unwrap_or_default().to_vec();
            let registers = Registers { ip, sp, bp };
            return Ok(Some(Caught { registers, stack }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_by_its_layout() {
        let told = ThreadRegisters {
            tid: 7,
            state: 1,
            ip: 2,
            sp: 3,
            bp: 4,
            syscall: -1,
            switches: 6,
        };
        let mut bytes = [0u8; size_of::<ThreadRegisters>()];
        for (at, value) in [
            (0, 7u64 | 1 << 32),
            (8, 2),
            (16, 3),
            (24, 4),
            (32, u64::MAX),
            (40, 6),
        ] {
            bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        let expect = Listed {
            tid: Tid(told.tid),
            registers: Registers {
                ip: told.ip,
                sp: told.sp,
                bp: told.bp,
            },
            running: false,
            syscall: None,
            switches: told.switches,
        };
        assert_eq!(record(&bytes), expect);
    }
}
