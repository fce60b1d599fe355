//! System calls that a stepped thread must not make by itself: those that would take its safety away end the recording
//! before they run, and changes of the signal mask are made for it.
use iced_x86::{Instruction, Mnemonic};

use super::record::{Go, Recorder, SIGTRAP_BIT, TRAP_FLAG};
use super::sys::{self, Registers};
use super::watch::Refusal;
use crate::flow;
use crate::trace::Reasons;

impl Recorder<'_> {
    /// Instructions behind which the thread could not be stepped safely: it runs them natively, and all that follows.
    pub(super) fn guarded(
        &self,
        instruction: &Instruction,
        registers: &Registers,
    ) -> Option<Reasons> {
        if matches!(
            instruction.mnemonic(),
            Mnemonic::Sysenter | Mnemonic::Iretq | Mnemonic::Iretd
        ) {
            return Some(Reasons::UNGUARDED);
        }
        if !flow::is_system_call(instruction) {
            return None;
        }
        let trap = u64::from(libc::SIGTRAP.unsigned_abs());
        let native = instruction.mnemonic() == Mnemonic::Syscall;
        match (native, registers.rax) {
            (true, 15) | (false, 119 | 173) => Some(Reasons::SIGNAL_RETURN),
            (true, 59 | 322) | (false, 11 | 358) => Some(Reasons::FORK),
            (true, 13) if registers.rdi & 0xffff_ffff == trap => Some(Reasons::UNGUARDED),
            (false, 48 | 67 | 126 | 174 | 175) => Some(Reasons::UNGUARDED),
            _ => None,
        }
    }

    /// `rt_sigprocmask` is done on the thread's behalf: with SIGTRAP blocked it could not be stepped.
    pub(super) fn mask(&mut self, registers: &Registers, fall: u64) -> Result<Go, Refusal> {
        let blocked = sys::mask(self.tid)?;
        let trap = if self.wish { SIGTRAP_BIT } else { 0 };
        let old = blocked & !SIGTRAP_BIT | trap;
        let result = self.new_mask(registers, old)?;
        let mut behind = *registers;
        behind.rax = result.cast_unsigned();
        behind.rcx = fall;
        behind.r11 = registers.eflags & !TRAP_FLAG;
        behind.rip = fall;
        behind.orig_rax = u64::MAX;
        sys::set_registers(self.tid, &behind)?;
        self.log.arrived(fall, true);
        Ok(Go::On(behind))
    }

    fn new_mask(&mut self, registers: &Registers, old: u64) -> Result<i64, Refusal> {
        const EFAULT: i64 = -14;
        const EINVAL: i64 = -22;
        let mut new = old;
        if registers.rsi != 0 {
            let Some(set) = sys::read_word(self.tid, registers.rsi) else {
                return Ok(EFAULT);
            };
            new = match registers.rdi & 0xffff_ffff {
                0 => old | set,
                1 => old & !set,
                2 => set,
                _ => return Ok(EINVAL),
            };
        }
        if registers.rdx != 0
            && sys::write_memory(self.tid, registers.rdx, &old.to_le_bytes()).is_err()
        {
            return Ok(EFAULT);
        }
        self.wish = new & SIGTRAP_BIT != 0;
        sys::set_mask(self.tid, new & !SIGTRAP_BIT)?;
        Ok(0)
    }
}
