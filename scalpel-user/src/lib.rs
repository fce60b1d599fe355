//! The collector of scalpel.
#![deny(unsafe_code)]
pub mod cli;
pub mod commands;
pub mod decode;
pub mod event;
pub mod exit;
pub mod function;
pub mod genome;
pub mod input;
pub mod kernel;
pub mod output;
pub mod plan;
pub mod target;
pub mod tree;
// `unsafe` lives in `kernel/` only, which allows it for itself.
