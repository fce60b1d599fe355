"""Every routine of the conformance corpus, in the call form and as a region."""

import pytest
from conftest import Routine, corpus
from scalpel_scope import HwTrace

#: Compiled once a routine: each is a call site of its own, with its own budget.
REGION = """
with HwTrace.scope(routine.code, emit=None, max_seconds=60) as trace:
    result = routine.run(*run["args"])
"""


@pytest.mark.parametrize("case", corpus(), ids=lambda case: case["name"])
def test_call_is_exact(case):
    routine = Routine(bytes.fromhex(case["bytes"]))
    for run in case["runs"]:
        result, trace = HwTrace.call(routine.run, *run["args"], emit=None)
        check(case, run, routine, trace)
        if run["result"] is not None:
            assert result == int(run["result"], 16)


@pytest.mark.parametrize("case", corpus(), ids=lambda case: case["name"])
def test_region_is_exact(case):
    routine = Routine(bytes.fromhex(case["bytes"]))
    for run in case["runs"]:
        names = {"HwTrace": HwTrace, "routine": routine, "run": run}
        exec(compile(REGION, f"<{case['name']}>", "exec"), names)
        result, trace = names["result"], names["trace"]
        check(case, run, routine, trace)
        if run["result"] is not None:
            assert result == int(run["result"], 16)


def check(case, run, routine, trace):
    assert trace.skip_reason is None
    assert trace.reasons == []
    assert trace.complete and not trace.truncated
    assert trace.tier == "single-step"
    steps = [[step.address - routine.address, step.count] for step in trace.steps]
    assert steps == run["steps"]
    assert trace.instructions == run["instructions"]
    code = bytes.fromhex(case["bytes"])
    for step in trace.steps:
        offset = step.address - routine.address
        assert code[offset : offset + len(step.code)] == step.code
