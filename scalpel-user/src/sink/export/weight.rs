//! What a context weighs: the self value that formats add up along the stack.

use crate::tree::Metrics;

/// One value of a context. Values of all contexts add up; a context's total is its own and those below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// CPU time in the function itself, measured by probes, in ns.
    Cpu,
    /// Wall time in the function itself, in ns.
    Wall,
    /// Calls.
    Calls,
    /// Samples with the function innermost.
    Samples,
    /// CPU time that those samples stand for, in ns.
    Sampled,
    /// Time off the processor in the function itself, in ns.
    OffCpu,
}

impl Weight {
    /// Every weight, the one that says most first.
    pub const ALL: [Self; 6] = [
        Self::Cpu,
        Self::Wall,
        Self::Sampled,
        Self::Samples,
        Self::OffCpu,
        Self::Calls,
    ];

    /// Name of the value type.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Wall => "wall",
            Self::Calls => "calls",
            Self::Samples => "samples",
            Self::Sampled => "sampled_cpu",
            Self::OffCpu => "off_cpu",
        }
    }

    /// Unit of the value type.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Cpu | Self::Wall | Self::Sampled | Self::OffCpu => "nanoseconds",
            Self::Calls | Self::Samples => "count",
        }
    }

    /// For people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Cpu => "CPU time",
            Self::Wall => "wall time",
            Self::Calls => "calls",
            Self::Samples => "samples",
            Self::Sampled => "CPU time by samples",
            Self::OffCpu => "time off the processor",
        }
    }

    /// What a context itself weighs.
    pub const fn of(self, m: &Metrics) -> u64 {
        match self {
            Self::Cpu => m.self_cpu_ns,
            Self::Wall => m.self_wall_ns,
            Self::Calls => m.calls,
            Self::Samples => m.samples,
            Self::Sampled => m.sampled_ns,
            Self::OffCpu => m.off_cpu_ns,
        }
    }

    /// Whether it was measured anywhere in `own`: what was not is left out of an export, never written as 0.
    pub fn is_measured(self, own: &[Metrics]) -> bool {
        own.iter().any(|m| match self {
            Self::Cpu => m.cpu_timed > 0,
            Self::Wall => m.timed > 0,
            _ => self.of(m) > 0,
        })
    }
}
