//! The kernel keeps one SIGTRAP: one that is sent right before a trap swallows the trap's own. Programs that are sent many
//! run as if nothing had come, and their traces say what ran.
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use scalpel_scope::Trace;

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

/// Once more where the machine is too busy to send any.
fn expect(routine: Routine, args: [u64; 6], offsets: &[u64]) {
    let before = SEEN.load(Ordering::Relaxed);
    for round in 1.. {
        let trace = beset(routine, args);
        assert_eq!(trace.skip_reason, None);
        assert!(trace.is_complete(), "{}", trace.reasons);
        assert!(routine.offsets(&trace) == offsets);
        if SEEN.load(Ordering::Relaxed) - before > 20 + round {
            return;
        }
        assert!(round < 40, "nothing is sent");
    }
}

pub(crate) fn sent_traps_lose_no_call_that_a_stub_makes() {
    let (bytes, offsets) = calls_by_stubs(1_500);
    expect(Routine::of(&bytes), [0; 6], &offsets);
}

pub(crate) fn sent_traps_lose_no_turn_of_one_instruction() {
    let (bytes, offsets) = one_instruction(8_000);
    expect(Routine::of(&bytes), [0; 6], &offsets);
}

pub(crate) fn sent_traps_lose_no_turn_of_a_string_instruction() {
    for length in LENGTHS {
        let (bytes, offsets) = strings(500, length);
        let args = [code::memory() as u64, 0, 0, 0, 0, 0];
        expect(Routine::of(&bytes), args, &offsets);
    }
}

/// Calls that are made by stubs: one that is refused, and one before an instruction that hides the next stop.
fn calls_by_stubs(turns: u32) -> (Vec<u8>, Vec<u64>) {
    let mut bytes = vec![
        0x53, // push rbx
        0x41, 0x54, // push r12
        0xbb, // mov ebx, turns
    ];
    bytes.extend(turns.to_le_bytes());
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
    offsets.extend([11, 16, 18, 20, 22, 27, 29, 32, 33, 35].repeat(turns as usize));
    offsets.extend([37, 39, 40]);
    (bytes, offsets)
}

/// A loop of one instruction.
fn one_instruction(turns: u32) -> (Vec<u8>, Vec<u64>) {
    let mut bytes = vec![0xb9]; // mov ecx, turns
    bytes.extend(turns.to_le_bytes());
    bytes.extend([0xe2, 0xfe, 0xc3]); // 5: loop 5; 7: ret
    let mut offsets = vec![0];
    offsets.extend([5].repeat(turns as usize));
    offsets.push(7);
    (bytes, offsets)
}

/// The long one runs to a breakpoint behind it, the short one is stepped.
const LENGTHS: [u8; 2] = [12, 64];

/// A string instruction, again and again.
fn strings(turns: u32, length: u8) -> (Vec<u8>, Vec<u64>) {
    let mut bytes = vec![0xba]; // mov edx, turns
    bytes.extend(turns.to_le_bytes());
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
    offsets.extend(turn.repeat(turns as usize));
    offsets.push(22);
    (bytes, offsets)
}

/// No chance: each trap's own signal is swallowed. Where the thread is and what it counted has to tell all.
#[cfg(feature = "uncured")]
pub(crate) mod each {
    use scalpel_scope::HwTrace;

    use super::{LENGTHS, SEEN, calls_by_stubs, count, one_instruction, strings};
    use crate::code::{self, Routine, stepped};
    use crate::programs::{self, Dice};
    use crate::shape::random;
    use std::sync::atomic::Ordering;

    pub(crate) const ALL: &[(&str, fn())] = &[
        ("calls_by_stubs_whose_traps_are_all_swallowed", stubs),
        (
            "turns_of_one_instruction_whose_traps_are_all_swallowed",
            turns,
        ),
        ("string_instructions_whose_traps_are_all_swallowed", repeats),
        ("a_window_whose_traps_are_all_swallowed", window),
        (
            "random_programs_whose_traps_are_all_swallowed",
            programs_of_chance,
        ),
    ];

    fn swallow() {
        unsafe {
            libc::signal(libc::SIGTRAP, count as *const () as usize);
            std::env::set_var("SCALPEL_TEST_SWALLOWED", "1");
        }
    }

    fn exact((bytes, offsets): (Vec<u8>, Vec<u64>)) {
        let buffer = code::memory() as u64;
        swallow();
        let routine = Routine::of(&bytes);
        let args = [buffer, 0, 0, 0, 0, 0];
        let (_, trace) = unsafe { HwTrace::call(routine.at, args, stepped()) };
        assert_eq!(routine.offsets(&trace), offsets, "{}", trace.reasons);
        assert!(trace.is_complete(), "{}", trace.reasons);
        assert!(SEEN.load(Ordering::Relaxed) > 10, "nothing is swallowed");
    }

    fn stubs() {
        exact(calls_by_stubs(5));
    }

    fn turns() {
        exact(one_instruction(50));
    }

    fn repeats() {
        for length in LENGTHS {
            exact(strings(5, length));
        }
    }

    fn window() {
        swallow();
        let mut scope = HwTrace::window(stepped());
        let product = std::hint::black_box(6) * std::hint::black_box(7);
        let trace = scope.close().unwrap();
        assert_eq!(product, 42);
        assert!(
            trace.is_complete() && trace.counted > 0,
            "{}",
            trace.reasons
        );
        assert!(SEEN.load(Ordering::Relaxed) > 0, "nothing is swallowed");
    }

    /// As they are without.
    fn programs_of_chance() {
        swallow();
        let mut dice = Dice(0x5ca1_ab1e);
        random::with_truth(&mut dice, |_, routine, args, truth| {
            programs::clean(&args);
            let (_, trace) = unsafe { HwTrace::call(routine.at, args, stepped()) };
            let seen: Vec<_> = trace.addresses().collect();
            assert_eq!(seen, truth, "{}", trace.reasons);
            assert!(trace.is_complete(), "{}", trace.reasons);
        });
        let seen = SEEN.load(Ordering::Relaxed);
        assert!(seen > 1_000, "{seen} are swallowed");
    }
}
