"""Replays the corpus in an emulator, Unicorn: a third stepper beside the engine and ptrace, which shares no code with them.

`python emulated.py routines.json` compares every run instruction by instruction and prints what libtest prints at its end.
System calls are answered with 0; a run whose path needs the kernel is skipped, with its reason.
"""

import json
import sys

from unicorn import UC_ARCH_X86, UC_HOOK_CODE, UC_HOOK_INSN, UC_HOOK_INTR, UC_MODE_64, Uc, UcError
from unicorn.x86_const import (
    UC_X86_INS_SYSCALL,
    UC_X86_REG_R8,
    UC_X86_REG_R9,
    UC_X86_REG_RAX,
    UC_X86_REG_RCX,
    UC_X86_REG_RDI,
    UC_X86_REG_RDX,
    UC_X86_REG_RSI,
    UC_X86_REG_RSP,
)

CODE, STACK, BACK = 0x10_0000, 0x20_0000, 0x30_0000
PAGES = 0x10_000
ARGUMENTS = (
    UC_X86_REG_RDI,
    UC_X86_REG_RSI,
    UC_X86_REG_RDX,
    UC_X86_REG_RCX,
    UC_X86_REG_R8,
    UC_X86_REG_R9,
)
REPEATING = (b"\xf2", b"\xf3")
STRINGS = range(0xA4, 0xB0)


def machine(code: bytes, arguments: list[int]) -> Uc:
    """A processor at the routine's first instruction, called from `BACK`."""
    emulator = Uc(UC_ARCH_X86, UC_MODE_64)
    for place in (CODE, STACK, BACK):
        emulator.mem_map(place, PAGES)
    emulator.mem_write(CODE, code)
    stack = STACK + PAGES // 2
    emulator.mem_write(stack, BACK.to_bytes(8, "little"))
    emulator.reg_write(UC_X86_REG_RSP, stack)
    for register, value in zip(ARGUMENTS, arguments):
        emulator.reg_write(register, value)
    return emulator


def repeats(code: bytes) -> bool:
    """Whether an instruction is a string instruction that repeats."""
    rest = code[1:]
    if rest[:1] and 0x40 <= rest[0] < 0x50:
        rest = rest[1:]
    return code[:1] in REPEATING and rest[:1] != b"" and rest[0] in STRINGS


def steps(code: bytes, arguments: list[int]) -> tuple[list[list[int]], int]:
    """What ran, as the corpus has it, and the result."""
    emulator = machine(code, arguments)
    seen: list[list[int]] = []

    def step(_emulator, address, size, _data):
        offset = address - CODE
        folded = seen and seen[-1][0] == offset and repeats(code[offset : offset + size])
        if folded:
            # The emulator comes once more, to find the counter at zero.
            seen[-1][1] += emulator.reg_read(UC_X86_REG_RCX) != 0
        else:
            seen.append([offset, 1])

    def called(emulator, _data):
        emulator.reg_write(UC_X86_REG_RAX, 0)

    def interrupted(emulator, number, _data):
        if number != 0x80:
            raise UcError(number)
        emulator.reg_write(UC_X86_REG_RAX, 0)

    emulator.hook_add(UC_HOOK_CODE, step)
    emulator.hook_add(UC_HOOK_INSN, called, None, 1, 0, UC_X86_INS_SYSCALL)
    emulator.hook_add(UC_HOOK_INTR, interrupted)
    emulator.emu_start(CODE, BACK, count=1_000_000)
    return seen, emulator.reg_read(UC_X86_REG_RAX)


def main(path: str) -> int:
    """Compares; the number of failures."""
    passed = failed = skipped = 0
    with open(path, encoding="utf-8") as file:
        corpus = json.load(file)
    for case in corpus["routines"]:
        code = bytes.fromhex(case["bytes"])
        for run in case["runs"]:
            name = f"{case['name']} {run['args'][0]}"
            try:
                seen, result = steps(code, run["args"])
            except UcError as error:
                print(f"{name}: skipped: the emulator has none of it: {error}")
                skipped += 1
                continue
            same = seen == run["steps"]
            # What a system call gives is the kernel's.
            if same and run["result"] is not None and b"\x0f\x05" not in code and b"\xcd\x80" not in code:
                same = result == int(run["result"], 16)
            if same:
                passed += 1
            else:
                print(f"{name}: emulated {seen} {result:#x}, expected {run['steps']} {run['result']}")
                failed += 1
    word = "FAILED" if failed else "ok"
    print(f"test result: {word}. {passed} passed; {failed} failed; {skipped} ignored; 0 measured")
    return failed


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1]), 1))
