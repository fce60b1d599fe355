//! The loss counters, read from the maps.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use aya::maps::{Map, MapData, PerCpuArray};
use memmap2::{MmapOptions, MmapRaw};
use scalpel_common::kernel::{LOSS_CLASSES, LossClass, maps};

use super::error::KernelError;
use super::load::Kernel;
use crate::event::FuncId;
use crate::input::Loss;

/// By their numbers; what the kernel counts itself (recursion) stands in between.
const CLASSES: [LossClass; 9] = [
    LossClass::Enter,
    LossClass::Exit,
    LossClass::Sample,
    LossClass::Control,
    LossClass::ThreadState,
    LossClass::ReturnRefused,
    LossClass::CountCell,
    LossClass::CountHistogram,
    LossClass::Wait,
];

/// The counters, and what they were when they were last told.
pub(super) struct LossCounters {
    by_cpu: PerCpuArray<MapData, [u64; LOSS_CLASSES]>,
    by_function: MmapRaw,
    functions: usize,
    told: Vec<Loss>,
}

impl LossCounters {
    /// Takes the counters of `kernel`.
    pub(super) fn map(kernel: &mut Kernel) -> Result<Self, KernelError> {
        let by_cpu = kernel.take_map(maps::LOSSES)?;
        let by_cpu = PerCpuArray::try_from(by_cpu).map_err(|error| refused(maps::LOSSES, error))?;
        let functions = kernel.settings.get().functions as usize;
        let Map::Array(data) = kernel.take_map(maps::FUNCTION_LOSSES)? else {
            return Err(KernelError::Missing {
                what: "map",
                name: maps::FUNCTION_LOSSES.into(),
            });
        };
        let by_function = MmapOptions::new()
            .len(2 * functions * size_of::<u64>())
            .map_raw_read_only(&data.fd().as_fd());
        let by_function = by_function.map_err(|error| refused(maps::FUNCTION_LOSSES, error))?;
        Ok(Self {
            by_cpu,
            by_function,
            functions,
            told: Vec::new(),
        })
    }

    /// All counters that are not 0, if any has changed since the last time. `side_band` control records were lost
    /// outside of BPF.
    pub(super) fn changed(&mut self, side_band: u64) -> Option<Vec<Loss>> {
        let mut losses = self.of_cpus();
        if side_band > 0 {
            losses.push(Loss {
                class: LossClass::Control,
                cpu: None,
                func: None,
                count: side_band,
            });
        }
        if !losses.is_empty() {
            losses.extend(self.of_functions());
        }
        (losses != self.told).then(|| {
            self.told.clone_from(&losses);
            losses
        })
    }

    fn of_cpus(&self) -> Vec<Loss> {
        let Ok(values) = self.by_cpu.get(&0, 0) else {
            return Vec::new();
        };
        let cpus = (0u32..).zip(values.iter());
        let counters = cpus.flat_map(|(cpu, counts)| {
            CLASSES
                .iter()
                .filter_map(move |class| Some((cpu, (class, counts.get(*class as usize)?))))
        });
        counters
            .filter(|&(_, (_, &count))| count > 0)
            .map(|(cpu, (&class, &count))| Loss {
                class,
                cpu: Some(cpu),
                func: None,
                count,
            })
            .collect()
    }

    fn of_functions(&self) -> impl Iterator<Item = Loss> {
        let stripes = [(0, LossClass::Enter), (self.functions, LossClass::Exit)];
        stripes.into_iter().flat_map(move |(stripe, class)| {
            (1..self.functions).filter_map(move |id| {
                let count = self.of_function(stripe + id);
                let func = FuncId::new(id as u32).filter(|_| count > 0)?;
                Some(Loss {
                    class,
                    cpu: None,
                    func: Some(func),
                    count,
                })
            })
        })
    }

    fn of_function(&self, slot: usize) -> u64 {
        debug_assert!(slot < 2 * self.functions);
        // SAFETY: `slot` is below the number of counters in the mapping.
        let counter = unsafe { self.by_function.as_ptr().cast::<AtomicU64>().add(slot) };
        // SAFETY: page-aligned, alive as long as `self`, written atomically by the kernel.
        unsafe { &*counter }.load(Ordering::Relaxed)
    }
}

fn refused(
    name: &'static str,
    error: impl std::error::Error + Send + Sync + 'static,
) -> KernelError {
    KernelError::Map {
        name,
        source: Box::new(error),
    }
}
