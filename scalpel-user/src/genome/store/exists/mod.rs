//! The tables of what exists: a catalog in a genome file, since version 3.

mod read;
pub(super) mod schema;
mod write;

pub(super) use read::{read, read_facts, read_matches};
pub(super) use write::{write, write_facts, write_matches};

#[cfg(test)]
mod tests;
