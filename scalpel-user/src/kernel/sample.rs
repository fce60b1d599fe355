//! Sampling: one perf event a CPU, whose BPF program keeps the stacks of watched processes.
//!
//! A CPU and not a thread has the event: threads born later need nothing, no descriptors grow with threads, and
//! switching to and from a watched thread stays as cheap as it was. The price is one interrupt per CPU and period that
//! finds a stranger and returns: at 99 Hz about a hundredth of a percent.

use std::io;
use std::os::fd::AsRawFd;

use aya::programs::PerfEvent;
use perf_event::events::{Hardware, Software};
use perf_event::{Builder, Counter};
use scalpel_common::kernel::programs;

use super::error::KernelError;
use super::load::Kernel;
use super::tracepoint::refused;

/// What drives the samples, and so what a sample's period (`Event::value`) counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleClock {
    /// Processor cycles, by the PMU. The period is in cycles and varies: the kernel adjusts it to the frequency.
    Cycles,
    /// A timer, where the host (a virtual machine, as a rule) shows no PMU. The period is in ns. It cannot interrupt
    /// the kernel where that has interrupts off.
    CpuClock,
}

/// The sampler. Dropping it ends the sampling.
#[derive(Debug)]
pub struct Sampler {
    clock: SampleClock,
    counters: Vec<Counter>,
}

impl Sampler {
    /// Samples all watched processes `frequency` times per second of CPU time.
    pub fn start(kernel: &mut Kernel, frequency: u32) -> Result<Self, KernelError> {
        let program = load(kernel)?;
        let cpus = aya::util::online_cpus()
            .map_err(|(path, source)| KernelError::Host { path, source })?;
        let (clock, mut counters) = open(&cpus, frequency)?;
        for counter in &mut counters {
            counter
                .set_bpf(program)
                .map_err(|source| KernelError::Perf {
                    what: "the sampling program",
                    source,
                })?;
            counter.enable().map_err(|source| KernelError::Perf {
                what: "sampling events",
                source,
            })?;
        }
        Ok(Self { clock, counters })
    }

    /// What drives the samples.
    pub const fn clock(&self) -> SampleClock {
        self.clock
    }

    /// Number of CPUs that are sampled.
    pub const fn cpus(&self) -> usize {
        self.counters.len()
    }
}

/// Loads the program; returns its descriptor, which `kernel` keeps open.
fn load(kernel: &mut Kernel) -> Result<i32, KernelError> {
    let missing = || KernelError::Missing {
        what: "program",
        name: programs::SAMPLE.into(),
    };
    let program = kernel
        .ebpf
        .program_mut(programs::SAMPLE)
        .ok_or_else(missing)?;
    let program: &mut PerfEvent = program.try_into().map_err(|_other_kind| missing())?;
    if program.fd().is_err() {
        program
            .load()
            .map_err(|error| refused("load", programs::SAMPLE, error))?;
    }
    let descriptor = program
        .fd()
        .map_err(|error| refused("load", programs::SAMPLE, error))?;
    Ok(std::os::fd::AsFd::as_fd(descriptor).as_raw_fd())
}

/// One event a CPU: cycles if there is a PMU, else the timer.
fn open(cpus: &[u32], frequency: u32) -> Result<(SampleClock, Vec<Counter>), KernelError> {
    let with = |clock| {
        cpus.iter()
            .map(move |&cpu| open_on(clock, cpu as usize, frequency))
            .collect::<io::Result<_>>()
    };
    match with(SampleClock::Cycles) {
        Ok(counters) => Ok((SampleClock::Cycles, counters)),
        Err(error) if has_no_pmu(&error) => {
            let counters = with(SampleClock::CpuClock);
            let counters = counters.map_err(|source| KernelError::Perf {
                what: "sampling events",
                source,
            })?;
            Ok((SampleClock::CpuClock, counters))
        }
        Err(source) => Err(KernelError::Perf {
            what: "sampling events",
            source,
        }),
    }
}

/// How the kernel says that it has no such counter; anything else (permission) would fail for the timer as well.
fn has_no_pmu(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::EINVAL)
    )
}

fn open_on(clock: SampleClock, cpu: usize, frequency: u32) -> io::Result<Counter> {
    let mut builder = match clock {
        SampleClock::Cycles => Builder::new(Hardware::CPU_CYCLES),
        SampleClock::CpuClock => Builder::new(Software::CPU_CLOCK),
    };
    // No `exclude_idle`: the timer refuses it, and an idle CPU's task is a stranger anyhow.
    builder
        .any_pid()
        .one_cpu(cpu)
        .include_kernel()
        .sample_frequency(u64::from(frequency))
        .enabled(false)
        .build()
}
