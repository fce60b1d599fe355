//! The exit table: how the end of each function's calls may be seen, and why (process x image x function).
//!
//! A return probe replaces the return address by a trampoline. An unwinder that meets it aborts the program, code
//! that reads its own return address is misled, and code that moves the stack pointer away leaves it behind. So a
//! return probe is used only where none of this can happen, and each decision carries its proof or its obstacle.
//! What is survived: `longjmp` past a probed frame (the kernel prunes return probes whose slot is below the stack
//! pointer) and signal handlers (their own calls nest above; a handler on another stack is refused by the stack guard
//! in BPF).

use super::flow::EscapeKind;
use super::functions::ImageFunction;
use super::returns::Returns;
use super::unwind::Cfa;
use super::{Image, KernelRelease};
use crate::function::ExitStrategy;
use serde::{Deserialize, Serialize};

/// What the user asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExitRequest {
    /// Return probes where they are proven safe.
    #[default]
    Default,
    /// Probes on `ret` instructions.
    Ret,
    /// Entries only.
    None,
    /// Return probes also where they are not proven safe; never where they are known to kill.
    ForceReturn,
}

/// What is known of the process that maps the image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFacts {
    /// Names of *other* mapped images that throw or catch (C++, Rust ...): their exceptions may pass this image.
    pub throwing_images: Vec<String>,
    /// `Seccomp:` in `/proc/PID/status` is not 0.
    pub seccomp: bool,
    /// `shstk` in `x86_Thread_features`.
    pub shadow_stack: bool,
    /// The running kernel.
    pub kernel: KernelRelease,
    /// The main executable runs code on stacks that it made itself: any function may be called on one.
    pub switches_stacks: bool,
    /// Some image of the process is Go: its goroutine stacks move, and calls from there reach this image.
    pub go: bool,
}

/// Why a strategy was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// No image of the process has a C++ or Rust personality routine.
    NothingThrows,
    /// An exception cannot pass: the closure over direct calls reaches no throw, no import that may, no pointer.
    CannotBePassed,
    /// Forced, against this obstacle.
    Forced(Box<Self>),
    /// Probes on `ret` were asked for.
    RetRequested,
    /// Entries only were asked for.
    EntriesRequested,
    /// The function is not probed, so that its end is not either.
    NotProbed,
    /// Go moves its stacks and checks return addresses.
    Go,
    /// The image holds a language runtime (this one) that looks up return addresses on the stack.
    StackWalker(&'static str),
    /// Under seccomp the kernel's return trampoline is a forbidden system call on this release.
    Seccomp(KernelRelease),
    /// The kernel does not keep the shadow stack in step before 6.11.
    ShadowStack(KernelRelease),
    /// Returns twice, unwinds or switches stacks by its documented purpose.
    KnownByName,
    /// Reads or changes its own return address.
    TouchesReturnAddress,
    /// Loads the stack pointer from elsewhere.
    SwitchesStack,
    /// Its image, or the main executable, makes stacks of its own (by this function) and switches between them. The
    /// stack guard in BPF tells such a stack by its distance from the thread's, which is not always far.
    CoroutineStacks(&'static str),
    /// Has neither a `ret` nor a jump out.
    NeverReturns,
    /// At its first instruction the return address is not at `[rsp]`, says the unwind table.
    UnusualFrame,
    /// Part of it is no code that can be decoded.
    Undecodable,
    /// An exception may pass: how.
    MayBePassed(String),
}

impl std::fmt::Display for ExitReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NothingThrows => {
                f.write_str("no image of the process throws; longjmp and signals are survived")
            }
            Self::CannotBePassed => f.write_str(
                "no exception can pass: all code it reaches is known and throws nothing",
            ),
            Self::Forced(obstacle) => write!(f, "forced, although {obstacle}"),
            Self::RetRequested => f.write_str("ret instructions were asked for"),
            Self::EntriesRequested => f.write_str("entries only were asked for"),
            Self::NotProbed => f.write_str("not probed"),
            Self::Go => f.write_str("Go moves stacks: a return probe would crash it"),
            Self::StackWalker(runtime) => {
                write!(
                    f,
                    "the {runtime} runtime looks up return addresses: a strange one ends it"
                )
            }
            Self::Seccomp(kernel) => write!(
                f,
                "kernel {kernel} lets seccomp kill a process at its return probe"
            ),
            Self::ShadowStack(kernel) => write!(
                f,
                "kernel {kernel} has no return probes under a shadow stack"
            ),
            Self::KnownByName => f.write_str("returns twice, unwinds or switches stacks"),
            Self::TouchesReturnAddress => f.write_str("uses its own return address"),
            Self::SwitchesStack => f.write_str("loads the stack pointer from elsewhere"),
            Self::CoroutineStacks(how) => {
                write!(f, "the program switches between stacks of its own ({how})")
            }
            Self::NeverReturns => f.write_str("never returns: it has no ret and no jump out"),
            Self::UnusualFrame => f.write_str("the return address is not at [rsp] at its entry"),
            Self::Undecodable => f.write_str("part of it is data or unknown code"),
            Self::MayBePassed(how) => write!(f, "an exception may pass: {how}"),
        }
    }
}

/// How one function's end is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitPlan {
    /// Strategy.
    pub strategy: ExitStrategy,
    /// Why.
    pub reason: ExitReason,
    /// File offsets of the `ret` instructions to probe, in bytes; only for [`ExitStrategy::RetOffsets`].
    pub ret_offsets: Vec<u64>,
    /// The function also ends by jumps into others: such calls have no EXIT of their own and are closed by their
    /// parent. Return probes see them.
    pub unseen_exits: bool,
}

impl ExitPlan {
    fn plain(strategy: ExitStrategy, reason: ExitReason) -> Self {
        Self {
            strategy,
            reason,
            ret_offsets: Vec::new(),
            unseen_exits: false,
        }
    }

    /// For a function that is not probed.
    pub(super) fn not_probed() -> Self {
        Self::plain(ExitStrategy::None, ExitReason::NotProbed)
    }
}

/// Decides for one function (by index).
pub(super) fn decide(
    image: &Image<'_>,
    index: usize,
    request: ExitRequest,
    process: &ProcessFacts,
) -> ExitPlan {
    if request == ExitRequest::None {
        return ExitPlan::plain(ExitStrategy::EntryOnly, ExitReason::EntriesRequested);
    }
    if image.is_go() {
        return ExitPlan::plain(ExitStrategy::EntryOnly, ExitReason::Go);
    }
    if let Some(runtime) = image.stack_walker() {
        return ExitPlan::plain(ExitStrategy::EntryOnly, ExitReason::StackWalker(runtime));
    }
    let Some(function) = image.functions().get(index) else {
        return ExitPlan::not_probed();
    };
    if let Some(reason) = intrinsic(image, function, index) {
        return ExitPlan::plain(ExitStrategy::EntryOnly, reason);
    }
    if request == ExitRequest::Ret {
        return ret_offsets(image, index);
    }
    if let Some(reason) = forbidden(process) {
        return ExitPlan::plain(ExitStrategy::EntryOnly, reason);
    }
    match proof(image, index, process) {
        Ok(reason) => ExitPlan::plain(ExitStrategy::Return, reason),
        Err(obstacle) if request == ExitRequest::ForceReturn => {
            ExitPlan::plain(ExitStrategy::Return, ExitReason::Forced(Box::new(obstacle)))
        }
        Err(obstacle) => ExitPlan::plain(ExitStrategy::EntryOnly, obstacle),
    }
}

/// What the function itself forbids, in any process.
fn intrinsic(image: &Image<'_>, function: &ImageFunction, index: usize) -> Option<ExitReason> {
    let analysis = image.analysis();
    let traits = analysis.flow.traits.get(index).copied().unwrap_or_default();
    let cfa = analysis.unwind.cursor().at(function.vaddr);
    let signal_frame = analysis
        .unwind
        .covering(function.vaddr)
        .is_some_and(|fde| fde.signal_frame);
    if function.raw_names().any(is_special) {
        Some(ExitReason::KnownByName)
    } else if cfa.is_some_and(|cfa| cfa != Cfa::ENTRY) || signal_frame {
        Some(ExitReason::UnusualFrame)
    } else if traits.touches_return_address {
        Some(ExitReason::TouchesReturnAddress)
    } else if traits.switches_stack {
        Some(ExitReason::SwitchesStack)
    } else if traits.undecodable {
        Some(ExitReason::Undecodable)
    } else if !traits.returns && !traits.tail_jumps {
        Some(ExitReason::NeverReturns)
    } else {
        None
    }
}

/// What kernel and process forbid for every function. Linux fix cf6cb56ef244 (6.12.14, 6.13.3, 6.14) lets the
/// return trampoline's system call through seccomp; 6.11 brought the system call, and the shadow-stack support.
fn forbidden(process: &ProcessFacts) -> Option<ExitReason> {
    let kernel = process.kernel;
    let in_range = |from: KernelRelease, fixed: KernelRelease| kernel >= from && kernel < fixed;
    let killed = in_range(KernelRelease(6, 11, 0), KernelRelease(6, 12, 14))
        || in_range(KernelRelease(6, 13, 0), KernelRelease(6, 13, 3));
    if process.go {
        Some(ExitReason::Go)
    } else if process.seccomp && killed {
        Some(ExitReason::Seccomp(kernel))
    } else if process.shadow_stack && kernel < KernelRelease(6, 11, 0) {
        Some(ExitReason::ShadowStack(kernel))
    } else {
        None
    }
}

fn proof(
    image: &Image<'_>,
    index: usize,
    process: &ProcessFacts,
) -> Result<ExitReason, ExitReason> {
    if process.switches_stacks {
        return Err(ExitReason::CoroutineStacks("in the main executable"));
    }
    if let Some(how) = image.makes_stacks() {
        return Err(ExitReason::CoroutineStacks(how));
    }
    if process.throwing_images.is_empty() && !image.can_throw() {
        return Ok(ExitReason::NothingThrows);
    }
    let analysis = image.analysis();
    let Some(&Some(reach)) = analysis.reach.get(index) else {
        return Ok(ExitReason::CannotBePassed);
    };
    let how = escape_text(image, reach.escape.kind, reach.escape.at);
    let through = reach
        .through
        .and_then(|callee| image.functions().get(callee as usize));
    Err(ExitReason::MayBePassed(match through {
        Some(callee) => format!("through {}, {how}", callee.name()),
        None => how,
    }))
}

fn escape_text(image: &Image<'_>, kind: EscapeKind, at: u64) -> String {
    match kind {
        EscapeKind::Import { word } => match image.import_at(word) {
            Some(name) => format!("it calls the import {name}"),
            None => format!("it calls an import at {at:#x}"),
        },
        EscapeKind::IndirectCall => format!("it calls through a pointer at {at:#x}"),
        EscapeKind::IndirectJump => format!("it jumps through a pointer at {at:#x}"),
        EscapeKind::UnknownTarget { target } => format!("it calls unknown code at {target:#x}"),
        EscapeKind::Undecodable => format!("its code at {at:#x} cannot be decoded"),
    }
}

fn ret_offsets(image: &Image<'_>, index: usize) -> ExitPlan {
    let Returns { offsets, unseen } = Returns::of(image, index);
    if offsets.is_empty() {
        return ExitPlan {
            unseen_exits: unseen,
            ..ExitPlan::plain(ExitStrategy::EntryOnly, ExitReason::NeverReturns)
        };
    }
    ExitPlan {
        ret_offsets: offsets,
        unseen_exits: unseen,
        ..ExitPlan::plain(ExitStrategy::RetOffsets, ExitReason::RetRequested)
    }
}

/// Functions whose documented purpose is to return twice, to unwind, to leave by another stack, to look at return
/// addresses, or never to return in the ordinary way.
fn is_special(raw_name: &str) -> bool {
    const NAMES: &[&str] = &[
        "setjmp",
        "_setjmp",
        "__setjmp",
        "sigsetjmp",
        "__sigsetjmp",
        "__sigjmp_save",
        "longjmp",
        "_longjmp",
        "siglongjmp",
        "__longjmp",
        "__longjmp_chk",
        "____longjmp_chk",
        "__libc_longjmp",
        "__libc_siglongjmp",
        "getcontext",
        "setcontext",
        "swapcontext",
        "makecontext",
        "__start_context",
        "vfork",
        "__vfork",
        "__libc_vfork",
        "clone",
        "__clone",
        "clone3",
        "__clone3",
        "__clone_internal",
        "__restore_rt",
        "__libc_start_main",
        "__libc_start_call_main",
        "_start",
        "start_thread",
        "pthread_exit",
        "__pthread_exit",
        "__pthread_unwind",
        "__do_cancel",
        "dlopen",
        "dlmopen",
        "dlsym",
        "dlvsym",
        "__dlsym",
        "__dlvsym",
        "dl_iterate_phdr",
        "mcount",
        "_mcount",
        "__fentry__",
        "__morestack",
        "__gnu_mcount_nc",
        "jump_fcontext",
        "make_fcontext",
        "ontop_fcontext",
        "coro_transfer",
        "co_switch",
        "_dl_runtime_resolve",
        "__tls_get_addr_slow",
        "rust_eh_personality",
        "__gxx_personality_v0",
        "__gcc_personality_v0",
    ];
    const PREFIXES: &[&str] = &[
        "_Unwind_",
        "__cxa_throw",
        "__cxa_rethrow",
        "__cxa_end_catch",
        "__cxa_call_",
        "_ITM_",
        "__x86_indirect_thunk",
        "__x86_return_thunk",
        "__llvm_retpoline",
        "_dl_runtime_resolve_",
        "_dl_tlsdesc_",
        "__tsan_func_",
        "__GI_longjmp",
    ];
    let plain = raw_name.strip_prefix("__GI_").unwrap_or(raw_name);
    NAMES.contains(&plain) || PREFIXES.iter().any(|prefix| raw_name.starts_with(prefix))
}
