//! Real projects as programs that can be started and worked with, for tests and for the bench.

pub mod nginx;
pub mod node;
pub mod postgres;
pub mod programs;
pub mod redis;
pub mod worker;
