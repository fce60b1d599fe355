//! Whether the thread is in the region already, as a scope of it is opened: by the words of its stack, which may be left
//! over from calls that are long gone, and then by an unwinder, where that gets to the stack's end. Runs before a scope is
//! armed.
use std::ffi::{c_int, c_void};

use iced_x86::FlowControl;

use super::super::memory;
use super::landings;
use crate::flow;

/// Bytes of the stack that are looked at.
const MOST_STACK: usize = 8 << 20;
const CHUNK: usize = 64 * 1024;
/// Frames that are walked.
const MOST_FRAMES: u32 = 1_000;
const GO_ON: c_int = 0;
const STOP: c_int = 4;

/// Whether frames of the region may be on this thread's stack.
pub(super) fn are_on_stack(start: u64, end: u64) -> bool {
    may_be_on_stack(start, end) && !Walk::new(start, end).shows_none()
}

/// A walk over the frames of this thread.
struct Walk {
    region: (u64, u64),
    found: bool,
    frames: u32,
    /// The address in the last one.
    last: u64,
}

unsafe extern "C" {
    fn _Unwind_Backtrace(
        visit: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        walk: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}

impl Walk {
    fn new(start: u64, end: u64) -> Self {
        Self {
            region: (start, end),
            found: false,
            frames: 0,
            last: 0,
        }
    }

    /// Whether it gets from here to the outermost function, and none of the region's frames is on its way.
    fn shows_none(mut self) -> bool {
        // SAFETY: the callback is called before this returns, and `self` is there till then.
        unsafe { _Unwind_Backtrace(visit, (&raw mut self).cast()) };
        !self.found && landings::is_outermost(self.last)
    }
}

unsafe extern "C" fn visit(frame: *mut c_void, walk: *mut c_void) -> c_int {
    // SAFETY: the unwinder hands over both for this call: its own state, and our walk.
    let (at, walk) = unsafe { (_Unwind_GetIP(frame) as u64, &mut *walk.cast::<Walk>()) };
    walk.frames += 1;
    walk.found |= (walk.region.0 + 1..=walk.region.1).contains(&at);
    if at != 0 {
        walk.last = at;
    }
    if walk.found || walk.frames > MOST_FRAMES {
        walk.last = 0;
        return STOP;
    }
    GO_ON
}

/// Whether a word of the stack looks like an address that a call in the region returns to: then the thread is in it.
fn may_be_on_stack(start: u64, end: u64) -> bool {
    let here = 0_u64;
    let mut at = &raw const here as u64;
    let mut chunk = vec![0; CHUNK];
    for _ in 0..MOST_STACK / CHUNK {
        let got = memory::read(at, &mut chunk);
        let (words, _) = chunk.get(..got).unwrap_or_default().as_chunks::<8>();
        let found = words.iter().map(|word| u64::from_le_bytes(*word));
        if found
            .filter(|word| (start + 1..end).contains(word))
            .any(|word| follows_call(start, word))
        {
            return true;
        }
        if got < CHUNK {
            return false;
        }
        at += CHUNK as u64;
    }
    // Too deep to tell.
    true
}

/// Whether a call ends at this address: one of the lengths that calls have fits.
fn follows_call(start: u64, addr: u64) -> bool {
    (2..=9).any(|len| {
        let at = addr - len;
        let mut bytes = [0; 15];
        let got = memory::read(at, &mut bytes);
        at >= start
            && flow::decode(at, bytes.get(..got).unwrap_or_default()).is_some_and(|instruction| {
                instruction.next_ip() == addr
                    && matches!(
                        instruction.flow_control(),
                        FlowControl::Call | FlowControl::IndirectCall
                    )
            })
    })
}
