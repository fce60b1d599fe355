"""What the tests share: routines in executable memory, and the corpus."""

import ctypes
import json
import mmap
import os
from pathlib import Path

import pytest

CORPUS = Path(__file__).parents[3] / "scope" / "corpus" / "routines.json"
#: Test routine: ``mov ecx, edi; dec ecx; jnz; ret``, 2 + 2n instructions.
SPIN = bytes.fromhex("89f9ffc975fcc3")


class Routine:
    """Bytes that can be called."""

    def __init__(self, code: bytes) -> None:
        access = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        self.memory = mmap.mmap(-1, mmap.PAGESIZE, prot=access)
        self.memory.write(code)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.code = (self.address, self.address + len(code))
        kind = ctypes.CFUNCTYPE(ctypes.c_uint64, *[ctypes.c_uint64] * 6)
        self.run = kind(self.address)

    def offsets(self, trace) -> list:
        return [address - self.address for address in trace.addresses]


def left() -> dict:
    """What this process holds."""
    # VmRSS of status lags behind by up to 32 pages a processor.
    with open("/proc/self/smaps_rollup", encoding="utf-8") as rollup:
        lines = dict(line.split(":", 1) for line in rollup if ": " in line)
    with open("/proc/self/maps", encoding="utf-8") as maps:
        mappings = len(maps.readlines())
    return {
        "fds": len(os.listdir("/proc/self/fd")),
        "mappings": mappings,
        "kib": int(lines["Rss"].split()[0]),
    }


#: What is held is looked at in rounds: an allocator grows in one or the other, and
#: what each pass leaves behind makes all of them grow.
ROUNDS = 5


def held(once, times: int) -> list:
    """What this process holds before and after each of `ROUNDS` rounds of `times`."""
    told = [left()]
    for _ in range(ROUNDS):
        for _ in range(times):
            once()
        told.append(left())
    return told


def leaked(told: list) -> dict:
    """What grew in every round: by so much in the one in which it grew least."""
    least = {
        key: min(after[key] - before[key] for before, after in zip(told, told[1:]))
        for key in told[0]
    }
    return {key: by for key, by in least.items() if by > 0}


@pytest.fixture
def spin() -> Routine:
    return Routine(SPIN)


def corpus() -> list:
    return json.loads(CORPUS.read_text())["routines"]
