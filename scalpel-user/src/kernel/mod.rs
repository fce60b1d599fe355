//! The kernel's side of a recording: programs loaded, attached and drained. The only room that uses aya, and where
//! `unsafe` and libc live.
//!
//! Must not know what events mean (order, stacks, names) or which functions are worth probing.
#![expect(
    unsafe_code,
    reason = "raw system calls, shared memory and fork live here, one operation a block"
)]

pub mod attach;
pub mod breaker;
pub mod btf;
pub mod calibrate;
mod calls;
mod error;
pub mod groups;
mod hits;
pub mod load;
pub mod object;
pub mod spawn;
mod sys;
mod uprobe_multi;
mod uprobe_perf;

pub use error::{Hint, KernelError};
pub use load::{Kernel, LoadOptions, Mechanism, ProgramStats};
