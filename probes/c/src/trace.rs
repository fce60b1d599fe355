//! A closed trace as C sees it: an object of its own, with strings that live as long as it does.
use std::ffi::{CString, c_char};
use std::ptr::{null, null_mut};
use std::sync::LazyLock;

use engine::Reasons;
use engine::render::{self, Syntax};
use engine::symbol::ProcessSymbols;
use engine::trace::Step as Ran;

use crate::call::place;
use crate::guard::{Code, guarded, write};
use crate::types::{self, Info, SCALPEL_SCOPE_INVALID, Step};

/// The trace of one scope. Its threads are those that you pass it to: one at a time.
pub struct Trace {
    trace: engine::Trace,
    reasons: CString,
    skip_reason: Option<CString>,
    tier: CString,
    text: CString,
}

/// What is known of the trace.
///
/// # Safety
/// `trace` is null or was written by `close` or `call` and is not freed; `info` is null or points to as many bytes as
/// its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scalpel_trace_get_info(trace: *const Trace, info: *mut Info) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let this = unsafe { trace.as_ref() }.ok_or(SCALPEL_SCOPE_INVALID)?;
        // SAFETY: the caller's promise.
        unsafe { write(info, this.info()) }
    })
}

/// The addresses in the order they ran, each as often as it ran: at most `room` of them are written to `addrs`, and how
/// many there are to `count`.
///
/// # Safety
/// As for `info`; `addrs` has room for as many as `room` says; `count` is writable, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scalpel_trace_addresses(
    trace: *const Trace,
    addrs: *mut u64,
    room: usize,
    count: *mut usize,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let this = unsafe { trace.as_ref() }.ok_or(SCALPEL_SCOPE_INVALID)?;
        // SAFETY: the caller's promise.
        unsafe { fill(this.trace.addresses(), addrs, room, count) }
    })
}

/// The steps from number `first` on: at most `room` of them are written to `steps`, and how many there are from `first`
/// on to `count`.
///
/// # Safety
/// As for `addresses`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scalpel_trace_steps(
    trace: *const Trace,
    first: usize,
    steps: *mut Step,
    room: usize,
    count: *mut usize,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let this = unsafe { trace.as_ref() }.ok_or(SCALPEL_SCOPE_INVALID)?;
        let all = this.trace.steps.get(first..).unwrap_or_default();
        // SAFETY: the caller's promise.
        unsafe { fill(all.iter().map(|step| this.step(step)), steps, room, count) }
    })
}

/// The trace as text (`SCALPEL_TRACE_*`, `SCALPEL_SYNTAX_*`), UTF-8 with a closing NUL: it lives until the next text of
/// this trace, or until it is freed. `lines` is for the tree. `length` may be null.
///
/// # Safety
/// As for `info`; `text` is writable, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scalpel_trace_text(
    trace: *mut Trace,
    how: u32,
    syntax: u32,
    lines: usize,
    text: *mut *const c_char,
    length: *mut usize,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let this = unsafe { trace.as_mut() }.ok_or(SCALPEL_SCOPE_INVALID)?;
        if text.is_null() {
            return Err(SCALPEL_SCOPE_INVALID);
        }
        this.render(how, syntax, lines)?;
        // SAFETY: the caller's promise.
        unsafe { text.write(this.text.as_ptr()) };
        if !length.is_null() {
            // SAFETY: the caller's promise.
            unsafe { length.write(this.text.as_bytes().len()) };
        }
        Ok(())
    })
}

/// Frees a trace; null is nothing.
///
/// # Safety
/// As for `info`; it is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scalpel_trace_free(trace: *mut Trace) {
    if trace.is_null() {
        return;
    }
    // SAFETY: it came out of a box in `hand_over`, and the caller gives it back.
    drop(unsafe { Box::from_raw(trace) });
}

/// On an error there is no trace.
///
/// # Safety
/// `to` is null or writable.
pub(crate) unsafe fn none_yet(to: *mut *mut Trace) {
    if !to.is_null() {
        // SAFETY: the caller's promise.
        unsafe { to.write(null_mut()) };
    }
}

/// Gives the trace to the caller, or drops it if they want none.
///
/// # Safety
/// `to` is null or writable.
pub(crate) unsafe fn hand_over(trace: engine::Trace, to: *mut *mut Trace) {
    if to.is_null() {
        return;
    }
    let trace = Box::new(Trace {
        reasons: string(trace.reasons.to_string()),
        skip_reason: trace
            .skip_reason
            .clone()
            .map(|why| string(why.into_owned())),
        tier: string(trace.tier.word().to_owned()),
        text: CString::default(),
        trace,
    });
    // SAFETY: the caller's promise.
    unsafe { to.write(Box::into_raw(trace)) };
}

/// The word of a reason's bit.
pub(crate) fn reason(bit: u32) -> *const c_char {
    static WORDS: LazyLock<Vec<CString>> = LazyLock::new(|| {
        let all = Reasons::all();
        all.map(|(_, word, _)| string(word.to_owned())).collect()
    });
    let word = place(bit).and_then(|(place, _)| WORDS.get(place));
    word.map_or(null(), |word| word.as_ptr())
}

impl Trace {
    fn info(&self) -> Info {
        let trace = &self.trace;
        Info {
            size: 0,
            complete: u32::from(trace.is_complete()),
            reasons: trace.reasons.bits(),
            reserved: 0,
            instructions: trace.counted,
            steps: trace.steps.len() as u64,
            distinct: trace.code.len() as u64,
            traps: trace.traps,
            reasons_text: self.reasons.as_ptr(),
            skip_reason: self.skip_reason.as_ref().map_or(null(), |why| why.as_ptr()),
            tier: self.tier.as_ptr(),
        }
    }

    fn step(&self, step: &Ran) -> Step {
        let code = self.trace.code_of(step);
        let seen = code.map_or(&[][..], |code| code.bytes.as_slice());
        let mut bytes = [0; 15];
        for (to, from) in bytes.iter_mut().zip(seen) {
            *to = *from;
        }
        Step {
            addr: code.map_or(0, |code| code.addr),
            next: step.next,
            count: step.count,
            len: u8::try_from(seen.len()).unwrap_or(0),
            bytes,
            reserved: 0,
        }
    }

    fn render(&mut self, how: u32, syntax: u32, lines: usize) -> Result<(), Code> {
        let syntax = match syntax {
            types::SCALPEL_SYNTAX_INTEL => Syntax::Intel,
            types::SCALPEL_SYNTAX_ATT => Syntax::Att,
            _ => return Err(SCALPEL_SCOPE_INVALID),
        };
        let mut symbols = ProcessSymbols::new();
        let lines = if lines == 0 {
            render::TREE_LINES
        } else {
            lines
        };
        let text = match how {
            types::SCALPEL_TRACE_TREE => render::tree(&self.trace, &mut symbols, lines),
            types::SCALPEL_TRACE_FULL => render::full(&self.trace, &mut symbols, syntax),
            types::SCALPEL_TRACE_JSON => render::json(&self.trace, &mut symbols, syntax)
                .map_err(|_fault| types::SCALPEL_SCOPE_INTERNAL)?,
            _ => return Err(SCALPEL_SCOPE_INVALID),
        };
        self.text = string(text);
        Ok(())
    }
}

/// No text of ours holds a NUL; one of a symbol's name would end it.
fn string(text: String) -> CString {
    let upto = text.split('\0').next().unwrap_or_default();
    CString::new(upto).unwrap_or_default()
}

/// Writes as many of `all` as there is room for, and how many there are.
///
/// # Safety
/// `to` has room for `room`; `count` is writable, or null.
unsafe fn fill<T>(
    all: impl Iterator<Item = T>,
    to: *mut T,
    room: usize,
    count: *mut usize,
) -> Result<(), Code> {
    if room > 0 && to.is_null() || count.is_null() {
        return Err(SCALPEL_SCOPE_INVALID);
    }
    let mut many = 0;
    for item in all {
        if many < room {
            // SAFETY: below `room`.
            unsafe { to.add(many).write_unaligned(item) };
        }
        many += 1;
    }
    // SAFETY: the caller's promise.
    unsafe { count.write(many) };
    Ok(())
}
