"""Scopes by the thousand, and processes with less: nothing is left behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROUNDS, corpus, held, leaked
from scalpel_scope import HwTrace

GATED = Path(__file__).with_name("gated.py")


def test_a_thousand_scopes_leave_nothing(spin):
    def once():
        _, t = HwTrace.call(spin.run, 1, emit=None)
        assert t.complete and t.instructions == 4

    for _ in range(50):
        once()
    assert leaked(held(once, 1000 // ROUNDS)) == {}


def test_a_hundred_thousand_passes_of_one_site_are_bounded(spin):
    def once():
        nonlocal t
        with HwTrace.scope(spin.code, emit=None) as t:
            spin.run(1, 0, 0, 0, 0, 0)

    t = None
    for _ in range(2000):
        once()
    assert leaked(held(once, 98_000 // ROUNDS)) == {}
    assert t.skip_reason.startswith("budget spent")
    assert t.totals.passes == 100_000
    assert t.totals.traps <= 1_100_000


def gated(gate, **more):
    environment = {**os.environ, **more}
    command = [sys.executable, str(GATED), gate]
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, check=False, timeout=120
    )
    assert done.returncode == 0, done
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("gate", ["nobody", "seccomp"])
def test_the_corpus_is_exact_with_less(gate):
    if gate == "nobody" and os.getuid() != 0:
        pytest.skip("only root can become nobody")
    told = gated(gate)
    runs = sum(len(case["runs"]) for case in corpus())
    assert told == {"exact": runs, "of": runs, "window": True, "handler": True}


def test_off_is_off():
    told = gated("none", SCALPEL_SCOPE="off")
    assert told["exact"] == 0 and not told["window"]
    assert told["skipped"] == "SCALPEL_SCOPE=off"
    assert not told["handler"], "no handler of SIGTRAP"
