//! ENTER and EXIT of functions.

use core::ffi::c_void;

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::generated::{
    bpf_get_attach_cookie, bpf_get_current_pid_tgid, bpf_get_func_ip,
};
use aya_ebpf::programs::ProbeContext;
use aya_log_ebpf::debug;
use scalpel_common::event::{Kind, flags};
use scalpel_common::kernel::{LossClass, ThreadState, cookie_func, cookie_generation};

use crate::emit::{self, What};
use crate::{guard, thread};

/// A session program's answer at an entry: the return shall be probed.
pub(crate) const PROBE_RETURN: u32 = 0;

/// A session program's answer at an entry: leave the return alone. No trampoline is put on the stack.
pub(crate) const LEAVE_RETURN: u32 = 1;

/// One run of a call program.
pub(crate) struct Hit {
    ctx: *mut c_void,
    regs: *const pt_regs,
}

impl Hit {
    /// From the context that the kernel gives.
    #[inline(always)]
    pub(crate) const fn new(ctx: *mut c_void) -> Self {
        Self {
            ctx,
            regs: ctx.cast(),
        }
    }

    /// Whether this is the return, in a session: at an entry the instruction pointer is the probed address.
    #[inline(always)]
    pub(crate) fn is_return(&self) -> bool {
        // SAFETY: the helper takes the program's own context.
        let probed = unsafe { bpf_get_func_ip(self.ctx) };
        // SAFETY: the context is the registers.
        probed != unsafe { (*self.regs).rip }
    }

    /// The stack pointer.
    #[inline(always)]
    pub(crate) fn sp(&self) -> u64 {
        // SAFETY: the context is the registers.
        unsafe { (*self.regs).rsp }
    }

    /// The return value.
    #[inline(always)]
    pub(crate) fn returned(&self) -> u64 {
        // SAFETY: the context is the registers.
        unsafe { (*self.regs).rax }
    }

    /// The attach cookie.
    #[inline(always)]
    pub(crate) fn cookie(&self) -> u64 {
        // SAFETY: the helper takes the program's own context.
        unsafe { bpf_get_attach_cookie(self.ctx) }
    }
}

/// The running thread, in a watched process.
#[derive(Clone, Copy)]
pub(crate) struct Watched {
    /// Its state.
    pub(crate) state: *mut ThreadState,
}

/// The running thread, if the lease lasts and its process is watched.
#[inline(always)]
pub(crate) fn watched() -> Option<Watched> {
    let state = thread::current();
    (!state.is_null()).then_some(Watched { state })
}

/// The same at an entry, which is counted as a stranger's if the process is none of ours.
#[inline(always)]
pub(crate) fn watched_at(hit: &Hit) -> Option<Watched> {
    let watched = watched();
    if watched.is_none() {
        emit::foreign_hit(cookie_func(hit.cookie()));
    }
    watched
}

impl Watched {
    /// Notes which entry probe ran; false = a newer link's probe of the same function has counted this entry already.
    #[inline(always)]
    pub(crate) fn is_first(self, cookie: u64) -> bool {
        self.is_first_at(cookie_func(cookie), cookie)
    }

    /// The same for an exit probe. Entries and exits have links of their own, re-created one after the other: an exit
    /// by a newer link must not silence the next entry, which only the older one sees.
    #[inline(always)]
    pub(crate) fn is_first_exit(self, cookie: u64) -> bool {
        const EXIT: u32 = 1 << 31;
        self.is_first_at(cookie_func(cookie) | EXIT, cookie)
    }

    #[inline(always)]
    fn is_first_at(self, func: u32, cookie: u64) -> bool {
        let generation = cookie_generation(cookie);
        // SAFETY: the storage lives as long as the running thread, and only the thread's own programs use these fields.
        let state = unsafe { &mut *self.state };
        if state.last_func == func && state.last_generation > generation {
            return false;
        }
        state.last_func = func;
        state.last_generation = generation;
        true
    }

    /// Writes ENTER.
    #[inline(always)]
    pub(crate) fn enter(self, func: u32, frame: u64, site: u64, flags: u16) {
        emit::call(
            self.state,
            What::new(Kind::Enter, func, flags),
            frame,
            site,
            0,
        );
    }

    /// Writes EXIT.
    #[inline(always)]
    fn exit(self, func: u32, frame: u64, value: u64, flags: u16) {
        emit::call(
            self.state,
            What::new(Kind::Exit, func, flags),
            frame,
            0,
            value,
        );
    }

    /// EXIT after the return: it has taken the return address, 8 bytes, off the stack.
    #[inline(always)]
    fn exit_after_return(self, hit: &Hit) {
        self.exit(
            cookie_func(hit.cookie()),
            hit.sp().wrapping_sub(8),
            hit.returned(),
            0,
        );
    }
}

/// Whether the return of this entry may be probed; counts it if not (the entry's flags say whose it is).
#[inline(always)]
pub(crate) fn may_probe_return(hit: &Hit, frame: u64, site: u64) -> bool {
    let allowed = guard::allows(frame, site);
    if !allowed {
        emit::count_class(LossClass::ReturnRefused);
        tell_refused(hit.ctx, frame);
    }
    allowed
}

/// ENTER and EXIT in one program.
#[inline(always)]
pub(crate) fn session(hit: &Hit) -> u32 {
    if hit.is_return() {
        if let Some(watched) = watched() {
            watched.exit_after_return(hit);
        }
        return PROBE_RETURN;
    }
    let Some(watched) = watched_at(hit) else {
        return LEAVE_RETURN;
    };
    let cookie = hit.cookie();
    if !watched.is_first(cookie) {
        return LEAVE_RETURN;
    }
    let (func, frame) = (cookie_func(cookie), hit.sp());
    emit::hit(func);
    let site = guard::read_user(frame);
    if may_probe_return(hit, frame, site) {
        watched.enter(func, frame, site, 0);
        PROBE_RETURN
    } else {
        watched.enter(func, frame, site, flags::NO_EXIT | flags::RETURN_REFUSED);
        LEAVE_RETURN
    }
}

/// ENTER, and no EXIT ever.
#[inline(always)]
pub(crate) fn entry_only(hit: &Hit) -> u32 {
    entry(hit, flags::NO_EXIT)
}

/// ENTER; [`ret`] or [`returned`] writes the EXIT.
#[inline(always)]
pub(crate) fn enter(hit: &Hit) -> u32 {
    entry(hit, 0)
}

#[inline(always)]
fn entry(hit: &Hit, flags: u16) -> u32 {
    let Some(watched) = watched_at(hit) else {
        return 0;
    };
    let cookie = hit.cookie();
    if watched.is_first(cookie) {
        let (func, frame) = (cookie_func(cookie), hit.sp());
        emit::hit(func);
        watched.enter(func, frame, guard::read_user(frame), flags);
    }
    0
}

/// EXIT at a `ret` that has not run yet: the stack pointer is the entry's.
#[inline(always)]
pub(crate) fn ret(hit: &Hit) -> u32 {
    let Some(watched) = watched() else { return 0 };
    let cookie = hit.cookie();
    if watched.is_first_exit(cookie) {
        watched.exit(
            cookie_func(cookie),
            hit.sp(),
            hit.returned(),
            flags::RET_OFFSET,
        );
    }
    0
}

/// EXIT by a return probe without a session.
#[inline(always)]
pub(crate) fn returned(hit: &Hit) -> u32 {
    let Some(watched) = watched() else { return 0 };
    if watched.is_first_exit(hit.cookie()) {
        watched.exit_after_return(hit);
    }
    0
}

/// For `-vv`. The level is a constant for the verifier, which cuts all this out of programs that need not speak.
#[inline(never)]
fn tell_refused(ctx: *mut c_void, frame: u64) {
    // SAFETY: the helper has no precondition.
    let tid = unsafe { bpf_get_current_pid_tgid() } as u32;
    debug!(
        &ProbeContext::new(ctx),
        "thread {}: the return of the call at {:x} is left alone", tid, frame
    );
}
