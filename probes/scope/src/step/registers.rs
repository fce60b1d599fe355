//! The registers of an interrupted thread, as the signal frame has them: what the handler reads and changes.
use iced_x86::Register;

use super::memory;
use crate::predict::Machine;

/// The trap flag's bit in EFLAGS.
pub(super) const TRAP_FLAG: u64 = 0x100;

/// The signal frame of one stop.
pub(super) struct Registers<'a>(pub(super) &'a mut libc::ucontext_t);

macro_rules! registers {
    ($($get:ident $index:literal)*; $($set:ident $place:literal)*) => {
        impl Registers<'_> {
            $(pub(super) fn $get(&self) -> u64 {
                self.0.uc_mcontext.gregs[$index].cast_unsigned()
            })*
            $(pub(super) fn $set(&mut self, value: u64) {
                self.0.uc_mcontext.gregs[$place] = value.cast_signed();
            })*
        }
    };
}

registers! {
    r8 0 r9 1 r10 2 r11 3 r12 4 r13 5 r14 6 r15 7 rdi 8 rsi 9 rbp 10 rbx 11 rdx 12 rax 13 rcx 14 rsp 15 rip 16 flags 17;
    set_r11 3 set_rax 13 set_rcx 14 set_rsp 15 set_rip 16 set_flags 17
}

impl Registers<'_> {
    /// Sets or clears the trap flag that the thread returns with.
    pub(super) fn trap(&mut self, on: bool) {
        let flags = self.flags() & !TRAP_FLAG;
        self.set_flags(if on { flags | TRAP_FLAG } else { flags });
    }

    /// The signals that the thread returns with blocked.
    pub(super) fn mask(&mut self) -> &mut u64 {
        let mask = (&raw mut self.0.uc_sigmask).cast::<u64>();
        // SAFETY: the kernel's mask is the first 64 bits of the field, which is longer.
        unsafe { &mut *mask }
    }

    /// The value of a general register (any width) or of a segment's base.
    pub(super) fn value(&self, register: Register) -> Option<u64> {
        let full = match register.full_register() {
            Register::RAX => self.rax(),
            Register::RCX => self.rcx(),
            Register::RDX => self.rdx(),
            Register::RBX => self.rbx(),
            Register::RSP => self.rsp(),
            Register::RBP => self.rbp(),
            Register::RSI => self.rsi(),
            Register::RDI => self.rdi(),
            Register::R8 => self.r8(),
            Register::R9 => self.r9(),
            Register::R10 => self.r10(),
            Register::R11 => self.r11(),
            Register::R12 => self.r12(),
            Register::R13 => self.r13(),
            Register::R14 => self.r14(),
            Register::R15 => self.r15(),
            Register::CS | Register::DS | Register::ES | Register::SS => return Some(0),
            Register::FS => return base(0x1003),
            Register::GS => return base(0x1004),
            _ => return None,
        };
        match register.size() {
            8 => Some(full),
            4 => Some(full & 0xffff_ffff),
            2 => Some(full & 0xffff),
            _ => None,
        }
    }
}

/// A segment's base, by `arch_prctl`.
fn base(what: u64) -> Option<u64> {
    let mut base = 0_u64;
    // SAFETY: the kernel writes one word into `base`.
    let got = unsafe { super::sys::call(158, [what, (&raw mut base) as u64, 0, 0, 0, 0]) };
    (got == 0).then_some(base)
}

impl Machine for Registers<'_> {
    fn flags(&self) -> u64 {
        Self::flags(self)
    }

    fn rcx(&self) -> u64 {
        Self::rcx(self)
    }

    fn rsp(&self) -> u64 {
        Self::rsp(self)
    }

    fn value(&self, register: Register) -> Option<u64> {
        Self::value(self, register)
    }

    fn word(&self, addr: u64) -> Option<u64> {
        memory::read_word(addr)
    }
}
