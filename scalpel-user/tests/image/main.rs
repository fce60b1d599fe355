//! Images built on the fly: sites, exits, kinds of files, damage.
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and says what it skipped"
)]

mod again;
mod build;
mod damage;
mod exists;
mod exits;
mod files;
mod go;
mod pieces;
mod sites;
