"""What a scope is of: a range of native code, however it is named."""

from __future__ import annotations

import ctypes
import types
from typing import NamedTuple, Optional

from . import _native


class Code(NamedTuple):
    """Native code from one address up to another, in this process."""

    start: int
    end: int

    @classmethod
    def range(cls, start: int, length: int) -> Code:
        """Return the ``length`` bytes at ``start``."""
        return cls(start, start + length)

    @classmethod
    def function(cls, function: object) -> Code:
        """Return the whole native function, as long as its file's symbols say.

        ``function`` is an address, a ctypes or cffi function pointer, or a built-in
        function of an extension module. ``LookupError`` if no symbol of known size
        holds the address: name the range yourself then.
        """
        address = address_of(function)
        found = _native.function(address)
        if found is None:
            raise LookupError(
                f"no symbol of known size holds {address:#x}: use Code.range"
            )
        return cls(*found)


def address_of(function: object) -> int:
    """Return the address of a native function."""
    if isinstance(function, int):
        return function
    if isinstance(function, ctypes._CFuncPtr):  # noqa: SLF001
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    if type(function).__module__ == "_cffi_backend":
        import _cffi_backend

        return int(_cffi_backend.FFI().cast("uintptr_t", function))
    if isinstance(function, (types.BuiltinFunctionType, types.BuiltinMethodType)):
        return _native.builtin(function)
    raise TypeError(
        f"{function!r} is no native function: pass an address, a ctypes or cffi "
        "function, a built-in function, or None for everything that the thread runs"
    )


def range_of(code: object) -> Optional[tuple]:
    """Return the addresses that a scope of ``code`` shows; None is everything."""
    if code is None:
        return None
    if isinstance(code, tuple):
        start, end = code
        return (start, end)
    return tuple(Code.function(code))
