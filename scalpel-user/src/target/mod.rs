//! The watched process: who it is, what it has mapped, what runs in it; and the process that we start ourselves.
//!
//! Reads `/proc`; must not know what the facts are used for (probes, symbols, tables).

mod bytes;
mod error;
mod find;
mod images;
mod maps;
mod process;
mod program;
mod runtime;
mod spawn;
mod status;

pub use error::TargetError;
pub use find::{Cgroup, Found, by_comm, others_of_the_same_program, processes};
pub use images::{FileId, MappedImage};
pub use maps::{Backing, Mapping, parse_maps};
pub use process::{Accounts, Process, Thread, waited_for_cpu_ns};
pub use runtime::Runtime;
pub use spawn::{ChildExit, Spawned};
pub use status::Status;
