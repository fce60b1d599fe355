"""Decides whether and how the probe starts in this interpreter, and wires it up.

All that happens per call is native. Nothing here may raise into the program, print, or import
what the interpreter has not imported by itself.
"""

import os
import sys

NOTE_RUNTIME, NOTE_BLIND_SPOT, NOTE_REFUSAL, NOTE_NOTE, NOTE_UNSEEN = 1, 2, 4, 5, 7
# Why functions may run unseen.
UNSEEN_BEFORE, UNSEEN_UNWATCHED = 1, 4
# Files that are told one by one: their notes share room with others. A longer path would be cut.
MOST_FILES, LONGEST_PATH = 100, 232
MODE_CALL, MODE_COUNT, MODE_NATIVE = 1, 2, 4
OLDEST = (3, 8)

BLIND_SPOTS = (
    "comprehensions since 3.12 run inside their function",
    "functions of C extensions, unless native functions are recorded; never C code calling C code",
    "operators and other C code that is reached without a call in Python code",
    "code that ran before the probe started, and calls that were under way then",
    "subinterpreters",
)


def start(own=()):
    """Join the recording. Return ``None``, or the reason why this interpreter is not recorded.

    ``own``: folders of code that belongs to the probe and is never recorded.
    """
    try:
        return _start(own)
    except Exception as error:  # a probe's fault is never the program's
        return "%s: %s" % (type(error).__name__, error)


def _start(own):
    if not os.environ.get("SCALPEL_SOCKET"):
        return "SCALPEL_SOCKET is not set; use `scalpel-ebpf record -- CMD`"
    refusal = _unsupported()
    if refusal:
        return refusal
    from scalpel_probe import _native

    refusal = _native.join(runtime())
    if refusal:
        return refusal
    refusal = _wire(_native, own)
    if refusal:
        _native.note(NOTE_REFUSAL, 0, "%s: %s" % (runtime(), refusal))
        _native.note(NOTE_UNSEEN, UNSEEN_UNWATCHED, "")
    return refusal


def runtime():
    """Return the interpreter with its version, as ``CPython 3.12.1``."""
    return "CPython %d.%d.%d" % sys.version_info[:3]


def _unsupported():
    if sys.implementation.name != "cpython":
        return "%s is not supported, only CPython" % sys.implementation.name
    if sys.version_info < OLDEST:
        return "Python %d.%d is too old" % sys.version_info[:2]
    if "t" in getattr(sys, "abiflags", ""):
        return "free-threaded builds of Python are not supported"
    return None


def _wire(native, own):
    if not native.is_main():
        return "a subinterpreter is not watched"
    if not _layout_proved(native):
        return "frames of this build of Python are laid out in a way that is not known"
    if sys.version_info >= (3, 12):
        from scalpel_probe import _monitoring as mechanism
    else:
        from scalpel_probe import _profile as mechanism
    refusal = mechanism.refusal()
    if refusal:
        return refusal
    folders = (os.path.dirname(os.path.abspath(__file__)),) + tuple(own)
    own = "\0".join(folder + os.sep for folder in folders)
    refusal = native.prepare("\0".join(_standard_library()), own)
    if refusal:
        return refusal
    native.note(NOTE_RUNTIME, 0, "%s, %s" % (runtime(), mechanism.NAME))
    for blind_spot in BLIND_SPOTS + mechanism.BLIND_SPOTS:
        native.note(NOTE_BLIND_SPOT, 0, blind_spot)
    _at_exit(native)
    refusal = mechanism.start(native)
    if not refusal:
        _tell_loaded(native, folders)
    return refusal


def _tell_loaded(native, own):
    """Say which files were loaded before: what ran of them then was not seen."""
    known = tuple(_standard_library()) + tuple(own)
    files = []
    for module in list(sys.modules.values()):
        # Not by `getattr`: a module may make its attributes when they are asked for.
        file = getattr(module, "__dict__", {}).get("__file__")
        if type(file) is not str or not file.endswith(".py"):
            continue
        path = os.path.abspath(file)
        if not path.startswith(known) or "-packages" in path:
            files.append(path)
    if len(files) > MOST_FILES or any(len(os.fsencode(path)) > LONGEST_PATH for path in files):
        files = [""]
    for path in files:
        native.note(NOTE_UNSEEN, UNSEEN_BEFORE, path)


def _layout_proved(native):
    def deeper():
        return native.prove()

    return native.prove() and deeper()


def _standard_library():
    """Return the folders of Python's own library, as code objects name them."""
    folder = os.path.dirname(os.__file__)
    folders = [folder, os.path.realpath(folder)]
    major_minor = "%d%d" % sys.version_info[:2]
    folders += [path for path in sys.path if path.endswith("python%s.zip" % major_minor)]
    return folders


def _at_exit(native):
    # `atexit` is built in; registered first, it runs last.
    import atexit

    atexit.register(native.finish)
