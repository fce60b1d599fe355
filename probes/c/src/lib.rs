//! The C interface of scopes: `include/scalpel_scope.h` is generated from here and is its document. Made for the ten
//! languages that bind to it: plain numbers, sizes that tell versions apart, borrowed strings, error codes; nothing here
//! unwinds into C. It knows what scopes are by the engine's handles alone.
pub mod call;
mod guard;
pub mod trace;
pub mod types;
