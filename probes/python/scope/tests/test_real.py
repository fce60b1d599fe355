"""Real code within scopes: what it computes is what it computes without."""

import concurrent.futures
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from scalpel_scope import HwTrace

DOCUMENT = '{"a": [1, 2.5, "text \\u00e9"], "b": {"c": null, "d": true}}'


#: Compiled once a test: each is a call site of its own, with its own budget.
SCOPED = """
with HwTrace.scope(emit=None, max_seconds=60) as t:
    result = body()
"""


def scoped(body):
    names = {"HwTrace": HwTrace, "body": body}
    exec(compile(SCOPED, f"<{body.__code__.co_firstlineno}>", "exec"), names)
    result, t = names["result"], names["t"]
    if (t.skip_reason or "").startswith("budget spent: (this process)"):
        pytest.skip(t.skip_reason)
    assert t.skip_reason is None
    assert t.instructions > 0
    return result, t


def test_the_c_scanner_of_json():
    result, t = scoped(lambda: json.loads(DOCUMENT))
    assert result == json.loads(DOCUMENT)
    assert t.complete, t.reasons


def test_the_example_of_the_readme_runs():
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    example = readme.split("```python\n", 1)[1].split("```", 1)[0]
    command = [sys.executable, "-c", example]
    told = subprocess.check_output(command, universal_newlines=True)
    assert "complete: the interrupted flow" in told
    assert told.splitlines()[-1] == "7 complete True None"


def test_re():
    pattern = re.compile(r"(\w+)@(\w+)\.org")
    text = "write to someone@example.org, please"
    result, t = scoped(lambda: pattern.search(text).groups())
    assert result == ("someone", "example")
    assert t.complete, t.reasons


def test_numpy_sort():
    numpy = pytest.importorskip("numpy")
    values = numpy.arange(300)[::-1].copy()
    result, t = scoped(lambda: numpy.sort(values))
    assert (result == numpy.arange(300)).all()
    assert t.complete or t.reasons == ["budget"]


def not_followed(t):
    """What was started inside is not in the trace, and the trace says so."""
    assert set(t.reasons) <= {"fork or exec", "budget"}
    told = json.loads(t.json())["assumed"]
    assert t.reasons or any("not followed" in fact for fact in told)


def test_a_thread_pool_is_not_followed_and_works():
    def body():
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return list(pool.map(abs, range(-5, 0)))

    result, t = scoped(body)
    assert result == [5, 4, 3, 2, 1]
    not_followed(t)


def test_a_subprocess_is_not_followed_and_works():
    command = [sys.executable, "-c", "print(6 * 7)"]
    result, t = scoped(lambda: subprocess.check_output(command))
    assert result == b"42\n"
    not_followed(t)


def test_an_exception_within_is_an_exception():
    def body():
        try:
            json.loads("[")
        except ValueError as error:
            return str(error)

    result, t = scoped(body)
    assert result.startswith("Expecting value")
    assert t.complete or t.reasons == ["budget"]
