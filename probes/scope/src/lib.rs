//! The exact instructions of one region of a running thread: a scope is opened, the body runs, the scope is closed, and
//! what ran is shown. A trace is complete, or truncated for named reasons; it is never a part that looks like all.
#![deny(unsafe_code)]
mod backend;
#[cfg_attr(
    not(all(target_arch = "x86_64", target_os = "linux")),
    path = "elsewhere.rs"
)]
mod step;

pub mod decode;
mod distinct;
mod elf;
pub mod flow;
pub mod handles;
pub mod lbr;
mod maps;
pub mod oracle;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod outside;
pub mod perf;
#[cfg_attr(
    not(all(target_arch = "x86_64", target_os = "linux")),
    expect(dead_code, reason = "what stops threads is not there")
)]
mod predict;
#[cfg_attr(
    not(all(target_arch = "x86_64", target_os = "linux")),
    expect(dead_code, reason = "nothing is stepped there")
)]
mod probes;
pub mod pt;
pub mod render;
mod scope;
pub mod sink;
mod site;
pub mod symbol;
pub mod trace;

pub use backend::{HwBackend, branch_records, proven};
pub use scope::{
    Budget, Code, Emit, Ending, HwTrace, MOST_TRAPS, Options, ScopeError, ScopedTrace,
};
pub use site::{Site, Totals};
pub use trace::{Reasons, Status, Trace};
