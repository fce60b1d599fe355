//! The collector of scalpel.

// `unsafe` lives in `kernel/` and in `probe/memory.rs` only, which allow it for themselves.
#![deny(unsafe_code)]

pub mod caps;
pub mod catalog;
pub mod cli;
pub mod commands;
pub mod decode;
pub mod doctor;
pub mod doubt;
pub mod event;
pub mod exit;
pub mod function;
pub mod genome;
pub mod host;
pub mod image;
pub mod input;
pub mod kernel;
pub mod lay;
pub mod log;
pub mod maps;
pub mod matching;
pub mod order;
pub mod output;
pub mod plan;
pub mod privilege;
pub mod probe;
pub mod record;
pub mod report;
pub mod rooted;
pub mod sandbox;
pub mod scope;
pub mod session;
pub mod sink;
pub mod source;
pub mod stack;
pub mod stacks;
pub mod static_;
pub mod survey;
pub mod symbol;
pub mod target;
pub mod tree;
pub mod unwind;
