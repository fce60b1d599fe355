//! Opening and closing scopes, and calls within one. Each function pauses the stepping of its thread first.
use std::ffi::{CStr, c_char};
use std::time::Duration;

use engine::handles::{self, Handle, Pause};
use engine::trace::Form;
use engine::{Budget, Code as Range, Emit, Ending, HwBackend, Options, Reasons, Site};

use crate::guard::{Code, code, guarded, read, write};
use crate::trace::{Trace, hand_over, none_yet};
use crate::types::{self, Function, Request, SCALPEL_SCOPE_INVALID, Totals};

/// Integer arguments of a traced call.
const MOST_ARGS: usize = 6;

/// The version of the interface that this library has: at least the `SCALPEL_SCOPE_ABI` that you were built with.
#[unsafe(no_mangle)]
pub extern "C" fn scalpel_scope_abi() -> u32 {
    types::SCALPEL_SCOPE_ABI
}

/// Opens a scope on this thread and writes its handle. What cannot be recorded is no error: the trace says why
/// (`skip_reason`). Every handle is to be closed once. `INVALID` opens none and writes 0.
///
/// # Safety
/// `request` is null or points to as many bytes as its `size` says, its `file` is null or a C string; `handle` is null
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scalpel_scope_open(request: *const Request, handle: *mut u64) -> i32 {
    let pause = Pause::begin();
    let code = guarded(|| {
        if handle.is_null() {
            return Err(SCALPEL_SCOPE_INVALID);
        }
        // SAFETY: the caller's promise.
        unsafe { handle.write(0) };
        // SAFETY: the caller's promise.
        let asked = unsafe { Asked::read(request, Form::Window)? };
        let opened = handles::open(&pause, asked.form, asked.options, asked.site);
        // SAFETY: the caller's promise.
        unsafe { handle.write(opened.number()) };
        Ok(())
    });
    drop(pause);
    code
}

/// Ends a scope (`SCALPEL_SCOPE_END_*`) and writes its trace, which is yours to free; a null `trace` is for those who do
/// not want it. On an error it is set to null; after `WRONG_ORDER` and `OTHER_THREAD` the scope is still open.
///
/// # Safety
/// `trace` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scalpel_scope_close(handle: u64, end: u32, trace: *mut *mut Trace) -> i32 {
    let pause = Pause::begin();
    let result = guarded(|| {
        // SAFETY: the caller's promise.
        unsafe { none_yet(trace) };
        let ending = match end {
            types::SCALPEL_SCOPE_END_CLOSE => Ending::Close,
            types::SCALPEL_SCOPE_END_ABANDON => Ending::Abandon,
            types::SCALPEL_SCOPE_END_SUSPEND => Ending::Suspend,
            _ => return Err(SCALPEL_SCOPE_INVALID),
        };
        let closed = handles::close(&pause, Handle::of(handle), ending).map_err(code)?;
        // SAFETY: the caller's promise.
        unsafe { hand_over(closed, trace) };
        Ok(())
    });
    drop(pause);
    result
}

/// Calls the C function at `function` with `count` integer arguments (at most 6) in a scope of its own: it is armed just
/// before and closed just behind, so that nothing else is in the trace. `FORM_ALL` shows all that the call ran. `result`
/// and `trace` may be null. If the call is not made, the code says why.
///
/// # Safety
/// As for `open` and `close`; `args` are `count` readable numbers; the function is sound with them, and it returns: it
/// does not unwind or jump out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scalpel_scope_call(
    request: *const Request,
    function: Function,
    args: *const u64,
    count: usize,
    result: *mut u64,
    trace: *mut *mut Trace,
) -> i32 {
    let pause = Pause::begin();
    let code = guarded(|| {
        // SAFETY: the caller's promise.
        unsafe { none_yet(trace) };
        if function.is_null() || count > MOST_ARGS || count > 0 && args.is_null() {
            return Err(SCALPEL_SCOPE_INVALID);
        }
        // SAFETY: the caller's promise.
        let asked = unsafe { Asked::read(request, Form::Call)? };
        let mut six = [0; MOST_ARGS];
        for (at, arg) in six.iter_mut().enumerate().take(count) {
            // SAFETY: `at` is below `count`, as many as there are.
            *arg = unsafe { args.add(at).read_unaligned() };
        }
        let call = (function as usize, &six);
        // SAFETY: the caller's promise.
        let (got, traced) =
            unsafe { handles::call(&pause, call, asked.form, asked.options, asked.site) };
        if !result.is_null() {
            // SAFETY: the caller's promise.
            unsafe { result.write(got) };
        }
        // SAFETY: the caller's promise.
        unsafe { hand_over(traced, trace) };
        Ok(())
    });
    drop(pause);
    code
}

/// The scopes of this thread stand still until `resume`: the code of a binding is in no trace. Pairs nest.
#[unsafe(no_mangle)]
pub extern "C" fn scalpel_scope_pause() {
    handles::pause();
}

/// Ends the last pause of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn scalpel_scope_resume() {
    handles::resume();
}

/// The range of the function that holds `address`, by the symbols of its file; `NO_SYMBOL` if they do not tell.
///
/// # Safety
/// `start` and `end` are writable, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scalpel_scope_function(
    address: Function,
    start: *mut u64,
    end: *mut u64,
) -> i32 {
    let pause = Pause::begin();
    let code = guarded(|| {
        if start.is_null() || end.is_null() {
            return Err(SCALPEL_SCOPE_INVALID);
        }
        let range = Range::function(address as usize).ok_or(types::SCALPEL_SCOPE_NO_SYMBOL)?;
        let Form::Region {
            start: from,
            end: to,
        } = range.region()
        else {
            return Err(types::SCALPEL_SCOPE_INTERNAL);
        };
        // SAFETY: the caller's promise.
        unsafe { start.write(from) };
        // SAFETY: the caller's promise.
        unsafe { end.write(to) };
        Ok(())
    });
    drop(pause);
    code
}

/// What all passes of the call site of `request` took.
///
/// # Safety
/// As for `open`; `totals` is null or points to as many bytes as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scalpel_scope_get_totals(
    request: *const Request,
    totals: *mut Totals,
) -> i32 {
    let pause = Pause::begin();
    let code = guarded(|| {
        // SAFETY: the caller's promise.
        let asked = unsafe { read(request, Request::default())? };
        // SAFETY: the caller's promise.
        let taken = unsafe { site(&asked) }.totals();
        let whole = Totals {
            passes: taken.passes,
            traps: taken.traps,
            time_ns: u64::try_from(taken.time.as_nanos()).unwrap_or(u64::MAX),
            ..Totals::default()
        };
        // SAFETY: the caller's promise.
        unsafe { write(totals, whole) }
    });
    drop(pause);
    code
}

/// A sentence for a code, for ever.
#[unsafe(no_mangle)]
pub extern "C" fn scalpel_scope_error(code: i32) -> *const c_char {
    let sentence = match code {
        types::SCALPEL_SCOPE_OK => c"done",
        SCALPEL_SCOPE_INVALID => {
            c"an argument is null, unknown, or contradicts another: see the header"
        }
        types::SCALPEL_SCOPE_ALREADY_CLOSED => {
            c"the scope is closed already: keep the trace of the first close"
        }
        types::SCALPEL_SCOPE_WRONG_ORDER => {
            c"a scope opened within this one is still open: close that one first"
        }
        types::SCALPEL_SCOPE_OTHER_THREAD => c"the scope belongs to another thread: close it there",
        types::SCALPEL_SCOPE_NO_SUCH_SCOPE => {
            c"no scope has this handle: pass the one that opening wrote"
        }
        types::SCALPEL_SCOPE_NO_SYMBOL => {
            c"no symbol of known size holds this address: give the range yourself"
        }
        types::SCALPEL_SCOPE_INTERNAL => c"a fault of the library itself",
        _ => c"unknown code: the library is newer than the caller",
    };
    sentence.as_ptr()
}

/// The word for one bit of `reasons` (0 to 31), for ever; null if this library has none for it.
#[unsafe(no_mangle)]
pub extern "C" fn scalpel_scope_reason(bit: u32) -> *const c_char {
    crate::trace::reason(bit)
}

/// A request, understood.
struct Asked {
    form: Form,
    options: Options,
    site: Site,
}

impl Asked {
    /// # Safety
    /// As for `open`.
    unsafe fn read(request: *const Request, all: Form) -> Result<Self, Code> {
        // SAFETY: the caller's promise.
        let request = unsafe { read(request, Request::default())? };
        let form = match request.form {
            types::SCALPEL_SCOPE_FORM_ALL => all,
            types::SCALPEL_SCOPE_FORM_REGION if request.start < request.end => Form::Region {
                start: request.start,
                end: request.end,
            },
            _ => return Err(SCALPEL_SCOPE_INVALID),
        };
        let options = options(&request)?;
        // SAFETY: the caller's promise.
        let site = unsafe { site(&request) };
        Ok(Self {
            form,
            options,
            site,
        })
    }
}

fn options(request: &Request) -> Result<Options, Code> {
    let backend = match request.backend {
        types::SCALPEL_SCOPE_BACKEND_AUTO => HwBackend::Auto,
        types::SCALPEL_SCOPE_BACKEND_SINGLE_STEP => HwBackend::SingleStep,
        types::SCALPEL_SCOPE_BACKEND_INTEL_PT => HwBackend::IntelPt,
        types::SCALPEL_SCOPE_BACKEND_AMD_LBR => HwBackend::AmdLbr,
        _ => return Err(SCALPEL_SCOPE_INVALID),
    };
    let emit = match request.emit {
        types::SCALPEL_SCOPE_EMIT_STDOUT => Emit::Stdout,
        types::SCALPEL_SCOPE_EMIT_OFF => Emit::Off,
        _ => return Err(SCALPEL_SCOPE_INVALID),
    };
    let mut budget = Budget::default();
    if request.max_traps > 0 {
        budget.traps = request.max_traps;
    }
    if request.max_time_ns > 0 {
        budget.time = Duration::from_nanos(request.max_time_ns);
    }
    Ok(Options {
        backend,
        budget,
        emit,
    })
}

/// # Safety
/// `file` is null or a C string.
unsafe fn site(request: &Request) -> Site {
    // A scope that is off needs no name, and no table of names.
    if handles::off() {
        return Site::nowhere();
    }
    if request.file.is_null() {
        return Site::at("(unknown)", request.line, request.column);
    }
    // SAFETY: the caller's promise.
    let file = unsafe { CStr::from_ptr(request.file) };
    Site::at(&file.to_string_lossy(), request.line, request.column)
}

/// The bit's place in the words of all reasons.
pub(crate) fn place(bit: u32) -> Option<(usize, &'static str)> {
    let wanted = 1_u32.checked_shl(bit)?;
    let mut all = Reasons::all().enumerate();
    all.find(|(_, (reason, ..))| reason.bits() == wanted)
        .map(|(place, (_, word, _))| (place, word))
}
