//! The C interface, `scalpel.h`: the same calls for probes that are not written in Rust.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use scalpel_common::event::Source;
use scalpel_common::segment::NOT_KNOWN;

use crate::handshake::{Hello, Refusal, attached, connect};
use crate::hot;
use crate::name::{Name, hash};

/// A function as its probe knows it. Texts are UTF-8, ended by a zero byte; a null pointer is an empty text.
#[repr(C)]
#[derive(Debug)]
pub struct scalpel_name {
    /// Number of the probe in the event format.
    pub source: u8,
    /// 0.
    pub reserved: u8,
    /// Flags of a name record.
    pub flags: u16,
    /// First line from 1, 0 = not known.
    pub line: u32,
    /// Last line, 0 = not known.
    pub end_line: u32,
    /// Column of the start in UTF-16 units from 0, `UINT32_MAX` = not known.
    pub column: u32,
    /// Start in the loaded text in UTF-16 units, `UINT32_MAX` = not known.
    pub start: u32,
    /// End in the loaded text, `UINT32_MAX` = not known.
    pub end: u32,
    /// Qualified name.
    pub name: *const c_char,
    /// Path or URL of the source.
    pub file: *const c_char,
    /// Module, class or package.
    pub owner: *const c_char,
    /// Hash of the body, 0 = none.
    pub body_hash: u64,
    /// Hash of the loaded text, 0 = none.
    pub text_hash: u64,
}

/// Joins the recording that `$SCALPEL_SOCKET` names, once a process. 0 = joined; else why not: 1 no recording, 2 not
/// reached, 3 no answer in time, 4 refused, 5 other version, 6 cannot map, 7 no clock, 8 bad argument.
///
/// # Safety
/// `runtime` is null or a text ended by a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scalpel_connect(source: u8, runtime: *const c_char) -> c_int {
    let Some(source) = Source::from_u8(source) else {
        return 8;
    };
    // SAFETY: the caller's promise.
    let runtime = unsafe { text(runtime) };
    match connect(&Hello { source, runtime }) {
        Ok(_) => 0,
        Err(Refusal::NoSocket) => 1,
        Err(Refusal::Unreachable(..)) => 2,
        Err(Refusal::Silent) => 3,
        Err(Refusal::Refused(_)) => 4,
        Err(Refusal::Foreign(_)) => 5,
        Err(Refusal::Mapping(_)) => 6,
        Err(Refusal::NoClock) => 7,
    }
}

/// Bits of what the recording asks for (1 calls, 2 counts, 4 native functions); 0 without a recording.
#[unsafe(no_mangle)]
pub extern "C" fn scalpel_modes() -> u8 {
    attached().map_or(0, crate::Segment::modes)
}

/// A fresh function id; 0 = none is left, or no recording.
#[unsafe(no_mangle)]
pub extern "C" fn scalpel_new_function() -> u32 {
    attached().map_or(0, crate::Segment::new_function)
}

/// Tells what an id stands for, before its first event. `false`: no room, or no recording.
///
/// # Safety
/// `name` is null or points to a name whose texts are null or ended by a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scalpel_name_function(func: u32, name: *const scalpel_name) -> bool {
    // SAFETY: the caller's promise.
    let Some(given) = (unsafe { name.as_ref() }) else {
        return false;
    };
    let (Some(segment), Some(source)) = (attached(), Source::from_u8(given.source)) else {
        return false;
    };
    let known = |number: u32| (number != NOT_KNOWN).then_some(number);
    // SAFETY: the caller's promise, for each text.
    let [name, file, owner] = [given.name, given.file, given.owner].map(|at| unsafe { text(at) });
    let name = Name {
        flags: given.flags,
        line: given.line,
        end_line: given.end_line,
        column: known(given.column),
        start: known(given.start),
        end: known(given.end),
        file,
        owner,
        body_hash: given.body_hash,
        text_hash: given.text_hash,
        ..Name::new(source, name)
    };
    segment.name(func, &name)
}

/// Leaves a text for the reader of the result. Kinds: 1 runtime, 2 blind spot, 3 gap, 4 refusal, 5 note, 6 excluded.
///
/// # Safety
/// `text` is null or ended by a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scalpel_note(kind: u8, source: u8, value: u64, text: *const c_char) {
    // SAFETY: the caller's promise.
    let words = unsafe { self::text(text) };
    if let (Some(segment), Some(source)) = (attached(), Source::from_u8(source)) {
        segment.note(kind, source, value, words);
    }
}

/// A number that changes when functions were switched off or on.
#[unsafe(no_mangle)]
pub extern "C" fn scalpel_generation() -> u32 {
    attached().map_or(0, crate::Segment::generation)
}

/// Whether a function is switched off.
#[unsafe(no_mangle)]
pub extern "C" fn scalpel_is_off(func: u32) -> bool {
    attached().is_none_or(|segment| segment.is_off(func))
}

/// Adds counted calls.
#[unsafe(no_mangle)]
pub extern "C" fn scalpel_count(func: u32, calls: u64) {
    if let Some(segment) = attached() {
        segment.count(func, calls);
    }
}

/// A call begins; the answer is its token, 0 = write nothing more of it.
#[unsafe(no_mangle)]
pub extern "C" fn scalpel_enter(
    source: u8,
    func: u32,
    frame: u64,
    site: u64,
    task: u64,
    flags: u16,
) -> u64 {
    Source::from_u8(source).map_or(0, |source| {
        hot::enter(source, func, frame, site, task, flags)
    })
}

/// A call ends.
#[unsafe(no_mangle)]
pub extern "C" fn scalpel_exit(
    token: u64,
    source: u8,
    func: u32,
    frame: u64,
    task: u64,
    value: u64,
    flags: u16,
) {
    if let Some(source) = Source::from_u8(source) {
        hot::exit(token, source, func, frame, task, value, flags);
    }
}

/// A call ends by an exception.
#[unsafe(no_mangle)]
pub extern "C" fn scalpel_unwind(
    token: u64,
    source: u8,
    func: u32,
    frame: u64,
    task: u64,
    flags: u16,
) {
    if let Some(source) = Source::from_u8(source) {
        hot::unwind(token, source, func, frame, task, flags);
    }
}

/// A call leaves its thread.
#[unsafe(no_mangle)]
pub extern "C" fn scalpel_suspend(
    token: u64,
    source: u8,
    func: u32,
    frame: u64,
    task: u64,
    flags: u16,
) {
    if let Some(source) = Source::from_u8(source) {
        hot::suspend(token, source, func, frame, task, flags);
    }
}

/// A call goes on.
#[unsafe(no_mangle)]
pub extern "C" fn scalpel_resume(
    token: u64,
    source: u8,
    func: u32,
    frame: u64,
    task: u64,
    flags: u16,
) {
    if let Some(source) = Source::from_u8(source) {
        hot::resume(token, source, func, frame, task, flags);
    }
}

/// The calling thread writes no more for now.
#[unsafe(no_mangle)]
pub extern "C" fn scalpel_release() {
    hot::release();
}

/// The hash for bodies and texts; never 0.
///
/// # Safety
/// `bytes` points to `len` readable bytes, or `len` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scalpel_hash(bytes: *const u8, len: usize) -> u64 {
    if bytes.is_null() || len == 0 {
        return hash(b"");
    }
    // SAFETY: the caller's promise.
    hash(unsafe { &*ptr::slice_from_raw_parts(bytes, len) })
}

/// # Safety
/// `at` is null or ended by a zero byte, and stays as long as the reference to it.
unsafe fn text<'a>(at: *const c_char) -> &'a str {
    if at.is_null() {
        return "";
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(at) };
    text.to_str().unwrap_or("")
}
