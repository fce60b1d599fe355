//! The harness of the whole-program tests: builds programs whose truth is known, runs the real `scalpel-ebpf` on
//! them and reads what it reports.
//!
//! It knows the product by its command line, its exit codes and its JSON only, as any other program does. The
//! programs themselves contain no scalpel code: they count their own calls with plain counters and print them.

pub mod catalog;
pub mod child;
pub mod dice;
pub mod fixture;
pub mod orphans;
pub mod real;
pub mod report;
pub mod residue;
pub mod scalpel;
pub mod scope;
pub mod suite;
pub mod target;
pub mod truth;
