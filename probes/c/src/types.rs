//! What crosses the border: plain structures and numbers. A structure begins with its size as the caller knows it, so
//! that either side may be the older one.
use std::ffi::{c_char, c_void};

/// Version of this interface. Numbers and fields are appended; what there is does not change.
pub const SCALPEL_SCOPE_ABI: u32 = 1;

/// Done.
pub const SCALPEL_SCOPE_OK: i32 = 0;
/// An argument is null, unknown or contradicts another.
pub const SCALPEL_SCOPE_INVALID: i32 = -1;
/// The scope is closed already.
pub const SCALPEL_SCOPE_ALREADY_CLOSED: i32 = -2;
/// A scope opened within this one is still open; close that one first.
pub const SCALPEL_SCOPE_WRONG_ORDER: i32 = -3;
/// The scope belongs to another thread; close it there.
pub const SCALPEL_SCOPE_OTHER_THREAD: i32 = -4;
/// No scope ever had this handle.
pub const SCALPEL_SCOPE_NO_SUCH_SCOPE: i32 = -5;
/// No function of known size is there.
pub const SCALPEL_SCOPE_NO_SYMBOL: i32 = -6;
/// A fault of the library itself; the scope records nothing more.
pub const SCALPEL_SCOPE_INTERNAL: i32 = -7;

/// Everything that the thread, or a call, runs.
pub const SCALPEL_SCOPE_FORM_ALL: u32 = 0;
/// Only the instructions from `start` up to `end`.
pub const SCALPEL_SCOPE_FORM_REGION: u32 = 1;

/// The most faithful tier that is there.
pub const SCALPEL_SCOPE_BACKEND_AUTO: u32 = 0;
/// EFLAGS.TF and SIGTRAP in the process itself.
pub const SCALPEL_SCOPE_BACKEND_SINGLE_STEP: u32 = 1;
/// Intel Processor Trace.
pub const SCALPEL_SCOPE_BACKEND_INTEL_PT: u32 = 2;
/// AMD last branch records.
pub const SCALPEL_SCOPE_BACKEND_AMD_LBR: u32 = 3;

/// On close a folded call tree of at most 40 lines is written to file descriptor 1.
pub const SCALPEL_SCOPE_EMIT_STDOUT: u32 = 0;
/// Nothing is written.
pub const SCALPEL_SCOPE_EMIT_OFF: u32 = 1;

/// Close, or say why that is not possible.
pub const SCALPEL_SCOPE_END_CLOSE: u32 = 0;
/// For destructors: a wrong order or another thread become reasons of the trace, and the handle is gone.
pub const SCALPEL_SCOPE_END_ABANDON: u32 = 1;
/// As `ABANDON`, because the code inside is suspended (an await) and other code runs on this thread.
pub const SCALPEL_SCOPE_END_SUSPEND: u32 = 2;

/// The folded call tree, in at most `lines` lines (0 = 40).
pub const SCALPEL_TRACE_TREE: u32 = 0;
/// Each distinct instruction once, with how often it ran.
pub const SCALPEL_TRACE_FULL: u32 = 1;
/// One JSON object with every step in order.
pub const SCALPEL_TRACE_JSON: u32 = 2;

/// `mov rax, [rdi]`
pub const SCALPEL_SYNTAX_INTEL: u32 = 0;
/// `mov (%rdi), %rax`
pub const SCALPEL_SYNTAX_ATT: u32 = 1;

/// How a scope is opened. All zero but `size` is a window of the default budget.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Request {
    /// `sizeof` this structure, as the caller knows it.
    pub size: u32,
    /// `SCALPEL_SCOPE_FORM_*`.
    pub form: u32,
    /// First address of the region.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// `SCALPEL_SCOPE_BACKEND_*`.
    pub backend: u32,
    /// `SCALPEL_SCOPE_EMIT_*`.
    pub emit: u32,
    /// Most traps; 0 = 100,000, which is also the most.
    pub max_traps: u64,
    /// Most wall time since the open in ns; 0 = 1 s.
    pub max_time_ns: u64,
    /// The call site: full path of the source, UTF-8, or null. Copied.
    pub file: *const c_char,
    /// Its line; 0 = not known.
    pub line: u32,
    /// Its column; 0 = not known.
    pub column: u32,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            size: 0,
            form: 0,
            start: 0,
            end: 0,
            backend: 0,
            emit: 0,
            max_traps: 0,
            max_time_ns: 0,
            file: std::ptr::null(),
            line: 0,
            column: 0,
        }
    }
}

/// What is known of a trace. Strings live as long as the trace.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Info {
    /// `sizeof` this structure, as the caller knows it.
    pub size: u32,
    /// 1 = something was recorded, and all of it: the interrupted flow of this thread, signal handlers excluded.
    pub complete: u32,
    /// `SCALPEL_REASON_*` bits: why something may be missing.
    pub reasons: u32,
    /// 0.
    pub reserved: u32,
    /// How many instructions ran, iterations of `rep` each.
    pub instructions: u64,
    /// How many steps there are: a `rep` instruction in a row is one.
    pub steps: u64,
    /// How many distinct instructions.
    pub distinct: u64,
    /// How many traps the scope took.
    pub traps: u64,
    /// Words of `reasons`, joined by ", "; "" = none.
    pub reasons_text: *const c_char,
    /// Why nothing was recorded; null = something was.
    pub skip_reason: *const c_char,
    /// How it was seen: "single-step", "none" ...
    pub tier: *const c_char,
}

/// One instruction that ran.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Step {
    /// Its address.
    pub addr: u64,
    /// What ran next.
    pub next: u64,
    /// How often in a row: above 1 only for `rep` string instructions.
    pub count: u32,
    /// Length of the instruction in bytes.
    pub len: u8,
    /// Its bytes as they were when it ran; zeros behind.
    pub bytes: [u8; 15],
    /// 0.
    pub reserved: u32,
}

/// What all passes of a call site took.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Totals {
    /// `sizeof` this structure, as the caller knows it.
    pub size: u32,
    /// 0.
    pub reserved: u32,
    /// Scopes that were opened there, skipped ones with them.
    pub passes: u64,
    /// Their traps.
    pub traps: u64,
    /// What their threads ran between open and close, where they took traps, in ns.
    pub time_ns: u64,
}

/// The address of a function.
pub(crate) type Function = *const c_void;

const _: () = assert!(size_of::<Request>() == 64, "the first version's size");
const _: () = assert!(size_of::<Info>() == 72, "the first version's size");
const _: () = assert!(
    size_of::<Step>() == 40,
    "steps are an array: this never changes"
);
const _: () = assert!(size_of::<Totals>() == 32, "the first version's size");
