//! The Node.js probe: JavaScript is rewritten as it is loaded, and what is inserted writes events.
//!
//! [`rewrite`] is pure: from a text to the text that runs in its place. [`texts`] knows every text that was loaded in this
//! process, by all isolates: ids, names, and the way back from rewritten columns. [`napi`] is the addon, the only room with
//! `unsafe`. What hooks Node.js is JavaScript, in `preload/`.
pub mod napi;
pub mod rewrite;
pub mod texts;
