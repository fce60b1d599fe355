//! The kernel keeps one SIGTRAP: one that is sent right before a trap swallows the trap's own. Programs that are sent many
//! run as if nothing had come, and their traces say what ran.
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use scalpel_scope::{Reasons, Trace};

use crate::code::{self, Routine, stepped};
use crate::programs::Dice;

static SEEN: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: i32) {
    SEEN.fetch_add(1, Ordering::Relaxed);
}

/// Steps the routine while another thread sends this one SIGTRAP at odd moments.
fn beset(routine: Routine, args: [u64; 6]) -> Trace {
    unsafe { libc::signal(libc::SIGTRAP, count as *const () as usize) };
    let this = unsafe { libc::pthread_self() };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut dice = Dice(0x5eed);
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(unsafe { libc::pthread_kill(this, libc::SIGTRAP) }, 0);
                let pause = Duration::from_nanos(4_000 + dice.roll(40_000));
                let begin = Instant::now();
                while begin.elapsed() < pause {
                    std::hint::spin_loop();
                }
            }
        });
        let before = SEEN.load(Ordering::Relaxed);
        while SEEN.load(Ordering::Relaxed) == before {
            std::thread::yield_now();
        }
        let (_, trace) = unsafe { scalpel_scope::HwTrace::call(routine.at, args, stepped()) };
        stop.store(true, Ordering::Relaxed);
        sender.join().unwrap();
        trace
    })
}

/// Once more where the machine is too busy to send any. What is not exact must say so, by this reason alone.
fn expect(routine: Routine, args: [u64; 6], offsets: &[u64]) {
    // Where signals of two steps meet, it is not known what ran.
    let may = Reasons::UNEXPLAINED;
    let before = SEEN.load(Ordering::Relaxed);
    for round in 1.. {
        let trace = beset(routine, args);
        assert_eq!(trace.reasons.with(may), may, "{}", trace.reasons);
        assert!(!trace.is_complete() || routine.offsets(&trace) == offsets);
        if SEEN.load(Ordering::Relaxed) - before > 20 + round {
            return;
        }
        assert!(round < 40, "nothing is sent");
    }
}

pub(crate) fn sent_traps_lose_no_call_that_a_stub_makes() {
    const TURNS: u32 = 1_500;
    let mut bytes = vec![
        0x53, // push rbx
        0x41, 0x54, // push r12
        0xbb, // mov ebx, TURNS
    ];
    bytes.extend(TURNS.to_le_bytes());
    bytes.extend([
        0x41, 0x8c, 0xd4, // 8: mov r12d, ss
        0xb8, 0xb3, 1, 0, 0, // 11: mov eax, clone3
        0x31, 0xff, // 16: xor edi, edi
        0x31, 0xf6, // 18: xor esi, esi
        0x0f, 0x05, // 20: syscall: refused
        0xb8, 39, 0, 0, 0, // 22: mov eax, getpid
        0x0f, 0x05, // 27: syscall
        0x41, 0x8e, 0xd4, // 29: mov ss, r12d
        0x90, // 32: nop
        0xff, 0xcb, // 33: dec ebx
        0x75, 0xe6, // 35: jnz 11
        0x41, 0x5c, // 37: pop r12
        0x5b, // 39: pop rbx
        0xc3, // 40: ret
    ]);
    let mut offsets = vec![0, 1, 3, 8];
    offsets.extend([11, 16, 18, 20, 22, 27, 29, 32, 33, 35].repeat(TURNS as usize));
    offsets.extend([37, 39, 40]);
    expect(Routine::of(&bytes), [0; 6], &offsets);
}

pub(crate) fn sent_traps_lose_no_turn_of_one_instruction() {
    const TURNS: u32 = 8_000;
    let mut bytes = vec![0xb9]; // mov ecx, TURNS
    bytes.extend(TURNS.to_le_bytes());
    bytes.extend([0xe2, 0xfe, 0xc3]); // 5: loop 5; 7: ret
    let mut offsets = vec![0];
    offsets.extend([5].repeat(TURNS as usize));
    offsets.push(7);
    expect(Routine::of(&bytes), [0; 6], &offsets);
}

pub(crate) fn sent_traps_lose_no_turn_of_a_string_instruction() {
    const TURNS: u32 = 500;
    // The long one runs to a breakpoint behind it, the short one is stepped.
    for length in [12_u8, 64] {
        let mut bytes = vec![0xba]; // mov edx, TURNS
        bytes.extend(TURNS.to_le_bytes());
        bytes.extend([
            0x48, 0x89, 0xfe, // 5: mov rsi, rdi
            0xb9, length, 0, 0, 0, // 8: mov ecx, length
            0x48, 0x89, 0xf7, // 13: mov rdi, rsi
            0xf3, 0xaa, // 16: rep stosb
            0xff, 0xca, // 18: dec edx
            0x75, 0xf2, // 20: jnz 8
            0xc3, // 22: ret
        ]);
        let mut offsets = vec![0, 5];
        let mut turn = vec![8, 13];
        turn.extend([16].repeat(usize::from(length)));
        turn.extend([18, 20]);
        offsets.extend(turn.repeat(TURNS as usize));
        offsets.push(22);
        let buffer = code::memory() as u64;
        let args = [buffer, 0, 0, 0, 0, 0];
        expect(Routine::of(&bytes), args, &offsets);
    }
}
