//! Which tier may record, by what this machine has: a tier that is asked for by name is used, or skipped with the gate
//! that is closed, and never replaced.
use std::fs;
use std::path::Path;

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
            Self::IntelPt => Err(intel_pt(Path::new("/sys/bus/event_source/devices"))),
            Self::AmdLbr => Err(amd_lbr(&read("/proc/cpuinfo"))),
        }
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

fn intel_pt(sources: &Path) -> String {
    if sources.join("intel_pt/type").exists() {
        "intel-pt: this build has no decoder for it".to_owned()
    } else {
        "intel-pt: no PMU `intel_pt` on this machine".to_owned()
    }
}

fn amd_lbr(cpuinfo: &str) -> String {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    let has = |name| flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == name));
    if has("amd_lbr_v2") {
        "amd-lbr: a sampled survey, never an exact scope".to_owned()
    } else if has("brs") {
        "amd-lbr: Zen 3 branch sampling leaves gaps, so that no scope of it is exact".to_owned()
    } else {
        "amd-lbr: no `amd_lbr_v2` in this processor's flags".to_owned()
    }
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
    fn the_closed_gate_of_a_tier_is_named() {
        let none = intel_pt(Path::new("/nowhere"));
        assert!(none.contains("no PMU"), "{none}");
        assert!(amd_lbr("flags\t: fpu amd_lbr_v2\n").contains("sampled"));
        assert!(amd_lbr("flags\t: fpu brs\n").contains("gaps"));
        assert!(amd_lbr("flags\t: fpu\n").contains("no `amd_lbr_v2`"));
    }
}
