"""Scopes with their names and their output."""

from __future__ import annotations

import enum
import os
import sys
from itertools import islice
from types import FrameType
from typing import IO, List, NamedTuple, Optional, Tuple, Union

from . import _native
from ._code import address_of, range_of

#: Lines of the folded call tree that is written by default.
TREE_LINES = 40

#: Where a trace goes on close: True = a folded call tree on ``sys.stdout``, None or
#: False = nowhere, a path = the full assembly in that file, a file = the tree in it.
Emit = Union[bool, None, str, "os.PathLike[str]", IO[str]]


class HwBackend(enum.Enum):
    """How instructions are seen. One asked for by name is used or skipped."""

    Auto = "auto"
    SingleStep = "single-step"
    IntelPt = "intel-pt"
    AmdLbr = "amd-lbr"


class Step(NamedTuple):
    """One instruction that ran."""

    address: int
    count: int
    code: bytes
    next: int


class Totals(NamedTuple):
    """What all passes of a call site took."""

    passes: int
    traps: int
    seconds: float


class ScopedTrace(_native.Scope):
    """One scope, and its trace once it is closed.

    It belongs to the thread that entered it. ``with`` closes it and cannot raise for
    that: what is wrong is one of ``reasons``. :meth:`close` raises a ``ScopeError``.
    """

    def __new__(
        cls,
        code: object,
        site: Tuple[str, int, int],
        backend: HwBackend = HwBackend.Auto,
        emit: Emit = None,
        max_traps: Optional[int] = None,
        max_seconds: Optional[float] = None,
    ) -> ScopedTrace:
        """Make a scope; use ``HwTrace``."""
        limits = (HwBackend(backend).value, max_traps, max_seconds)
        scope = super().__new__(cls, range_of(code), site, limits)
        scope._site = site
        scope._sink = emit
        scope._watcher = None
        return scope

    @property
    def site(self) -> str:
        """Where it was opened: full path, line and, where known, column."""
        return _site_text(self._site)

    @property
    def path(self) -> str:
        """The instructions that ran, as assembly: each once, with how often it ran."""
        return self.assembly()

    @property
    def complete(self) -> bool:
        """Whether something was recorded, and all of it.

        That is: the interrupted flow of this thread, signal handlers excluded.
        """
        return self._closed.complete

    @property
    def truncated(self) -> bool:
        """Whether something may be missing; ``reasons`` says why."""
        return bool(self._closed.reasons)

    @property
    def reasons(self) -> List[str]:
        """Why something may be missing."""
        return self._closed.reasons

    @property
    def tier(self) -> str:
        """How it was seen: ``"single-step"``, ``"none"`` ..."""
        return self._closed.tier

    @property
    def skip_reason(self) -> Optional[str]:
        """Why nothing was recorded; None if something was."""
        return self._closed.skip_reason

    @property
    def instructions(self) -> int:
        """How many instructions ran, iterations of ``rep`` each."""
        return self._closed.instructions

    @property
    def traps(self) -> int:
        """How many traps the scope took."""
        return self._closed.traps

    @property
    def addresses(self) -> List[int]:
        """The addresses in the order they ran, each as often as it ran."""
        return self._closed.addresses()

    @property
    def steps(self) -> List[Step]:
        """The instructions in the order they ran; a repeated ``rep`` is one step."""
        return [Step(*step) for step in self._closed.steps()]

    @property
    def totals(self) -> Totals:
        """What all passes of this call site took so far."""
        return Totals(*_native.totals(self._site))

    def tree(self, lines: int = TREE_LINES) -> str:
        """Return the folded call tree, in at most ``lines`` lines."""
        return self._closed.text("tree", "intel", lines)

    def assembly(self, syntax: str = "intel") -> str:
        """Return all of it as assembly, in ``"intel"`` or ``"att"`` syntax."""
        return self._closed.text("full", syntax, 0)

    def json(self, syntax: str = "intel") -> str:
        """Return one JSON object with every step in order."""
        return self._closed.text("json", syntax, 0)

    @property
    def _closed(self) -> _native.Trace:
        trace = self._trace
        if trace is None:
            raise _native.ScopeError("the scope is not closed: it has no trace yet")
        return trace

    def _watch(self) -> None:
        """End the scope when the event loop gets to run: the coroutine waits then."""
        asyncio = sys.modules.get("asyncio")
        loop = asyncio and asyncio._get_running_loop()  # noqa: SLF001
        if loop is not None:
            self._watcher = loop.call_soon(self._suspend)

    def _emit(self) -> None:
        """Write the trace where it is to go; called once, when it is closed."""
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None
        if self._sink is None or self._sink is False:
            return
        if isinstance(self._sink, (str, os.PathLike)):
            with open(self._sink, "a", encoding="utf-8") as file:
                file.write(f"scope {self.site}\n{self.assembly()}")
            return
        file = sys.stdout if self._sink is True else self._sink
        if file is not None:
            file.write(f"scope {self.site}\n{self.tree()}")


class HwTrace:
    """Opens scopes, each named by the place in the source that it is opened at."""

    @staticmethod
    def scope(
        code: object = None,
        *,
        backend: HwBackend = HwBackend.Auto,
        emit: Emit = True,
        max_traps: Optional[int] = None,
        max_seconds: Optional[float] = None,
    ) -> ScopedTrace:
        """Return a scope of the native ``code``, for a ``with`` statement.

        ``code`` is a :class:`Code`, the address of a function, a ctypes or cffi
        function pointer, or a built-in function. None is everything that this thread
        runs, the interpreter included, within the budget: 100,000 traps and 1 s.
        """
        _native.pause()
        try:
            site = _site_of(sys._getframe(1))
            return ScopedTrace(code, site, backend, emit, max_traps, max_seconds)
        finally:
            _native.resume()

    @staticmethod
    def call(
        function: object,
        *args: int,
        code: object = None,
        backend: HwBackend = HwBackend.Auto,
        emit: Emit = True,
        max_traps: Optional[int] = None,
        max_seconds: Optional[float] = None,
    ) -> Tuple[int, ScopedTrace]:
        """Call a C function in a scope of its own, and nothing else in it.

        Return its result as an unsigned number, and the closed scope. It takes at most
        six integers (pointers are integers) and must return: whoever calls it vouches
        for that, as with ctypes. ``code`` narrows down what is shown.
        """
        _native.pause()
        try:
            site = _site_of(sys._getframe(1))
            scope = ScopedCall(None, site, backend, emit, max_traps, max_seconds)
            limits = (HwBackend(backend).value, max_traps, max_seconds)
            unsigned = [arg & 0xFFFFFFFFFFFFFFFF for arg in args]
            asked = (address_of(function), unsigned, range_of(code))
            result, scope._called = _native.call(*asked, site, limits)
            scope._emit()
            return result, scope
        finally:
            _native.resume()


class ScopedCall(ScopedTrace):
    """The scope of one call, which is closed already."""

    @property
    def _trace(self) -> _native.Trace:
        return self._called


def _site_of(frame: FrameType) -> Tuple[str, int, int]:
    code = frame.f_code
    path = code.co_filename
    if not path.startswith("<"):
        path = os.path.abspath(path)
    column = 0
    if hasattr(code, "co_positions"):
        here = next(islice(code.co_positions(), frame.f_lasti // 2, None), None)
        if here is not None and here[2] is not None:
            column = here[2] + 1
    return path, frame.f_lineno or 0, column


def _site_text(site: Tuple[str, int, int]) -> str:
    path, line, column = site
    return f"{path}:{line}:{column}" if column else f"{path}:{line}"
