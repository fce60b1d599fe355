//! The routines: C functions of up to six integers, each with what it is there for.

pub(crate) struct Given {
    pub(crate) name: &'static str,
    pub(crate) why: &'static str,
    /// Hexadecimal, an instruction a word where that helps.
    pub(crate) bytes: &'static str,
    pub(crate) args: &'static [&'static [u64]],
    /// Offsets of an instruction that loads SS, and of the one in its shadow.
    pub(crate) shadow: Option<(u64, u64)>,
}

const fn given(
    name: &'static str,
    why: &'static str,
    bytes: &'static str,
    args: &'static [&'static [u64]],
) -> Given {
    Given {
        name,
        why,
        bytes,
        args,
        shadow: None,
    }
}

pub(crate) const ROUTINES: &[Given] = &[
    given("empty", "the shortest function", "c3", &[&[]]),
    given(
        "six arguments",
        "lea and add over all six",
        "488d0437 4801d0 4801c8 4c01c0 4c01c8 c3",
        &[&[1, 20, 300, 4_000, 50_000, 600_000]],
    ),
    given(
        "branch",
        "test; jz; both ways",
        "85ff 7406 b801000000 c3 31c0 c3",
        &[&[0], &[1]],
    ),
    given(
        "counted loop",
        "a body that runs again",
        "31c0 89f9 01c8 ffc9 75fa c3",
        &[&[1], &[7], &[60]],
    ),
    given(
        "loop to itself",
        "one instruction, five times: never folded",
        "b905000000 e2fe 31c0 c3",
        &[&[]],
    ),
    given(
        "behind a system call",
        "the instruction behind SYSCALL is not trapped",
        "b80f270000 0f05 90 90 c3",
        &[&[]],
    ),
    given(
        "two system calls in a row",
        "the one hidden instruction is a SYSCALL's neighbour",
        "b80f270000 0f05 b80f270000 0f05 90 c3",
        &[&[]],
    ),
    given(
        "jump behind a system call",
        "the hidden instruction is a branch",
        "b80f270000 0f05 eb01 cc 90 c3",
        &[&[]],
    ),
    given(
        "behind int 0x80",
        "the instruction behind INT 0x80 is not trapped",
        "53 b80f270000 cd80 90 90 5b c3",
        &[&[]],
    ),
    Given {
        shadow: Some((2, 4)),
        ..given(
            "shadow of mov ss",
            "the instruction behind MOV SS is not trapped",
            "8cd0 8ed0 90 31c0 c3",
            &[&[]],
        )
    },
    given(
        "pushed flags",
        "PUSHF does not show the trap flag",
        "9c 58 2500010000 c3",
        &[&[]],
    ),
    given(
        "r11 behind a system call",
        "SYSCALL leaves the flags there: no trap flag in them",
        "b80f270000 0f05 90 4c89d8 2500010000 c3",
        &[&[]],
    ),
    given(
        "popped flags",
        "POPF without the trap flag does not end the trace",
        "9c 58 4825fffeffff 50 9d 90 90 31c0 c3",
        &[&[]],
    ),
    given(
        "rep stosb",
        "one step with its count",
        "4883ec48 4889e7 b90d000000 b007 fc f3aa 0fb64424 0c 4883c448 c3",
        &[&[]],
    ),
    given(
        "rep of none",
        "a count of zero is one step",
        "4883ec08 4889e7 31c9 b007 fc f3aa 4883c408 31c0 c3",
        &[&[]],
    ),
    given(
        "repne scasb",
        "ends early",
        "4883ec10 48c7042400010203 4889e7 b910000000 b002 fc f2ae 89c8 4883c410 c3",
        &[&[]],
    ),
    given(
        "recursion",
        "the function calls itself",
        "83ff01 7705 89f8 c3 90 90 57 ffcf e8eeffffff 5f 01f8 c3",
        &[&[1], &[5]],
    ),
    given(
        "indirect call",
        "a call by register, within the routine",
        "488d0509000000 53 ffd0 5b 01c0 c3 90 90 b815000000 c3",
        &[&[]],
    ),
    given(
        "indirect jump",
        "to one of two places by a register",
        "488d050c000000 488d0478 ffe0 cccccccccccc eb03 eb07 90 b801000000 c3 b802000000 c3",
        &[&[0], &[1]],
    ),
    given(
        "jrcxz and loopne",
        "branches on a count",
        "89f9 e309 31c0 ffc0 e0fc 90 90 90 89f8 c3",
        &[&[0], &[3]],
    ),
    given(
        "red zone",
        "128 bytes below the stack pointer are the routine's",
        "48897c24f8 488974 2480 90 90 488b4424f8 48034424 80 c3",
        &[&[40, 2]],
    ),
    given(
        "overlapping instructions",
        "a jump into the middle of itself: two instructions share a byte",
        "31c0 ebff c0 c3",
        &[&[]],
    ),
    given(
        "serializing",
        "CPUID, RDTSC, and fences",
        "53 31c0 31c9 0fa2 0f31 0faee8 0faef0 5b 31c0 c3",
        &[&[]],
    ),
    given(
        "floating point",
        "SSE2 and x87",
        "f2480f2ac7 f20f58c0 f2480f2cc0 d9e8 ddd8 c3",
        &[&[21]],
    ),
    given(
        "atomic",
        "LOCK XADD and CMPXCHG on the stack",
        "57 b802000000 f0480fc10424 f0480fb13424 58 c3",
        &[&[40, 1]],
    ),
    given(
        "conditional moves",
        "data, not control",
        "39f7 89f0 0f4cc7 0f9cc1 0fb6c9 01c8 c3",
        &[&[1, 2], &[2, 1]],
    ),
    given(
        "frame",
        "ENTER and LEAVE, endbr64, long NOPs",
        "f30f1efa c8100000 0f1f840000000000 660f1f440000 48897df8 488b45f8 c9 c3",
        &[&[99]],
    ),
    given(
        "tail jump",
        "out of one part into another",
        "83c701 e902000000 cccc 89f8 c3",
        &[&[41]],
    ),
    given(
        "return over a changed slot",
        "a return address that was computed",
        "488d0506000000 50 c3 cc cc cc cc b807000000 c3",
        &[&[]],
    ),
];
