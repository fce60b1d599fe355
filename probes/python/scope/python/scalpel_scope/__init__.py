"""The exact instructions of one region of a running thread.

A scope is opened, the body runs, the scope is closed, and what ran is shown::

    from scalpel_scope import HwTrace

    with HwTrace.scope(libm.cbrt) as t:
        libm.cbrt(27.0)
    t.path, t.truncated, t.reasons, t.tier, t.skip_reason

A trace is complete, or truncated for named reasons; it is never a part that looks
like all. Where nothing can be recorded the body runs, and ``t.skip_reason`` says why.
"""

from __future__ import annotations

from ._code import Code
from ._native import AlreadyClosedError, OtherThreadError, ScopeError, WrongOrderError
from ._trace import HwBackend, HwTrace, ScopedTrace, Step, Totals

__all__ = [
    "AlreadyClosedError",
    "Code",
    "HwBackend",
    "HwTrace",
    "OtherThreadError",
    "ScopeError",
    "ScopedTrace",
    "Step",
    "Totals",
    "WrongOrderError",
]
