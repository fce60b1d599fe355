//! What a probed call costs on this host.

/// Lowest and highest cost in ns: in a hot loop, and with cold caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// In a hot loop.
    pub hot_ns: u64,
    /// With cold caches.
    pub cold_ns: u64,
}

/// Costs of the kinds of probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeCosts {
    /// Entry at an instruction that the kernel emulates.
    pub entry: Cost,
    /// Entry and return of a session at such an instruction.
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
    /// Cost of one probed call in a hot loop: what matters for a function that is called very often.
    pub const fn of_call(&self, stepped: bool, returns: bool, rets: bool) -> u64 {
        let entry = if stepped {
            self.stepped.hot_ns
        } else {
            self.entry.hot_ns
        };
        let by_return = self
            .entry_and_return
            .hot_ns
            .saturating_sub(self.entry.hot_ns);
        entry + if returns { by_return } else { 0 } + if rets { self.stepped.hot_ns } else { 0 }
    }
}
