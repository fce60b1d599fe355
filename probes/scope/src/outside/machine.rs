//! A stopped thread of another process, as predictions read it.
use iced_x86::Register;

use super::sys::{self, Registers, Tid};
use crate::predict::Machine;

/// The registers of one stop, and the memory behind them.
pub(super) struct Stopped<'a> {
    pub(super) tid: Tid,
    pub(super) registers: &'a Registers,
}

impl Machine for Stopped<'_> {
    fn flags(&self) -> u64 {
        self.registers.eflags
    }

    fn rcx(&self) -> u64 {
        self.registers.rcx
    }

    fn rsp(&self) -> u64 {
        self.registers.rsp
    }

    fn value(&self, register: Register) -> Option<u64> {
        let r = self.registers;
        let full = match register.full_register() {
            Register::RAX => r.rax,
            Register::RCX => r.rcx,
            Register::RDX => r.rdx,
            Register::RBX => r.rbx,
            Register::RSP => r.rsp,
            Register::RBP => r.rbp,
            Register::RSI => r.rsi,
            Register::RDI => r.rdi,
            Register::R8 => r.r8,
            Register::R9 => r.r9,
            Register::R10 => r.r10,
            Register::R11 => r.r11,
            Register::R12 => r.r12,
            Register::R13 => r.r13,
            Register::R14 => r.r14,
            Register::R15 => r.r15,
            Register::CS | Register::DS | Register::ES | Register::SS => return Some(0),
            Register::FS => return Some(r.fs_base),
            Register::GS => return Some(r.gs_base),
            _ => return None,
        };
        match register.size() {
            8 => Some(full),
            4 => Some(full & 0xffff_ffff),
            2 => Some(full & 0xffff),
            _ => None,
        }
    }

    fn word(&self, addr: u64) -> Option<u64> {
        sys::read_word(self.tid, addr)
    }
}
