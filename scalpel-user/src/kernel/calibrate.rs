//! What a probed call costs on this host: measured on functions of the collector's own, never on the target's.
//!
//! The probes run the real programs, in an instance of the object of their own, so that no recording sees them.

use std::arch::naked_asm;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use procfs::process::{MMPermissions, Process};
use scalpel_common::kernel::settings_flags;

use super::attach::{AttachOptions, Attachments, ProbedFile, SiteRequest};
use super::calls::Family;
use super::error::KernelError;
use super::load::{Kernel, LoadOptions, Mechanism};
use crate::event::{FuncId, MonoTime, Pid};
use crate::function::ExitStrategy;

/// Cost of the probes of one call in ns: in a hot loop, and with cold caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// In a hot loop.
    pub hot_ns: u64,
    /// After 4 MiB of other memory were touched.
    pub cold_ns: u64,
}

/// Costs of the kinds of probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeCosts {
    /// Entry at an instruction that the kernel emulates.
    pub entry: Cost,
    /// Entry and return at such an instruction.
    pub entry_and_return: Cost,
    /// Entry at an instruction that is single-stepped.
    pub stepped: Cost,
}

impl Default for ProbeCosts {
    /// What was measured in a VM (AMD Zen 5, Linux 6.18): used until this host is measured.
    fn default() -> Self {
        Self {
            entry: Cost {
                hot_ns: 700,
                cold_ns: 2_000,
            },
            entry_and_return: Cost {
                hot_ns: 1_200,
                cold_ns: 3_500,
            },
            stepped: Cost {
                hot_ns: 10_000,
                cold_ns: 12_000,
            },
        }
    }
}

impl ProbeCosts {
    /// What one probed call is judged by, in ns: its cost with cold caches. A hot loop is what a program at work is not, and
    /// its figure would let it be slowed down by a multiple of what was allowed.
    pub const fn of_call(&self, stepped: bool, returns: bool, rets: bool) -> u64 {
        self.interval_of_call(stepped, returns, rets).1
    }

    /// Cost of one probed call in ns: in a hot loop, and with cold caches.
    pub const fn interval_of_call(&self, stepped: bool, returns: bool, rets: bool) -> (u64, u64) {
        let (entry, pair, step) = (self.entry, self.entry_and_return, self.stepped);
        let hot = call_ns(
            (entry.hot_ns, pair.hot_ns, step.hot_ns),
            stepped,
            returns,
            rets,
        );
        let cold = call_ns(
            (entry.cold_ns, pair.cold_ns, step.cold_ns),
            stepped,
            returns,
            rets,
        );
        (hot, cold)
    }

    /// Lowest and highest cost of a probed call at a cheap site, in ns: the interval that reports show.
    pub fn interval_ns(&self) -> (u64, u64) {
        let pair = self.entry_and_return;
        (
            self.entry.hot_ns.min(pair.hot_ns),
            self.entry.cold_ns.max(pair.cold_ns),
        )
    }
}

/// Of (entry, entry and return, single-stepped).
const fn call_ns(
    (entry, pair, step): (u64, u64, u64),
    stepped: bool,
    returns: bool,
    rets: bool,
) -> u64 {
    let base = if stepped { step } else { entry };
    let returning = if returns {
        pair.saturating_sub(entry)
    } else {
        0
    };
    base + returning + if rets { step } else { 0 }
}

type Probed = unsafe extern "C" fn();

/// Begins with an instruction that the kernel emulates.
#[unsafe(naked)]
unsafe extern "C" fn emulated() {
    naked_asm!("push rbp", "pop rbp", "ret")
}

/// The same, for entry and return. Not byte for byte: identical functions may be merged.
#[unsafe(naked)]
unsafe extern "C" fn returning() {
    naked_asm!("push rbp", "nop", "pop rbp", "ret")
}

/// Begins with an instruction that the kernel single-steps.
#[unsafe(naked)]
unsafe extern "C" fn single_stepped() {
    naked_asm!("lea rax, [rsp]", "ret")
}

/// Function, whether it is single-stepped, and how its end is seen.
const SUBJECTS: [(Probed, bool, ExitStrategy); 3] = [
    (emulated, false, ExitStrategy::EntryOnly),
    (single_stepped, true, ExitStrategy::EntryOnly),
    (returning, false, ExitStrategy::Return),
];

/// Calls of one hot run, runs, and cold calls. Runs are short, so that on a busy machine the best of them was not
/// preempted, and calls few enough for all records to find room in the ring.
const HOT_CALLS: u32 = 50;
const HOT_RUNS: u32 = 50;
const COLD_CALLS: u32 = 31;

/// Measures the costs of programs of `family`: about 0.3 s, most of it loading and detaching. What an end adds is measured
/// only if `ends` are to be watched, which is asked when it comes to it: its program takes the longest to load.
pub fn measure(
    mechanism: Mechanism,
    family: Family,
    ends: impl FnOnce() -> bool,
) -> Result<ProbeCosts, KernelError> {
    let bare = SUBJECTS.map(|(subject, _, _)| time(subject));
    let options = LoadOptions {
        call_ring_bytes: 8 << 20,
        functions: SUBJECTS.len() as u32,
        flags: settings_flags::ALL_PROCESSES,
        lease_until: MonoTime(u64::MAX),
        family,
        count_cells: 64,
        count_histograms: 16,
        ..LoadOptions::new(mechanism)
    };
    let kernel = Kernel::load(&options)?;
    let mut attachments = Attachments::new(&kernel, AttachOptions::default());
    let requests = requests()?;
    let mut cost_of = |index: usize| {
        let missing = || unmeasured("no function to measure");
        let request = requests.get(index).ok_or_else(missing)?;
        let &(subject, ..) = SUBJECTS.get(index).ok_or_else(missing)?;
        let report = attachments.attach(std::slice::from_ref(request), &mut |_| {})?;
        if let Some((_, reason)) = report.refused.first() {
            return Err(KernelError::Calibration(reason.clone()));
        }
        let probed = time(subject);
        check_hits(&kernel, request.func)?;
        Ok(difference(Some(&probed), bare.get(index)))
    };
    let (entry, stepped) = (cost_of(0)?, cost_of(1)?);
    let entry_and_return = if ends() { cost_of(2)? } else { entry };
    Ok(ProbeCosts {
        entry,
        entry_and_return,
        stepped,
    })
}

fn requests() -> Result<Vec<SiteRequest>, KernelError> {
    let file = ProbedFile::open("/proc/self/exe").map_err(unmeasured)?;
    let file = Arc::new(file);
    let request = |(id, (subject, stepped, exit)): (u32, (Probed, bool, ExitStrategy))| {
        Ok(SiteRequest {
            func: FuncId::new(id).ok_or_else(|| unmeasured("no function id"))?,
            file: Arc::clone(&file),
            offset: file_offset(subject as usize as u64)?,
            stepped,
            exit,
            ret_offsets: Vec::new(),
            heat: 0,
            pid_filter: Some(Pid(std::process::id())),
        })
    };
    (1..).zip(SUBJECTS).map(request).collect()
}

/// File offset of an address of this program's text.
fn file_offset(address: u64) -> Result<u64, KernelError> {
    let maps = Process::myself()
        .and_then(|process| process.maps())
        .map_err(unmeasured)?;
    let holds = |start: u64, end: u64| (start..end).contains(&address);
    maps.into_iter()
        .find(|map| {
            holds(map.address.0, map.address.1) && map.perms.contains(MMPermissions::EXECUTE)
        })
        .map(|map| address - map.address.0 + map.offset)
        .ok_or_else(|| unmeasured("the collector's own text is not in its maps"))
}

/// The figures say nothing if the program did not run: every call must have been counted.
fn check_hits(kernel: &Kernel, func: FuncId) -> Result<(), KernelError> {
    let made = u64::from(HOT_CALLS * HOT_RUNS + COLD_CALLS);
    let seen = kernel.hits_of(func);
    if seen == made {
        Ok(())
    } else {
        Err(unmeasured(format!(
            "{seen} of {made} calls ran their probe"
        )))
    }
}

/// Cost of a call with whatever is attached to it now.
fn time(subject: Probed) -> Cost {
    Cost {
        hot_ns: (0..HOT_RUNS).map(|_| hot_run(subject)).min().unwrap_or(0),
        cold_ns: cold_call(subject),
    }
}

fn hot_run(subject: Probed) -> u64 {
    let start = Instant::now();
    for _ in 0..HOT_CALLS {
        call(subject);
    }
    start.elapsed().as_nanos() as u64 / u64::from(HOT_CALLS)
}

/// Median of single calls, each after the caches were filled with something else.
fn cold_call(subject: Probed) -> u64 {
    const SWEEP_BYTES: usize = 4 << 20;
    const LINE: usize = 64;
    let mut memory = vec![0u8; SWEEP_BYTES];
    let mut times: Vec<u64> = (0..COLD_CALLS)
        .map(|_| {
            for byte in memory.iter_mut().step_by(LINE) {
                *byte = black_box(byte.wrapping_add(1));
            }
            let start = Instant::now();
            call(subject);
            start.elapsed().as_nanos() as u64
        })
        .collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
}

fn call(subject: Probed) {
    // SAFETY: the subjects take nothing, keep to the C ABI and leave the stack as they found it.
    unsafe { subject() }
}

fn difference(probed: Option<&Cost>, bare: Option<&Cost>) -> Cost {
    let of = |field: fn(&Cost) -> u64| {
        probed
            .map_or(0, field)
            .saturating_sub(bare.map_or(0, field))
    };
    Cost {
        hot_ns: of(|cost| cost.hot_ns),
        cold_ns: of(|cost| cost.cold_ns),
    }
}

fn unmeasured(reason: impl std::fmt::Display) -> KernelError {
    KernelError::Calibration(reason.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_costs_its_entry_and_what_its_exit_adds() {
        let costs = ProbeCosts::default();
        assert_eq!(costs.interval_of_call(false, false, false), (700, 2_000));
        assert_eq!(costs.interval_of_call(false, true, false), (1_200, 3_500));
        assert_eq!(costs.interval_of_call(true, true, false), (10_500, 13_500));
        assert_eq!(costs.interval_of_call(true, false, true), (20_000, 24_000));
    }

    #[test]
    fn an_address_of_this_programs_text_has_a_file_offset() {
        let address = emulated as *const () as u64;
        let offset = file_offset(address).unwrap() as usize;
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(bytes.get(offset..offset + 3), Some(&[0x55, 0x5d, 0xc3][..]));
    }
}
