//! A SIGTRAP that is not a step goes to who was there before, as the kernel would have given it: with the mask and on the
//! stack that its action says. Runs in the handler: no libc, no lock, no allocation.
use super::cure::{Cure, holds};
use super::thread::Thread;
use super::trap::{self, Action};
use super::{doors, guard, sys};

const SA_SIGINFO: u64 = 0x4;
const SA_ONSTACK: u64 = 0x0800_0000;
const SA_NODEFER: u64 = 0x4000_0000;
const SA_RESETHAND: u64 = 0x8000_0000;
const DEFAULT: u64 = 0;
const IGNORE: u64 = 1;
const RED_ZONE: u64 = 128;
const EVERY_SIGNAL: u64 = u64::MAX;

/// A signal as it came.
#[derive(Clone, Copy)]
struct Came {
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
}

/// Calls who was there before. What is forced by the processor kills where nobody was.
pub(super) fn hand_on(
    thread: Option<&mut Thread>,
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
    forced: bool,
) {
    let action = trap::former();
    let came = Came {
        signal,
        info,
        context,
    };
    match action.handler {
        _ if !holds(Cure::ForeignHandedOn) => {}
        DEFAULT => die(),
        IGNORE if forced => die(),
        IGNORE => {}
        _ => {
            if action.flags & SA_RESETHAND != 0 {
                trap::set_former(Action {
                    handler: DEFAULT,
                    ..action
                });
            }
            give(thread, action, came);
        }
    }
}

/// With the mask that the kernel would set, and the program's own in the frame.
fn give(thread: Option<&mut Thread>, action: Action, came: Came) {
    // SAFETY: the kernel's frame of this call; its mask is the first 64 bits of a longer field.
    let frame = unsafe { &mut *(&raw mut (*came.context).uc_sigmask).cast::<u64>() };
    let wish = thread.as_ref().is_some_and(|thread| thread.wish);
    if wish {
        *frame |= guard::SIGTRAP_BIT;
    }
    let own = if action.flags & SA_NODEFER == 0 {
        guard::SIGTRAP_BIT
    } else {
        0
    };
    let top = top(thread.as_deref(), action, came.context);
    if holds(Cure::ForeignAsKernel) {
        set_mask(*frame | action.mask | own);
    }
    call(action, came, top.filter(|_| holds(Cure::ForeignAsKernel)));
    set_mask(EVERY_SIGNAL);
    if let Some(thread) = thread {
        thread.wish = *frame & guard::SIGTRAP_BIT != 0;
        *frame &= !guard::SIGTRAP_BIT;
    }
}

fn call(action: Action, came: Came, top: Option<u64>) {
    let Came {
        signal,
        info,
        context,
    } = came;
    if let Some(top) = top {
        // SAFETY: the program gave this address as a handler; `top` is of a stack that the kernel would have used.
        unsafe { doors::on_stack(action.handler, signal, info, context, top) };
    } else if action.flags & SA_SIGINFO != 0 {
        // SAFETY: the program gave this address as such a handler.
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::ucontext_t) =
            unsafe { std::mem::transmute(action.handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: the program gave this address as such a handler.
        let handler: extern "C" fn(i32) = unsafe { std::mem::transmute(action.handler) };
        handler(signal);
    }
}

/// Where the kernel would have put the handler's frame; `None` if we stand on that stack ourselves.
fn top(thread: Option<&Thread>, action: Action, context: *mut libc::ucontext_t) -> Option<u64> {
    // SAFETY: the kernel's frame of this call.
    let context = unsafe { &*context };
    let now = context.uc_stack;
    let wanted = thread.and_then(|thread| thread.old_stack).unwrap_or(now);
    let sp = context.uc_mcontext.gregs[15].cast_unsigned();
    let here = (&raw const sp) as u64;
    if action.flags & SA_ONSTACK != 0 && is_set(&wanted) && !holds_address(&wanted, sp) {
        let top = wanted.ss_sp as u64 + wanted.ss_size as u64;
        return (!holds_address(&wanted, here)).then_some(top);
    }
    let ours = is_set(&now) && holds_address(&now, here) && !holds_address(&now, sp);
    ours.then_some(sp.wrapping_sub(RED_ZONE))
}

fn is_set(stack: &libc::stack_t) -> bool {
    stack.ss_flags & libc::SS_DISABLE == 0 && stack.ss_size > 0
}

fn holds_address(stack: &libc::stack_t, addr: u64) -> bool {
    addr.wrapping_sub(stack.ss_sp as u64) < stack.ss_size as u64
}

fn set_mask(mask: u64) {
    // SAFETY: the mask lives through the call.
    unsafe {
        sys::call(
            sys::nr::RT_SIGPROCMASK,
            [2, (&raw const mask) as u64, 0, 8, 0, 0],
        )
    };
}

/// What the kernel would have done: the process dies of SIGTRAP.
fn die() {
    let default = Action::default();
    if trap::sigaction(Some(&default), None).is_err() {
        return;
    }
    let trap = u64::from(libc::SIGTRAP.unsigned_abs());
    let (pid, tid) = (u64::from(sys::getpid()), u64::from(sys::gettid()));
    // SAFETY: a signal to this very thread.
    unsafe { sys::call(234, [pid, tid, trap, 0, 0, 0]) };
    set_mask(!guard::SIGTRAP_BIT);
}
