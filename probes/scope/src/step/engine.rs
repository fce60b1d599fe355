//! One engine a process: two bindings bring one each, and a SIGTRAP has one handler. Ours has a mark in front of it, by
//! which another copy knows it; and it is proved, before the first scope, that steps come here, which they do not within a
//! scope of another copy. The second engine refuses, and says why.
use std::arch::global_asm;
use std::sync::atomic::{AtomicBool, Ordering};

use super::cure::{Cure, holds};
use super::memory;
use crate::maps::Map;

/// What stands in front of the handler, in every version.
const MARK: [u8; 16] = *b"scalpel/sigtrap\n";

global_asm!(
    ".balign 16",
    ".ascii \"scalpel/sigtrap\\n\"",
    ".hidden scalpel_scope_handler",
    ".globl scalpel_scope_handler",
    ".type scalpel_scope_handler, @function",
    "scalpel_scope_handler:",
    "jmp {handler}",
    ".size scalpel_scope_handler, .-scalpel_scope_handler",
    ".hidden scalpel_scope_steps",
    ".globl scalpel_scope_steps",
    ".type scalpel_scope_steps, @function",
    // One step, of which the handler makes nothing: it takes the flag off.
    "scalpel_scope_steps:",
    "pushfq",
    "or qword ptr [rsp], 0x100",
    "popfq",
    "nop",
    "ret",
    ".size scalpel_scope_steps, .-scalpel_scope_steps",
    handler = sym super::trap::on_trap,
);

unsafe extern "C" {
    fn scalpel_scope_handler();
    fn scalpel_scope_steps();
}

static SEEN: AtomicBool = AtomicBool::new(false);

/// A step's signal can be swallowed by one that somebody has sent: not so many in a row.
const TRIES: usize = 8;

/// The address that the kernel is given.
pub(super) fn handler() -> u64 {
    scalpel_scope_handler as *const () as u64
}

/// Whether this handler is of no other engine; the error names it.
pub(super) fn alone(handler: u64) -> Result<(), String> {
    let mut mark = [0; MARK.len()];
    let at = handler.wrapping_sub(MARK.len() as u64);
    let other = handler != self::handler() && memory::read(at, &mut mark) == mark.len();
    if !other || mark != MARK || !holds(Cure::OneEngine) {
        return Ok(());
    }
    let maps = Map::all();
    let map = maps.iter().find(|map| map.holds(handler));
    let path = map.and_then(|map| map.path.as_deref());
    Err(taken(
        path.unwrap_or("a library that is not mapped from a file"),
    ))
}

/// A step that nobody wanted has come.
pub(super) fn saw() {
    SEEN.store(true, Ordering::Relaxed);
}

/// Whether steps come to this engine. SIGTRAP is handled, and not blocked.
pub(super) fn prove() -> Result<(), String> {
    if SEEN.load(Ordering::Relaxed) || !holds(Cure::StrayFlagCleared) {
        return Ok(());
    }
    for _ in 0..TRIES {
        // SAFETY: the step is met by the handler, which takes the flag off: ours, or of the engine that steps this thread.
        unsafe { scalpel_scope_steps() };
        if SEEN.load(Ordering::Relaxed) || !holds(Cure::OneEngine) {
            return Ok(());
        }
    }
    Err(taken("a scope of it is open on this thread"))
}

fn taken(who: &str) -> String {
    format!(
        "another copy of the scope engine handles SIGTRAP in this process ({who}): open scopes by that one alone"
    )
}
