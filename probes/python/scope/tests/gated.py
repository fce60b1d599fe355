"""Replays the corpus in a process that gave something up, and tells as JSON."""

import ctypes
import json
import os
import struct
import sys

from conftest import SPIN, Routine, corpus
from scalpel_scope import HwTrace

DENIED = (298, 321, 101)  # perf_event_open, bpf, ptrace


def become_nobody():
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    # As a program that nobody has started.
    assert ctypes.CDLL(None).prctl(4, 1, 0, 0, 0) == 0


def deny():
    libc = ctypes.CDLL(None, use_errno=True)
    rules = [(0x20, 0, 0, 0)]
    for at, number in enumerate(DENIED):
        rules.append((0x15, len(DENIED) - at, 0, number))
    rules += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050001)]
    code = b"".join(struct.pack("HBBI", *rule) for rule in rules)
    kept = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxQ", len(rules), ctypes.addressof(kept))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0) == 0
    assert libc.ptrace(0, 0, 0, 0) == -1, "the filter holds"


def handled() -> bool:
    # In bytes: nobody may not read the files of the interpreter's codecs.
    with open("/proc/self/status", "rb") as status:
        caught = next(line for line in status if line.startswith(b"SigCgt:"))
    return bool(int(caught.split()[1], 16) & 1 << 4)


def exact(routine, run) -> bool:
    result, trace = HwTrace.call(routine.run, *run["args"], emit=None)
    steps = [[step.address - routine.address, step.count] for step in trace.steps]
    right = run["result"] is None or result == int(run["result"], 16)
    assert right, "the program's own result"
    return trace.complete and steps == run["steps"]


def main():
    gates = {"none": lambda: None, "nobody": become_nobody, "seccomp": deny}
    cases = [(case, Routine(bytes.fromhex(case["bytes"]))) for case in corpus()]
    gates[sys.argv[1]]()
    assert not handled(), "nothing before the first scope"
    told = [exact(routine, run) for case, routine in cases for run in case["runs"]]
    spin = Routine(SPIN)
    with HwTrace.scope(emit=None, max_seconds=60) as window:
        spin.run(1, 0, 0, 0, 0, 0)
    tally = {"exact": sum(told), "of": len(told)}
    tally.update(window=window.complete, handler=handled())
    if window.skip_reason is not None:
        tally["skipped"] = window.skip_reason
    print(json.dumps(tally))


main()
