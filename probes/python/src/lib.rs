//! scalpel's probe for `CPython`: the extension module `scalpel_probe._native`.
//!
//! A guest in a stranger's interpreter: nothing here raises, runs Python code on its own, or keeps a descriptor, a thread or
//! a lock. Python code beside it (`python/scalpel_probe`) decides whether and how to start; all that happens per call is here.
//!
//! The interpreter lock orders everything. Free-threaded builds are refused before this module is loaded.

mod awake;
#[cfg(Py_3_12)]
mod callback;
mod codes;
mod filter;
mod layout;
mod lines;
mod members;
mod module;
#[cfg(Py_3_12)]
mod monitor;
mod names;
mod native;
mod open;
mod places;
mod probe;
#[cfg(not(Py_3_12))]
mod profile;
mod python;
mod source;
#[cfg(not(Py_3_12))]
mod threads;
mod word;
