"""How a process joins a recording and leaves it; a forked child joins for itself."""

import atexit
import os
import sys

from scalpel_socket._filter import Filter
from scalpel_socket._frames import BEFORE, EXCLUDED
from scalpel_socket._sender import BrokenError, Connection, RefusedError, Sender
from scalpel_socket._watch import MOST_FILES, Watch

_CALLS = 1
_MONOTONIC = 0

_sender = None
_is_registered = False
_watch = None


def start(path=None):
    """Join the recording at ``path``, else ``$SCALPEL_SOCKET``. Returns None, or why not: the program runs on."""
    global _sender, _watch, _is_registered
    path = path or os.environ.get("SCALPEL_SOCKET")
    refusal = _refusal(path)
    if refusal:
        return refusal
    try:
        connection = Connection(path)
        said = dict(connection.welcome["options"])
        if not connection.welcome["modes"] & _CALLS or connection.welcome["clock"] != _MONOTONIC:
            connection.close()
            return "the recording asks for what this probe cannot do: it writes calls, in CLOCK_MONOTONIC"
        wanted = Filter(said.get("py-include", ""), said.get("py-exclude", ""))
        _watch = Watch(wanted)
        _watch.unseen += [(EXCLUDED, folder) for folder in wanted.standard()]
        loaded = wanted.loaded()
        _watch.unseen += [(BEFORE, file) for file in (loaded if len(loaded) <= MOST_FILES else [""])]
        _sender = Sender(path, _watch, connection)
    except (BrokenError, RefusedError) as error:
        return str(error)
    _sender.start()
    if not _is_registered:
        _is_registered = True
        os.register_at_fork(after_in_child=_forked)
        atexit.register(stop)
    _watch.begin()
    return None


def stop():
    """Send what is left and leave the recording."""
    global _sender
    sender, _sender = _sender, None
    if sender is not None:
        sender.finish()


def _refusal(path):
    if not path:
        return "SCALPEL_SOCKET is not set: start the program with `scalpel-ebpf record -- CMD`"
    if _sender is not None:
        return "it is recorded already"
    if sys.getprofile() is not None:
        return "another profiler is at work"
    native = sys.modules.get("scalpel_probe")
    if native is not None:
        return "the native probe is in this process"
    return None


def _forked():
    """Be a process of its own: the parent's connection is its own, and its thread is not here."""
    global _sender
    sender, _sender = _sender, None
    if sender is None:
        return
    sender.leave_to_parent()
    _watch.forked()
    try:
        _sender = Sender(sender.path, _watch, Connection(sender.path))
    except (BrokenError, RefusedError):
        _watch.end()
        return
    _sender.start()
