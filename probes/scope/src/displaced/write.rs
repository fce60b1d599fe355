//! Machine code of the copies, byte by byte. No flag is touched, no stack, and no register that is not put back: what is
//! needed beside the program's own instructions is done by moves, `lea`, `not` and `jrcxz`.
use super::memory::{Arena, CODE, slot};

/// Writes code to the end of an arena. What does not fit is dropped, and told at the end.
pub(super) struct Writer<'a> {
    arena: &'a mut Arena,
    len: u64,
    fits: bool,
}

/// A `rel32` that is not known yet: where it is written, and where the instruction behind it runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    write: u64,
    behind: u64,
}

impl<'a> Writer<'a> {
    pub(super) fn new(arena: &'a mut Arena) -> Self {
        let len = arena.len;
        Self {
            arena,
            len,
            fits: true,
        }
    }

    /// Where the next byte runs.
    pub(super) fn here(&self) -> u64 {
        self.arena.run + self.len
    }

    pub(super) fn arena(&self) -> Arena {
        *self.arena
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len() as u64;
        if end > CODE {
            self.fits = false;
            return;
        }
        let to = (self.arena.write + self.len) as *mut u8;
        // SAFETY: `end` is within the arena, which is mapped for writing at `write`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        self.len = end;
    }

    /// An instruction whose last four bytes are the distance to `target`.
    pub(super) fn relative(&mut self, bytes: &[u8], target: u64) {
        self.relative_with(bytes, target, &[]);
    }

    /// The same with bytes of the instruction behind the distance.
    pub(super) fn relative_with(&mut self, before: &[u8], target: u64, after: &[u8]) {
        let end = self.here() + before.len() as u64 + 4 + after.len() as u64;
        let Ok(distance) = i32::try_from(target.wrapping_sub(end).cast_signed()) else {
            self.fits = false;
            return;
        };
        self.put(before);
        self.put(&distance.to_le_bytes());
        self.put(after);
    }

    fn with_slot(&mut self, bytes: &[u8], slot: u64) {
        let slot = self.arena.slot(slot);
        self.relative(bytes, slot);
    }

    pub(super) fn save_rax(&mut self) {
        self.with_slot(&[0x48, 0x89, 0x05], slot::RAX);
    }

    pub(super) fn restore_rax(&mut self) {
        self.with_slot(&[0x48, 0x8b, 0x05], slot::RAX);
    }

    pub(super) fn target_is_rax(&mut self) {
        self.with_slot(&[0x48, 0x89, 0x05], slot::TARGET);
    }

    /// Logs an immediate word. Where the store is: it faults when the log is full.
    pub(super) fn log(&mut self, word: u32, reserve: bool) -> u64 {
        self.save_rax();
        self.with_slot(&[0x48, 0x8b, 0x05], slot::CURSOR);
        let store = self.here();
        if reserve {
            // mov qword ptr [rax + 16], 0: the words that follow will have room
            self.put(&[0x48, 0xc7, 0x40, 16, 0, 0, 0, 0]);
        }
        // mov qword ptr [rax], word
        self.put(&[0x48, 0xc7, 0x00]);
        self.put(&word.to_le_bytes());
        self.logged();
        store
    }

    /// Logs rcx.
    pub(super) fn log_rcx(&mut self) {
        self.save_rax();
        self.with_slot(&[0x48, 0x8b, 0x05], slot::CURSOR);
        self.put(&[0x48, 0x89, 0x08]);
        self.logged();
    }

    fn logged(&mut self) {
        // lea rax, [rax + 8]
        self.put(&[0x48, 0x8d, 0x40, 8]);
        self.with_slot(&[0x48, 0x89, 0x05], slot::CURSOR);
        self.restore_rax();
    }

    /// A branch, by its opcode, to what is not known yet.
    pub(super) fn branch(&mut self, opcode: &[u8]) -> Gap {
        self.put(opcode);
        self.put(&[0; 4]);
        Gap {
            write: self.arena.write + self.len - 4,
            behind: self.here(),
        }
    }

    /// The routine for indirect branches: finds the copy of the target, or stops for it.
    pub(super) fn dispatcher(&mut self) {
        self.arena.dispatch = self.here();
        self.save_rax();
        self.with_slot(&[0x48, 0x89, 0x0d], slot::RCX);
        self.with_slot(&[0x48, 0x89, 0x15], slot::RDX);
        self.with_slot(&[0x48, 0x8b, 0x05], slot::TARGET);
        // movzx ecx, ax
        self.put(&[0x0f, 0xb7, 0xc8]);
        self.with_slot(&[0x48, 0x8b, 0x15], slot::TABLE);
        // lea rdx, [rdx + 8 * rcx]; mov rcx, [rdx]; not rcx; lea rcx, [rax + rcx + 1]: 0 if they are equal
        self.put(&[0x48, 0x8d, 0x14, 0xca, 0x48, 0x8b, 0x0a, 0x48, 0xf7, 0xd1]);
        self.put(&[0x48, 0x8d, 0x4c, 0x08, 0x01]);
        // jrcxz over the three loads, the breakpoint and a nop: only who has hit the breakpoint stands right behind it
        self.put(&[0xe3, 23]);
        self.restore_three();
        self.arena.miss = self.here();
        self.put(&[0xcc, 0x90]);
        // mov rax, [rdx + HALF]
        self.put(&[0x48, 0x8b, 0x82]);
        self.put(&(super::table::HALF).to_le_bytes());
        self.with_slot(&[0x48, 0x89, 0x05], slot::JUMP);
        self.restore_three();
        self.with_slot(&[0xff, 0x25], slot::JUMP);
    }

    fn restore_three(&mut self) {
        self.with_slot(&[0x48, 0x8b, 0x15], slot::RDX);
        self.with_slot(&[0x48, 0x8b, 0x0d], slot::RCX);
        self.restore_rax();
    }

    /// Keeps what was written, if all of it fits.
    pub(super) fn keep(self) -> bool {
        if self.fits {
            self.arena.len = self.len;
        }
        self.fits
    }
}

impl Gap {
    /// Fills it in; `false` if the target is too far.
    pub(super) fn lead_to(self, target: u64) -> bool {
        let distance = target.wrapping_sub(self.behind).cast_signed();
        let Ok(distance) = i32::try_from(distance) else {
            return false;
        };
        // SAFETY: the gap lies in an arena, mapped for writing; its thread is in the handler.
        unsafe { (self.write as *mut i32).write_unaligned(distance) };
        true
    }
}
