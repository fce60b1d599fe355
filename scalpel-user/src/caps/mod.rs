//! Facts about a host -> what its kernel and processor can do for us, each with the reason.
//!
//! Pure: facts come in as values (read by `host`), so that every kernel there is can be tried in a test.

mod abilities;
mod facts;
mod hazards;
mod release;

pub use abilities::{Abilities, Attach, Blocker, Decision, Gate, Sampler};
pub use facts::{Capability, Facts, Lockdown, Preemption};
pub use hazards::{Hazard, Severity, hazards};
pub use release::Release;

#[cfg(test)]
mod tests;
