//! Loads the BPF object: maps and kernel-side programs by aya, call programs by `calls`.
//!
//! Must not know what is attached where, nor how rings are drained.

use std::os::fd::AsFd;
use std::sync::Arc;

use aya::maps::{Array, Map, MapData};
use aya::{Ebpf, EbpfLoader};
use caps::Capability;
use scalpel_common::kernel::{KERNEL_ABI_VERSION, MAX_FUNCTIONS, Settings, maps};

use super::calls::CallPrograms;
use super::error::{Hint, KernelError};
use super::hits::Hits;
use super::sys;
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
    /// Map sizes to set: name, entries (for rings: bytes).
    pub map_entries: Vec<(&'a str, u32)>,
    /// Highest function id that will be attached.
    pub functions: u32,
    /// Bits of `settings_flags`.
    pub flags: u32,
    /// Bytes in a ring at which a producer wakes the collector.
    pub wake_threshold: u64,
    /// End of the first lease.
    pub lease_until: MonoTime,
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
    pub(super) settings: Settings,
    pub(super) mechanism: Mechanism,
    settings_map: Array<MapData, PodSettings>,
}

/// [`Settings`] as aya's maps take it.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
struct PodSettings(Settings);

// SAFETY: Settings is repr(C), made of integers, without padding (its size is asserted in scalpel-common).
unsafe impl aya::Pod for PodSettings {}

impl Kernel {
    /// Loads everything and writes the settings. Nothing is attached yet.
    pub fn load(options: &LoadOptions<'_>) -> Result<Self, KernelError> {
        raise_memlock();
        let entries = options.functions.saturating_add(1).min(MAX_FUNCTIONS);
        let mut loader = EbpfLoader::new();
        loader
            .allow_unsupported_maps()
            .map_max_entries(maps::HITS, entries);
        for &(name, entries) in &options.map_entries {
            loader.map_max_entries(name, entries);
        }
        let mut ebpf = loader.load(options.object).map_err(refused_maps)?;
        let calls = Arc::new(CallPrograms::load(
            options.object,
            &ebpf,
            options.mechanism,
        )?);
        let hits = Arc::new(Hits::map(&ebpf, entries)?);
        let settings_map = take_settings(&mut ebpf)?;
        let settings = Settings {
            lease_until: options.lease_until.0,
            wake_threshold: options.wake_threshold,
            flags: options.flags,
            abi_version: KERNEL_ABI_VERSION,
            ..Settings::default()
        };
        let mut kernel = Self {
            ebpf,
            calls,
            hits,
            settings,
            mechanism: options.mechanism,
            settings_map,
        };
        kernel.write_settings(settings)?;
        Ok(kernel)
    }

    /// Tells all programs new settings.
    pub(super) fn write_settings(&mut self, settings: Settings) -> Result<(), KernelError> {
        self.settings_map
            .set(0, PodSettings(settings), 0)
            .map_err(|error| refused_map(maps::SETTINGS, error))?;
        self.settings = settings;
        Ok(())
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

/// Before Linux 5.11 maps and programs counted against RLIMIT_MEMLOCK. Failure is not fatal: newer kernels do not
/// care, and on older ones the load itself tells.
fn raise_memlock() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    let _not_fatal = setrlimit(Resource::Memlock, unlimited);
}

fn take_settings(ebpf: &mut Ebpf) -> Result<Array<MapData, PodSettings>, KernelError> {
    let missing = || KernelError::Missing {
        what: "map",
        name: maps::SETTINGS.into(),
    };
    let map: Map = ebpf.take_map(maps::SETTINGS).ok_or_else(missing)?;
    Array::try_from(map).map_err(|error| refused_map(maps::SETTINGS, error))
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

fn refused_maps(error: aya::EbpfError) -> KernelError {
    let needed = [Capability::CAP_BPF, Capability::CAP_PERFMON];
    KernelError::Maps {
        hint: Hint::for_error(&error, &needed),
        source: Box::new(error),
    }
}
