//! The kernel's side of a recording: programs loaded, attached and drained. The only room that uses aya, and where
//! `unsafe` and libc live.
//!
//! Must not know what events mean (order, stacks, names) or which functions are worth probing.
#![expect(
    unsafe_code,
    reason = "raw system calls, shared memory and fork live here, one operation a block"
)]

mod apart;
pub mod attach;
pub mod births;
pub mod breaker;
pub mod btf;
pub mod calibrate;
mod calls;
pub mod counts;
pub mod diagnostics;
mod error;
pub mod groups;
mod hits;
pub mod kin;
pub mod lease;
pub mod load;
mod losses;
mod marks;
pub mod object;
pub mod process;
pub mod registers;
pub mod ring;
pub mod run_time;
pub mod sample;
mod sched;
mod settings;
pub mod spawn;
mod sys;
mod tracepoint;
mod uprobe_multi;
mod uprobe_perf;
mod wait;
mod watch;

pub use apart::cpu_ns as cpu_apart_ns;
pub use calls::Family;
pub use error::{Hint, KernelError};
pub use load::{Kernel, LoadOptions, Mechanism, ProgramStats};
pub use sys::process_cpu_ns;
pub use uprobe_perf::raise_open_files;
