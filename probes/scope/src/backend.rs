//! Which tier may record, by what this machine has: a tier that is asked for by name is used, or skipped with the gate
//! that is closed, and never replaced.
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use crate::lbr::live::Flavour;
use crate::pt::live::Pmu;

/// Where the kernel describes its event sources.
const SOURCES: &str = "/sys/bus/event_source/devices";

/// The tier that is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HwBackend {
    /// The most faithful one that is there.
    #[default]
    Auto,
    /// EFLAGS.TF and SIGTRAP in the process itself.
    SingleStep,
    /// Intel Processor Trace by perf.
    IntelPt,
    /// AMD last branch records by perf.
    AmdLbr,
}

impl HwBackend {
    /// The error names the gate that is closed.
    pub fn gate(self) -> Result<(), String> {
        match self {
            Self::Auto | Self::SingleStep => single_step(),
            Self::IntelPt => intel_pt(Path::new(SOURCES)).map(|_pmu| ()),
            Self::AmdLbr => Flavour::of(&read("/proc/cpuinfo")).map(|_flavour| ()),
        }
    }

    /// Intel PT, if it is what records: asked for by name, or for `Auto` where it proved itself. The error names the gate
    /// that is closed for who asked for it by name.
    pub(crate) fn pmu(self) -> Result<Option<Pmu>, String> {
        match self {
            Self::IntelPt => proven().map(Some),
            Self::Auto => Ok(proven().ok()),
            Self::SingleStep | Self::AmdLbr => Ok(None),
        }
    }
}

/// Intel PT of this machine, once it has shown a function whose path is known.
///
/// # Errors
/// The gate that is closed.
pub fn proven() -> Result<Pmu, String> {
    static PROVEN: OnceLock<Result<Pmu, String>> = OnceLock::new();
    let prove = || {
        let pmu = intel_pt(Path::new(SOURCES))?;
        crate::scope::prove(&pmu)?;
        Ok(pmu)
    };
    PROVEN.get_or_init(prove).clone()
}

/// Branch records of this machine, AMD's or Intel's.
///
/// # Errors
/// The gate that is closed.
pub fn branch_records() -> Result<(), String> {
    branches(&read("/proc/cpuinfo"), Path::new(SOURCES))
}

/// Intel's processors before the architectural records tell of theirs by their PMU alone.
fn branches(cpuinfo: &str, sources: &Path) -> Result<(), String> {
    let depth = fs::read_to_string(sources.join("cpu/caps/branches")).unwrap_or_default();
    match Flavour::of(cpuinfo) {
        Err(_) if depth.trim().parse().is_ok_and(|depth: u32| depth > 0) => Ok(()),
        other => other.map(drop),
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn single_step() -> Result<(), String> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Err("single-step: only x86-64 Linux".to_owned());
    }
    match tracer(&read("/proc/self/status")) {
        None => Ok(()),
        Some(pid) => Err(format!(
            "single-step: a debugger is attached (TracerPid {pid})"
        )),
    }
}

/// Who traces this process by ptrace.
fn tracer(status: &str) -> Option<u32> {
    let pid = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"))?;
    pid.trim().parse().ok().filter(|pid| *pid != 0)
}

/// The PMU, if it and the decoder are there.
fn intel_pt(sources: &Path) -> Result<Pmu, String> {
    let pmu = Pmu::read(sources)?;
    crate::pt::available()?;
    Ok(pmu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debugger_is_seen_in_the_status() {
        assert_eq!(tracer("Name:\tx\nTracerPid:\t0\n"), None);
        assert_eq!(tracer("Name:\tx\nTracerPid:\t17\n"), Some(17));
    }

    #[test]
    fn branch_records_are_told_by_flags_or_by_the_pmu() {
        let folder = tempfile::tempdir().unwrap();
        assert!(branches("flags\t: fpu\n", folder.path()).is_err());
        assert_eq!(branches("flags\t: amd_lbr_v2\n", folder.path()), Ok(()));
        let caps = folder.path().join("cpu/caps");
        fs::create_dir_all(&caps).unwrap();
        for (depth, there) in [("32\n", true), ("0\n", false), ("", false)] {
            fs::write(caps.join("branches"), depth).unwrap();
            assert_eq!(branches("", folder.path()).is_ok(), there, "{depth}");
        }
    }

    #[test]
    fn the_closed_gate_of_a_tier_is_named() {
        let none = intel_pt(Path::new("/nowhere")).unwrap_err();
        assert!(none.contains("no PMU"), "{none}");
    }
}
