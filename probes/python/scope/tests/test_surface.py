"""What the surface promises: forms, names, order, threads, output."""

import asyncio
import ctypes
import io
import json
import math
import sys
import threading

import pytest
import scalpel_scope
from scalpel_scope import Code, HwBackend, HwTrace

HERE = __file__
#: Time is no matter here: other work may run on this machine.
QUIET = {"emit": None, "max_seconds": 60}


def test_a_scope_is_named_by_its_place_in_the_source(spin):
    with HwTrace.scope(spin.code, **QUIET) as t:
        line = sys._getframe().f_lineno - 1
    assert t.site.startswith(f"{HERE}:{line}")


def test_a_window_shows_what_the_thread_runs(spin):
    with HwTrace.scope(**QUIET) as t:
        spin.run(2, 0, 0, 0, 0, 0)
    assert t.complete, t.reasons
    start, end = spin.code
    inside = [a - start for a in t.addresses if start <= a < end]
    assert inside == [0, 2, 4, 2, 4, 6]
    assert t.instructions > len(inside)


def test_functions_are_found_by_ctypes_and_by_built_in():
    libc = ctypes.CDLL(None)
    code = Code.function(libc.labs)
    assert code.start == ctypes.cast(libc.labs, ctypes.c_void_p).value
    assert code == Code.function(code.start) and code.end > code.start
    result, t = HwTrace.call(libc.labs, -7, emit=None)
    assert result == 7 and t.complete
    assert all(code.start <= address < code.end for address in t.addresses)
    try:
        code = Code.function(math.gcd)
    except LookupError as error:
        pytest.skip(f"this interpreter has no symbols: {error}")
    with HwTrace.scope(math.gcd, **QUIET) as t:
        assert math.gcd(12, 18) == 6
    assert t.complete and t.instructions > 0


def test_what_is_no_native_function_is_refused():
    with pytest.raises(TypeError):
        HwTrace.scope(lambda: None)
    with pytest.raises(LookupError):
        HwTrace.scope(8)
    with pytest.raises(ValueError):
        HwTrace.scope((16, 16))


def test_an_exception_goes_through_and_closes_the_scope(spin):
    with pytest.raises(ZeroDivisionError):
        with HwTrace.scope(spin.code, **QUIET) as t:
            spin.run(1, 0, 0, 0, 0, 0)
            1 / 0  # noqa: B018
    assert t.complete and spin.offsets(t) == [0, 2, 4, 6]


def test_a_double_close_is_an_error(spin):
    with HwTrace.scope(spin.code, **QUIET) as t:
        t.close()
        with pytest.raises(scalpel_scope.AlreadyClosedError):
            t.close()
    with pytest.raises(scalpel_scope.ScopeError):
        t.__enter__()


def test_a_trace_is_there_when_the_scope_is_closed(spin):
    t = HwTrace.scope(spin.code, **QUIET)
    with pytest.raises(scalpel_scope.ScopeError):
        t.close()
    told = []
    with t:
        try:
            told.append(t.reasons)
        except scalpel_scope.ScopeError:
            told.append("not yet")
    assert told == ["not yet"] and t.reasons == []


def test_a_wrong_order_is_an_error_and_a_reason(spin):
    outer = HwTrace.scope(spin.code, **QUIET)
    inner = HwTrace.scope(spin.code, **QUIET)
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(scalpel_scope.WrongOrderError):
        outer.close()
    outer.__exit__(None, None, None)
    spin.run(1, 0, 0, 0, 0, 0)
    inner.close()
    assert "wrong order" in outer.reasons
    assert spin.offsets(inner) == [0, 2, 4, 6]


def test_a_close_on_another_thread_is_an_error_and_a_reason(spin):
    t = HwTrace.scope(spin.code, **QUIET)
    t.__enter__()
    raised = []

    def elsewhere():
        with pytest.raises(scalpel_scope.OtherThreadError) as caught:
            t.close()
        raised.append(caught)
        t.__exit__(None, None, None)

    # Started before the scope is one's own: a thread that starts within it ends it.
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert raised and t.truncated and "thread hop" in t.reasons
    with HwTrace.scope(spin.code, **QUIET) as again:
        spin.run(1, 0, 0, 0, 0, 0)
    assert again.complete and spin.offsets(again) == [0, 2, 4, 6]


def test_sixteen_nest_and_the_seventeenth_is_skipped(spin):
    scopes = [HwTrace.scope(spin.code, **QUIET) for _ in range(17)]
    for scope in scopes:
        scope.__enter__()
    spin.run(1, 0, 0, 0, 0, 0)
    for scope in reversed(scopes):
        scope.close()
    assert "16" in scopes[16].skip_reason
    for scope in scopes[:16]:
        assert scope.complete, scope.reasons
        assert spin.offsets(scope) == [0, 2, 4, 6]


def test_a_scope_that_is_skipped_leaves_the_one_around_it_alone(spin):
    with HwTrace.scope(spin.code, **QUIET) as outer:
        with HwTrace.scope(spin.code, backend=HwBackend.IntelPt, **QUIET) as inner:
            spin.run(1, 0, 0, 0, 0, 0)
    assert outer.complete and spin.offsets(outer) == [0, 2, 4, 6]
    if inner.skip_reason is not None:
        assert inner.skip_reason.startswith("intel-pt")
        assert inner.addresses == [] and not inner.complete


def test_a_named_backend_is_never_replaced(spin):
    for backend in (HwBackend.IntelPt, HwBackend.AmdLbr):
        _, t = HwTrace.call(spin.run, 1, backend=backend, emit=None)
        assert t.tier in ("none", backend.value)
        assert (t.tier == "none") == (t.skip_reason is not None)
    _, t = HwTrace.call(spin.run, 1, backend=HwBackend.SingleStep, emit=None)
    assert t.tier == "single-step" and t.complete


def test_an_await_inside_ends_the_scope(spin):
    async def main():
        with HwTrace.scope(spin.code, **QUIET) as t:
            spin.run(1, 0, 0, 0, 0, 0)
            await asyncio.sleep(0)
            spin.run(1, 0, 0, 0, 0, 0)
        with HwTrace.scope(spin.code, **QUIET) as whole:
            spin.run(1, 0, 0, 0, 0, 0)
        await asyncio.sleep(0)
        return t, whole

    t, whole = asyncio.run(main())
    assert "async suspend" in t.reasons and not t.complete
    assert spin.offsets(t) == [0, 2, 4, 6] or "budget" in t.reasons
    assert whole.complete and spin.offsets(whole) == [0, 2, 4, 6]


def test_a_spent_budget_really_stops(spin):
    _, t = HwTrace.call(spin.run, 100_000_000, max_traps=500, emit=None)
    assert t.reasons == ["budget"] and t.traps <= 501


def test_two_threads_at_once_are_exact(spin):
    wrong = []

    def work():
        for turns in range(1, 40):
            _, t = HwTrace.call(spin.run, turns, emit=None)
            if not t.complete or t.instructions != 2 + 2 * turns:
                wrong.append((turns, t.reasons, t.instructions))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_output_goes_where_it_is_told(spin, capsys, tmp_path):
    file, path = io.StringIO(), tmp_path / "trace.txt"
    for emit in (True, None, False, file, path):
        HwTrace.call(spin.run, 3, emit=emit)
    out = capsys.readouterr().out
    assert out.count("scope ") == 1 and HERE in out
    assert "8 instructions (single-step), complete" in file.getvalue()
    assert "dec ecx x3" in path.read_text()


def test_renderings_say_what_ran(spin):
    _, t = HwTrace.call(spin.run, 3, emit=None)
    assert "dec ecx x3" in t.path
    assert "decl %ecx x3" in t.assembly("att")
    document = json.loads(t.json())
    assert document["status"] == "complete" and document["instructions"] == 8
    assert [row["bytes"] for row in document["trace"]][:2] == ["89f9", "ffc9"]
    assert len(t.tree().splitlines()) <= 40
    with pytest.raises(ValueError):
        t.assembly("masm")
