//! The collector of scalpel.
pub mod event;
pub mod function;
pub mod input;
pub mod tree;
