//! libscalpel: the probe's end of a recording, for any language runtime.
//!
//! A guest in a stranger's process: one handshake at load, then one shared mapping and nothing else. No descriptor, thread,
//! socket, lock or destructor stays; no call blocks, allocates on the hot path, unwinds or touches `errno`. Where a
//! recording cannot be joined the program runs on, and the caller gets the reason.
//!
//! * [`connect`] joins the recording that `$SCALPEL_SOCKET` names, once a process.
//! * [`Segment::new_function`] and [`Segment::name`] make a function known before its first event.
//! * [`enter`], [`exit`], [`unwind`], [`suspend`] and [`resume`] write events to the thread's own lane.

#[cfg(feature = "abi")]
pub mod abi;
mod clock;
mod fork;
mod handshake;
mod hot;
#[doc(hidden)]
pub mod lane;
mod name;
mod segment;

#[cfg(feature = "harness")]
pub mod harness;

pub use handshake::{Hello, Refusal, attached, connect};
pub use hot::{enter, exit, release, resume, suspend, unwind};
pub use name::{Name, hash};
pub use scalpel_common::event::{Source, flags};
pub use scalpel_common::segment::{NOTE_TEXT, modes, name_flags, note_kind, unseen};
pub use segment::{Counters, Segment};
