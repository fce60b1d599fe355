//! Which events of a thread share one sequence of numbers.

use crate::event::Source;

/// A sequence of a thread's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Calls that the kernel sees: numbered from 1.
    Calls,
    /// Switches, numbered apart: one may come in the middle of a probe that has its number already.
    Switches,
    /// What probes within the process write, of whatever language: one thread, one lane at a time.
    Probes,
}

impl Stream {
    /// The stream that events of a source number belong to.
    pub const fn of(source: u8) -> Self {
        if source == Source::Sched as u8 {
            Self::Switches
        } else if source >= Source::Python as u8 {
            Self::Probes
        } else {
            Self::Calls
        }
    }
}
