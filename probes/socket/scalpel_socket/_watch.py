"""What a thread does, by ``sys.setprofile``: calls become tuples that the sender packs later. Knows no socket."""

import collections
import itertools
import opcode
import sys
import threading
import time

from scalpel_socket import _frames as frames

SOURCE = 4

# Events that may wait for the sender, a thread; beyond it whole calls are lost, and counted.
ROOM = 1 << 16
# Room for the ends of what is open, and for a LOST event.
KEPT = 64
MOST_CODES = 100_000
# Files that are told one by one; of more it is only said that there are some.
MOST_FILES = 200

_CO_GENERATOR, _CO_COROUTINE, _CO_ASYNC_GENERATOR = 0x20, 0x80, 0x200
_SUSPENDS = _CO_GENERATOR | _CO_COROUTINE | _CO_ASYNC_GENERATOR
_RETURNS = {opcode.opmap.get(name) for name in ("RETURN_VALUE", "RETURN_CONST")} - {None}
_YIELDS = {opcode.opmap.get(name) for name in ("YIELD_VALUE",)} - {None}
_RESUME = opcode.opmap.get("RESUME", -1)
_YIELD_FROM = opcode.opmap.get("YIELD_FROM", -1)

BLIND_SPOTS = (
    "functions written in C are not seen",
    "a generator that is closed, or that an exception ends at its yield, is seen suspended and not ending",
    "code that sets a profile function of its own is not seen from then on, on that thread",
    "threads that ran before the probe was started are not seen",
)


class Lane:
    """One thread: its events in the order they happened, and the calls that are open on it."""

    def __init__(self, number, tid):
        self.number, self.tid = number, tid
        self.events = collections.deque()
        self.open = {}
        self.untold = 0
        self.lost_calls = collections.Counter()


class Watch:
    """All threads of the process."""

    def __init__(self, wanted):
        self._wanted = wanted
        self._local = threading.local()
        # By address; 0 = not watched. Each stays alive, so that no other code gets its address.
        self._known = {}
        self._kept = []
        self._ids = itertools.count(1)
        self._numbers = itertools.count()
        self._suspended = {}
        self._ignored = set()
        # Number, code object, module. Grows at its end alone.
        self.codes = []
        self.lanes = []
        self.refused = 0
        # Why, and a file or folder, empty = any: functions that may run unseen. Grows at its end alone.
        self.unseen = []
        self._left_out = set()
        self.is_over = False

    def begin(self):
        """Watch this thread and those that start from now on."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def end(self):
        """Watch nothing more: this thread at once, others at their next event."""
        self.is_over = True
        threading.setprofile(None)
        sys.setprofile(None)

    def ignore_this_thread(self):
        """Leave the calling thread alone."""
        sys.setprofile(None)
        self._ignored.add(threading.get_ident())

    def forked(self):
        """Be a new process: of the parent's threads one is left, which has not written anything yet."""
        self._local = threading.local()
        self._suspended, self._ignored = {}, set()
        self._numbers = itertools.count()
        self.lanes = []

    def switch_off(self, numbers):
        """Tell nothing more of these functions; calls that are open still end."""
        for number in numbers:
            # They were given in this order.
            for func, code, _ in self.codes[max(0, number - 1) : number]:
                if func == number:
                    self._known[id(code)] = 0

    def _leave_out(self, path):
        if path is None or path in self._left_out or len(self._left_out) > MOST_FILES:
            return
        self._left_out.add(path)
        self.unseen.append((frames.EXCLUDED, path if len(self._left_out) <= MOST_FILES else ""))

    def _profile(self, frame, event, _arg):
        if event == "call":
            self._call(frame)
        elif event == "return":
            self._return(frame, time.monotonic_ns())
        if self.is_over:
            sys.setprofile(None)

    def _lane(self):
        try:
            return self._local.lane
        except AttributeError:
            if threading.get_ident() in self._ignored:
                return None
            lane = Lane(next(self._numbers), threading.get_native_id())
            self._local.lane = lane
            self.lanes.append(lane)
            return lane

    def _call(self, frame):
        code = frame.f_code
        known = self._known.get(id(code))
        func = self._learn(frame) if known is None else known
        lane = self._lane()
        if not func or lane is None:
            return
        key = id(frame)
        if code.co_flags & _SUSPENDS:
            if not _starts(frame):
                self._resume(lane, key, func)
                return
            # Its memory is in use again: the one that was here has ended unseen.
            stale = self._suspended.pop(key, None)
            if stale is not None:
                unseen = (frames.UNWIND, stale, key, frames.INFERRED, time.monotonic_ns(), 0)
                lane.events.append(unseen)
        if len(lane.events) + len(lane.open) + KEPT > ROOM:
            lane.untold += 1
            lane.lost_calls[func] += 1
            return
        if lane.untold:
            lane.events.append((frames.LOST, 0, 0, 0, time.monotonic_ns(), lane.untold))
            lane.untold = 0
        lane.open[key] = func
        lane.events.append((frames.ENTER, func, key, 0, time.monotonic_ns(), 0))

    def _resume(self, lane, key, func):
        if self._suspended.get(key) == func:
            del self._suspended[key]
            lane.open[key] = func
            lane.events.append((frames.RESUME, func, key, 0, time.monotonic_ns(), 0))

    def _return(self, frame, now):
        lane = self._lane()
        if lane is None:
            return
        key = id(frame)
        func = lane.open.pop(key, None)
        if func is None:
            return
        kind = _how_it_leaves(frame)
        if kind == frames.SUSPEND:
            self._suspended[key] = func
        lane.events.append((kind, func, key, 0, now, 0))

    def _learn(self, frame):
        """Give a code object its number, 0 if it is not watched."""
        code = frame.f_code
        if len(self._kept) >= MOST_CODES:
            self.refused += 1
            return 0
        owner = frame.f_globals.get("__name__")
        owner = owner if type(owner) is str else ""
        func = next(self._ids) if self._wanted.watches(owner, code.co_filename) else 0
        if func:
            self.codes.append((func, code, owner))
        else:
            self._leave_out(self._wanted.left_out(code.co_filename))
        self._kept.append(code)
        self._known[id(code)] = func
        return func


def record_of(func, code, owner):
    """Return the name record of a code object."""
    name = getattr(code, "co_qualname", code.co_name)
    flags = 0
    if code.co_flags & (_CO_COROUTINE | _CO_ASYNC_GENERATOR):
        flags |= frames.ASYNC
    if code.co_flags & (_CO_GENERATOR | _CO_ASYNC_GENERATOR):
        flags |= frames.GENERATOR
    if name == "<module>":
        flags |= frames.MODULE
    if code.co_name == "<lambda>":
        flags |= frames.ANONYMOUS
    texts = (name, code.co_filename, owner)
    return frames.name(func, SOURCE, flags, code.co_firstlineno, 0, texts)


def _starts(frame):
    """Tell a generator's first run from a later one."""
    at = frame.f_lasti
    if at < 0:
        return True
    code = frame.f_code.co_code
    return code[at] == _RESUME and code[at + 1] & 3 == 0


def _how_it_leaves(frame):
    """Tell a return from an exception and from a yield, by the instruction that was the last."""
    at, code = frame.f_lasti, frame.f_code.co_code
    last = code[at] if 0 <= at < len(code) else -1
    if last in _RETURNS:
        return frames.EXIT
    if not frame.f_code.co_flags & _SUSPENDS:
        return frames.UNWIND
    if last in _YIELDS or (last == _RESUME and code[at + 1] & 3):
        return frames.SUSPEND
    following = code[at + 2] if at + 2 < len(code) else -1
    return frames.SUSPEND if following == _YIELD_FROM else frames.UNWIND
