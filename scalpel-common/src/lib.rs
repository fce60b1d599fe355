//! The words that kernel programs, in-process probes and the collector share:
//! the 64-byte event, its numbers, and the layouts of rings and maps.
//!
//! No logic lives here and nothing here allocates. Every layout is `#[repr(C)]`,
//! little-endian and free of padding; `const` asserts fix sizes and offsets, and
//! FORMAT.md shows the same tables for readers in other languages.
#![no_std]

pub mod count;
pub mod event;
pub mod kernel;
pub mod segment;
pub mod wait;
pub mod wire;
