"""Real code in a thousand scopes in a row: right results, and nothing left behind."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

THOUSAND = Path(__file__).with_name("thousand.py")


def told(body: str) -> dict:
    command = [sys.executable, str(THOUSAND), body]
    return json.loads(subprocess.check_output(command, timeout=300))


@pytest.mark.parametrize("process", range(2))
@pytest.mark.parametrize("body", ["json", "re", "numpy", "sorted"])
def test_125_scopes_leave_nothing(body, process):
    if body == "numpy":
        pytest.importorskip("numpy")
    result = told(body)
    assert result["leaked"] == {}
    # One that the scheduler held up ends by its budget, and says so.
    assert set(result["reasons"]) <= {"budget"}
    assert result["complete"] > 0


def test_the_threads_of_a_pool_are_gone_when_it_is():
    result = told("pool")
    assert result["leaked"].get("fds", 0) == 0
    assert set(result["reasons"]) <= {"budget", "fork or exec"}
