//! Ways out of a genome for other programs: one file a format, each written as it is read, in memory of the genome's size.
//!
//! Pure, as all sinks. What is not known of the numbers goes along wherever the format has room for words.

pub mod callgrind;
pub mod calls;
pub mod cobertura;
pub mod covered;
pub mod dot;
pub mod flame;
pub mod folded;
mod labels;
pub mod lcov;
pub mod ndjson;
pub mod pprof;
pub mod speedscope;
mod subject;
mod weight;
mod wire;

pub use covered::{Coverage, Covered};
pub use subject::Subject;
pub use weight::Weight;

/// What a reader should be told that the format has no room for.
pub type Notes = Vec<String>;

#[cfg(test)]
mod tests;
