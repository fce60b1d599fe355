//! Random programs: branches, loops, calls, indirect jumps, string instructions, system calls, flags on the stack.
use iced_x86::code_asm::{
    CodeAssembler, CodeLabel, eax, ecx, edi, qword_ptr, r8, r9, rax, rcx, rdi, rdx, rsi, rsp,
};

use crate::code::Routine;

/// A small generator with a fixed seed: the same programs each time.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// The buffer as every run of a program finds it.
pub(crate) fn clean(args: &[u64; 6]) {
    unsafe { std::ptr::write_bytes(args[0] as *mut u8, 0x55, 256) };
}

/// A program of a few blocks, at `at`; its first argument is a buffer of 256 bytes.
pub(crate) fn random(dice: &mut Dice, at: usize) -> Routine {
    let mut a = CodeAssembler::new(64).unwrap();
    let mut leaf = a.create_label();
    a.mov(r8, rdi).unwrap();
    a.mov(rax, rsi).unwrap();
    // From here on the flags are the program's own.
    a.add(rax, 1).unwrap();
    a.mov(rdx, dice.roll(1 << 40)).unwrap();
    for _ in 0..=dice.roll(5) {
        block(&mut a, dice, leaf);
    }
    a.ret().unwrap();
    a.set_label(&mut leaf).unwrap();
    a.xor(rax, rdx).unwrap();
    if dice.roll(2) == 0 {
        a.ret().unwrap();
    } else {
        a.pop(r9).unwrap();
        a.jmp(r9).unwrap();
    }
    Routine::at(at, &a.assemble(at as u64).unwrap())
}

fn block(a: &mut CodeAssembler, dice: &mut Dice, leaf: CodeLabel) {
    let mut behind = a.create_label();
    let turns = i32::try_from(dice.roll(5)).unwrap();
    match dice.roll(14) {
        0 => {
            a.test(rax, rdx).unwrap();
            match dice.roll(4) {
                0 => a.jne(behind),
                1 => a.jl(behind),
                2 => a.jp(behind),
                _ => a.ja(behind),
            }
            .unwrap();
            a.add(rax, 77).unwrap();
        }
        1 => {
            a.mov(ecx, turns + 1).unwrap();
            let mut again = a.create_label();
            a.set_label(&mut again).unwrap();
            a.imul_3(rax, rax, 31).unwrap();
            a.loop_(again).unwrap();
        }
        2 => {
            // A loop of one instruction.
            a.mov(ecx, turns + 1).unwrap();
            let mut again = a.create_label();
            a.set_label(&mut again).unwrap();
            a.loop_(again).unwrap();
        }
        3 => {
            a.mov(ecx, turns).unwrap();
            a.mov(rdi, r8).unwrap();
            a.rep().stosb().unwrap();
        }
        4 => {
            a.mov(ecx, turns + 1).unwrap();
            a.mov(rdi, r8).unwrap();
            a.repne().scasb().unwrap();
        }
        5 => a.call(leaf).unwrap(),
        6 => {
            a.lea(r9, iced_x86::code_asm::ptr(leaf)).unwrap();
            a.call(r9).unwrap();
        }
        7 => {
            a.lea(r9, iced_x86::code_asm::ptr(behind)).unwrap();
            a.mov(qword_ptr(r8 + 64), r9).unwrap();
            a.jmp(qword_ptr(r8 + 64)).unwrap();
        }
        8 => {
            a.lea(r9, iced_x86::code_asm::ptr(behind)).unwrap();
            a.push(r9).unwrap();
            a.ret().unwrap();
        }
        9 => {
            // getuid
            a.mov(eax, 102).unwrap();
            a.syscall().unwrap();
            a.add(rax, 3).unwrap();
        }
        10 => {
            a.pushfq().unwrap();
            a.pop(rax).unwrap();
            a.push(rax).unwrap();
            a.popfq().unwrap();
        }
        11 => {
            a.mov(ecx, turns).unwrap();
            a.jrcxz(behind).unwrap();
            a.push(rcx).unwrap();
            // Not by ADD: the flags would tell where the stack is.
            a.lea(rsp, rsp + 8).unwrap();
        }
        12 => {
            // rt_sigprocmask(SIG_BLOCK, NULL, NULL, 8): emulated
            a.xor(edi, edi).unwrap();
            a.mov(rsi, 0_u64).unwrap();
            a.mov(rdx, 0_u64).unwrap();
            a.mov(iced_x86::code_asm::r10d, 8).unwrap();
            a.mov(eax, 14).unwrap();
            a.syscall().unwrap();
        }
        _ => {
            a.add(rax, rdx).unwrap();
            a.ror(rdx, 7).unwrap();
        }
    }
    a.set_label(&mut behind).unwrap();
    a.nop().unwrap();
}
