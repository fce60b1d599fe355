//! Loads the BPF object: maps and kernel-side programs by aya, call programs by `calls`.
//!
//! Must not know what is attached where, nor how rings are drained.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use aya::maps::{ArrayOfMaps, Map, MapData, MapError};
use aya::{Ebpf, EbpfLoader};
use aya_obj::generated::bpf_map_type;
use caps::Capability;
use scalpel_common::count::COUNT_STRIPES;
use scalpel_common::kernel::{CALL_RINGS, KERNEL_ABI_VERSION, MAX_FUNCTIONS, Settings, maps};

use super::btf::KernelTypes;
use super::calls::{CallPrograms, Family};
use super::error::{Hint, KernelError};
use super::hits::Hits;
use super::lease::Lease;
use super::marks::CountMarks;
use super::object::OBJECT;
use super::settings::{SettingsSlot, jiffy_ns};
use super::{diagnostics, process, sched, sys, tracepoint};
use crate::event::{FuncId, MonoTime};

/// How call programs are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// `uprobe session`: entry and return in one program, guarded (Linux 6.13).
    Session,
    /// `uprobe_multi`: entry and return are separate links (Linux 6.6; its pid filter is trusted from 6.10).
    Multi,
    /// One perf event per probe: any kernel with attach cookies (Linux 5.15). Bounded in number.
    Perf,
}

/// What to load and with how much memory.
#[derive(Clone, Debug)]
pub struct LoadOptions<'a> {
    /// The object file.
    pub object: &'a [u8],
    /// How call programs will be attached.
    pub mechanism: Mechanism,
    /// Memory of all call rings together, in bytes. Rings are powers of two: up to half of it may stay unused.
    pub call_ring_bytes: u64,
    /// Memory of the sample ring in bytes.
    pub sample_ring_bytes: u32,
    /// Memory of the control ring in bytes.
    pub control_ring_bytes: u32,
    /// Highest function id that will be attached.
    pub functions: u32,
    /// Bits of `settings_flags`.
    pub flags: u32,
    /// End of the first lease; 0 = none yet, [`Kernel::lease`] takes it.
    pub lease_until: MonoTime,
    /// What the programs do at a probe.
    pub family: Family,
    /// Cells for call edges, over all stripes, a power of two: 88 bytes each. A hash table: full at about three quarters.
    pub count_cells: u32,
    /// Most histograms, over all stripes: 4 KiB each.
    pub count_histograms: u32,
    /// Whether the programs tell what they refuse ([`Kernel::diagnostics`]). Where not, that code is not even loaded.
    pub diagnostics: bool,
}

impl LoadOptions<'static> {
    /// The object that is built in, with sizes that suit a recording of one busy process: 64 MiB for calls, 4 MiB
    /// for samples, 1 MiB for control.
    pub const fn new(mechanism: Mechanism) -> Self {
        Self {
            object: OBJECT,
            mechanism,
            call_ring_bytes: 64 << 20,
            sample_ring_bytes: 4 << 20,
            control_ring_bytes: 4 << 20,
            functions: MAX_FUNCTIONS - 1,
            flags: 0,
            lease_until: MonoTime(0),
            family: Family::Events,
            count_cells: 1 << 17,
            count_histograms: 1 << 12,
            diagnostics: false,
        }
    }
}

/// What the kernel counted about one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramStats {
    /// Name.
    pub name: String,
    /// How often it was not run because it ran already on that processor: lost events.
    pub recursion_misses: u64,
    /// How often it ran; 0 unless `kernel.bpf_stats_enabled` is set.
    pub runs: u64,
    /// Time in it in ns; 0 unless `kernel.bpf_stats_enabled` is set.
    pub run_time_ns: u64,
}

/// The loaded object. Dropping it removes programs and maps, as soon as nothing is attached any more.
pub struct Kernel {
    pub(super) ebpf: Ebpf,
    pub(super) calls: Arc<CallPrograms>,
    pub(super) hits: Arc<Hits>,
    pub(super) settings: SettingsSlot,
    pub(super) mechanism: Mechanism,
    pub(super) marks: Option<Arc<CountMarks>>,
    call_rings: Vec<MapData>,
}

impl Kernel {
    /// Loads everything and writes the settings. Nothing is attached yet.
    pub fn load(options: &LoadOptions<'_>) -> Result<Self, KernelError> {
        raise_memlock();
        let functions = options.functions.saturating_add(1).min(MAX_FUNCTIONS);
        let rings = RingPlan::new(options.call_ring_bytes, processors());
        let mut ebpf = load_object(options, functions, rings.count)?;
        let calls = Arc::new(CallPrograms::bind(
            options.object,
            &ebpf,
            options.mechanism,
            options.family,
        )?);
        let hits = Arc::new(Hits::map(&ebpf, rings.count, functions)?);
        let call_rings = fill_rings(&mut ebpf, rings)?;
        let first = Settings {
            lease_until: options.lease_until.0,
            wake_threshold: u64::from(rings.bytes) / WAKE_AT,
            flags: options.flags,
            abi_version: KERNEL_ABI_VERSION,
            watch_epoch: 1,
            ring_mask: rings.count - 1,
            functions,
            jiffy_ns: jiffy_ns(),
            count_mask: cells(options) - 1,
            ..Settings::default()
        };
        let settings = SettingsSlot::take(&mut ebpf, first)?;
        let marks = match options.family {
            Family::Count => Some(Arc::new(CountMarks::take(&mut ebpf, &settings)?)),
            _ => None,
        };
        let mechanism = options.mechanism;
        Ok(Self {
            ebpf,
            calls,
            hits,
            settings,
            mechanism,
            marks,
            call_rings,
        })
    }

    /// Attaches what watches threads and processes. To be done before the first call probe: a switch that was not seen
    /// would count as CPU time.
    pub fn observe(&mut self) -> Result<(), KernelError> {
        let types = tracepoint::kernel_types()?;
        sched::attach(self, &types)?;
        process::attach(self, &types)
    }

    /// Takes the lease, without which the programs do nothing, and renews it until the value is dropped.
    pub fn lease(&self) -> Result<Lease, KernelError> {
        Lease::start(self.settings.clone())
    }

    /// Entries of `func` counted in the kernel so far, in watched processes.
    pub fn hits_of(&self, func: FuncId) -> u64 {
        self.hits.of(func)
    }

    /// How call programs are attached.
    pub const fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// What the kernel counted about each program that is loaded. Programs that cannot be asked are left out.
    pub fn program_stats(&self) -> Vec<ProgramStats> {
        let calls = self
            .calls
            .iter()
            .filter_map(|program| stats(program.name(), program.fd()).ok());
        let others = self.ebpf.programs().filter_map(|(name, program)| {
            let fd = program.fd().ok()?;
            stats(name, fd.as_fd()).ok()
        });
        calls.chain(others).collect()
    }

    /// The call rings: a descriptor of each, and its size in bytes.
    pub(super) fn call_ring_descriptors(&self) -> Result<Vec<(OwnedFd, u32)>, KernelError> {
        self.call_rings.iter().map(duplicate).collect()
    }

    /// Descriptor and size in bytes of another ring.
    pub(super) fn ring_descriptor(
        &self,
        name: &'static str,
    ) -> Result<(OwnedFd, u32), KernelError> {
        match self.ebpf.map(name) {
            Some(Map::RingBuf(data)) => duplicate(data),
            _ => Err(missing_map(name)),
        }
    }

    /// Takes a map out of the object.
    pub(super) fn take_map(&mut self, name: &'static str) -> Result<Map, KernelError> {
        self.ebpf.take_map(name).ok_or_else(|| missing_map(name))
    }
}

fn duplicate(ring: &MapData) -> Result<(OwnedFd, u32), KernelError> {
    let bytes = ring.info().map_err(|error| refused_map("ring", error))?;
    let descriptor = ring.fd().as_fd().try_clone_to_owned();
    Ok((descriptor.map_err(KernelError::Ring)?, bytes.max_entries()))
}

/// The object lacks a map, or it is of another kind.
pub(super) fn missing_map(name: &'static str) -> KernelError {
    KernelError::Missing {
        what: "map",
        name: name.into(),
    }
}

pub(super) fn stats(
    name: &str,
    program: std::os::fd::BorrowedFd<'_>,
) -> std::io::Result<ProgramStats> {
    let info = sys::prog_info(program)?;
    Ok(ProgramStats {
        name: name.to_owned(),
        recursion_misses: info.recursion_misses,
        runs: info.run_cnt,
        run_time_ns: info.run_time_ns,
    })
}

/// Before Linux 5.11 maps and programs counted against `RLIMIT_MEMLOCK`. Failure is not fatal: newer kernels do not
/// care, and on older ones the load itself tells.
fn raise_memlock() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    let _not_fatal = setrlimit(Resource::Memlock, unlimited);
}

/// A producer wakes the collector when a ring is this part full; its timer empties rings long before in quiet times.
const WAKE_AT: u64 = 4;

/// How many call rings there are, and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RingPlan {
    /// A power of two.
    count: u32,
    /// Bytes of each: a power of two.
    bytes: u32,
}

impl RingPlan {
    /// A ring for each processor up to `CALL_RINGS`, all within `budget` bytes but for a minimum of 64 KiB each.
    fn new(budget: u64, processors: u32) -> Self {
        const SMALLEST: u64 = 64 << 10;
        const LARGEST: u64 = 1 << 30;
        let count = processors.max(1).next_power_of_two().min(CALL_RINGS as u32);
        let share = (budget / u64::from(count)).clamp(SMALLEST, LARGEST);
        Self {
            count,
            bytes: 1 << share.ilog2(),
        }
    }
}

fn processors() -> u32 {
    aya::util::online_cpus().map_or(1, |online| online.len() as u32)
}

fn load_object(
    options: &LoadOptions<'_>,
    functions: u32,
    stripes: u32,
) -> Result<Ebpf, KernelError> {
    let globals = KernelTypes::of_this_kernel()?.globals()?;
    let mut loader = EbpfLoader::new();
    loader
        .allow_unsupported_maps()
        .map_max_entries(maps::HITS, 2 * functions * stripes)
        .map_max_entries(maps::FUNCTION_LOSSES, 2 * functions)
        .map_max_entries(maps::SAMPLE_RING, options.sample_ring_bytes)
        .map_max_entries(maps::CONTROL_RING, options.control_ring_bytes);
    let counting = options.family == Family::Count;
    let at_most = |most: u32| if counting { most.max(1) } else { 1 };
    loader
        .map_max_entries(maps::COUNT_CELLS, at_most(cells(options)))
        .map_max_entries(maps::COUNT_HISTOGRAMS, at_most(options.count_histograms))
        .map_max_entries(
            maps::COUNT_SLOTS,
            at_most(functions.saturating_mul(COUNT_STRIPES as u32)),
        );
    for (name, value) in &globals {
        loader.override_global(name, value, true);
    }
    let level = diagnostics::level(options.diagnostics);
    loader.override_global(diagnostics::LEVEL, &level, true);
    loader.load(options.object).map_err(refused_maps)
}

/// A power of two.
const fn cells(options: &LoadOptions<'_>) -> u32 {
    match options.count_cells.checked_ilog2() {
        Some(log2) => 1 << log2,
        None => 1,
    }
}

/// Makes the call rings and puts them where the programs find them.
fn fill_rings(ebpf: &mut Ebpf, plan: RingPlan) -> Result<Vec<MapData>, KernelError> {
    let missing = || KernelError::Missing {
        what: "map",
        name: maps::CALL_RINGS.into(),
    };
    let map = ebpf.map_mut(maps::CALL_RINGS).ok_or_else(missing)?;
    let mut slots = ArrayOfMaps::<_, MapData>::try_from(map)
        .map_err(|error| refused_map(maps::CALL_RINGS, error))?;
    let make = |index: u32| {
        let ring = new_ring(plan.bytes)?;
        slots.set(index, &ring, 0).map(|()| ring)
    };
    let rings: Result<Vec<MapData>, MapError> = (0..plan.count).map(make).collect();
    rings.map_err(|error| KernelError::Maps {
        hint: Hint::for_error(&error, &[Capability::CAP_BPF]),
        source: Box::new(error.into()),
    })
}

fn new_ring(bytes: u32) -> Result<MapData, MapError> {
    let kind = bpf_map_type::BPF_MAP_TYPE_RINGBUF as u32;
    MapData::create(
        aya_obj::Map::new_from_params(kind, 0, 0, bytes, 0),
        "CALL_RING",
        None,
    )
}

pub(super) fn refused_map(
    name: &'static str,
    error: impl std::error::Error + Send + Sync + 'static,
) -> KernelError {
    KernelError::Map {
        name,
        source: Box::new(error),
    }
}

pub(super) fn refused_maps(error: aya::EbpfError) -> KernelError {
    let needed = [Capability::CAP_BPF, Capability::CAP_PERFMON];
    KernelError::Maps {
        hint: Hint::for_error(&error, &needed),
        source: Box::new(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(budget: u64, processors: u32, count: u32, bytes: u32) {
        assert_eq!(RingPlan::new(budget, processors), RingPlan { count, bytes });
    }

    #[test]
    fn rings_stay_within_the_budget_and_are_powers_of_two() {
        check(64 << 20, 2, 2, 32 << 20);
        check(64 << 20, 6, 8, 8 << 20);
        check(100 << 20, 64, 8, 8 << 20);
        check(0, 1, 1, 64 << 10);
    }
}
