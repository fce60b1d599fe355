"""The connection: one thread that sends what the others have written, every tenth of a second."""

import collections
import os
import select
import socket
import sys
import threading
import time

from scalpel_socket import _frames as frames
from scalpel_socket._watch import BLIND_SPOTS, SOURCE, record_of

EVERY = 0.1
WELCOME_WITHIN = 2.0
TIMEOUT = 300.0
LAST_WORDS_WITHIN = 2.0
ATTEMPTS = 5
NAMES_AT_ONCE = 512
COUNTS_AT_ONCE = 4096
NOTE_OF_ANY_KIND = 5


class RefusedError(Exception):
    """The collector does not want us, or there is none."""


class BrokenError(Exception):
    """The connection cannot be used any more."""


class Connection:
    """One connection to the collector, from HELLO on."""

    def __init__(self, path):
        self._data = bytearray()
        self.is_ending = False
        self.acknowledged = {}
        self.switched_off = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._inode = os.fstat(self._socket.fileno()).st_ino
        try:
            self._socket.connect(path)
            self._socket.setblocking(False)
            runtime = "CPython %d.%d.%d, sys.setprofile" % sys.version_info[:3]
            self.send(frames.hello(SOURCE, os.getpid(), threading.get_native_id(), runtime))
            self.welcome = self._welcome(time.monotonic() + WELCOME_WITHIN)
        except (OSError, BrokenError, frames.MalformedError) as error:
            self.close()
            raise RefusedError("the collector at %s: %s" % (path, error)) from None
        except RefusedError:
            self.close()
            raise

    def _welcome(self, until):
        while True:
            kind, payload = self._next(until)
            if kind == frames.WELCOME:
                return frames.welcome(payload)
            if kind == frames.REFUSED:
                raise RefusedError("the collector refused: " + frames.refused(payload))

    def _next(self, until):
        while True:
            found = frames.take(self._data)
            if found:
                return found
            left = until - time.monotonic()
            if left <= 0 or not self._wait(False, left) or not self._receive():
                raise BrokenError("it did not answer")

    def is_ours(self):
        """Tell whether the descriptor is still our socket: a program may close all that it did not open itself."""
        try:
            return os.fstat(self._socket.fileno()).st_ino == self._inode
        except OSError:
            return False

    def _wait(self, writing, seconds):
        wanted = [self._socket]
        try:
            ready = select.select(wanted, wanted if writing else [], [], seconds)
        except (OSError, ValueError) as error:
            raise BrokenError(str(error)) from None
        return bool(ready[0] or ready[1])

    def send(self, data, timeout=TIMEOUT):
        """Send all of it, in whatever parts there is room for, and read answers meanwhile."""
        view, until = memoryview(data), time.monotonic() + timeout
        while view:
            if not self.is_ours():
                raise BrokenError("the program closed the connection")
            try:
                view = view[self._socket.send(view, socket.MSG_NOSIGNAL) :]
                until = time.monotonic() + timeout
            except BlockingIOError:
                if time.monotonic() > until or not self._wait(True, until - time.monotonic()):
                    raise BrokenError("nothing moved for %d s" % timeout) from None
                self.listen()
            except OSError as error:
                raise BrokenError(str(error)) from None

    def listen(self):
        """Read the answers that have come."""
        while not self.is_ending and self._receive():
            while True:
                try:
                    found = frames.take(self._data)
                except frames.MalformedError as error:
                    raise BrokenError(str(error)) from None
                if not found:
                    break
                kind, payload = found
                if kind == frames.INTERN_ACK:
                    self.acknowledged.update(frames.acknowledged(payload))
                elif kind == frames.OFF:
                    self.switched_off += frames.switched_off(payload)
                elif kind == frames.REFUSED:
                    raise BrokenError(frames.refused(payload))

    def _receive(self):
        """Read once. False: nothing was there, or the collector says no more."""
        if not self.is_ours():
            raise BrokenError("the program closed the connection")
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return False
        except OSError as error:
            raise BrokenError(str(error)) from None
        self.is_ending = not data
        self._data += data
        return bool(data)

    def close(self):
        """Close it, unless the number is somebody else's by now."""
        if self.is_ours():
            self._socket.close()
        else:
            self._socket.detach()


class Sender:
    """Sends what a watch has seen."""

    def __init__(self, path, watch, connection):
        self.path, self._watch = path, watch
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._on_the_way = 0
        self._begin(connection)

    def _begin(self, connection):
        """Tell all from the beginning: names, numbers and sums belong to one connection."""
        self._connection = connection
        self._named = self._told = 0
        self._seq = {}
        self._lost = {}
        connection.send(frames.blind_spots(BLIND_SPOTS))

    def start(self):
        """Begin to send."""
        thread = threading.Thread(target=self._run, name="scalpel-sender", daemon=True)
        thread.start()

    def _run(self):
        self._watch.ignore_this_thread()
        while not self._watch.is_over:
            self._stop.wait(EVERY)
            with self._lock:
                if not self._watch.is_over:
                    self._round()

    def _round(self):
        try:
            self._send_all(TIMEOUT)
            self._listen()
            if self._connection.is_ending:
                self._watch.end()
                self._take_leave()
        except BrokenError as error:
            self._again(str(error))

    def _listen(self):
        self._connection.listen()
        off, self._connection.switched_off = self._connection.switched_off, []
        self._watch.switch_off(off)

    def finish(self):
        """Send what is left, and BYE. For the program's end: it waits two seconds at most."""
        self._watch.end()
        self._stop.set()
        if self._lock.acquire(timeout=LAST_WORDS_WITHIN):
            try:
                self._take_leave()
            finally:
                self._lock.release()

    def leave_to_parent(self):
        """Forget the connection of the process that this one was forked from."""
        self._connection.close()

    def _take_leave(self):
        try:
            self._send_all(LAST_WORDS_WITHIN)
            if self._watch.refused:
                text = "%d code objects got no number" % self._watch.refused
                self._connection.send(frames.note(NOTE_OF_ANY_KIND, 0, text), LAST_WORDS_WITHIN)
            self._connection.send(frames.bye(), LAST_WORDS_WITHIN)
        except BrokenError:
            # Whoever ended it without a BYE says so in the result.
            pass
        self._connection.close()

    def _again(self, why):
        """Connect again after a break, and say what it cost."""
        broke = time.monotonic_ns()
        on_the_way, self._on_the_way = self._on_the_way, 0
        self._connection.close()
        for _ in range(ATTEMPTS):
            try:
                self._begin(Connection(self.path))
                now = time.monotonic_ns()
                self._connection.send(frames.gap(broke, now, on_the_way, why))
                return
            except BrokenError:
                time.sleep(EVERY)
            except RefusedError:
                break
        self._watch.end()

    def _send_all(self, timeout):
        for lane in list(self._watch.lanes):
            while lane.events:
                # Names first: an event was written after its code was given a number.
                taken = [lane.events.popleft() for _ in range(min(len(lane.events), frames.EVENTS_AT_ONCE))]
                self._on_the_way = len(taken)
                self._send_names(timeout)
                self._connection.send(frames.events(lane.number, self._pack(lane, taken)), timeout)
                self._on_the_way = 0
                # A busy thread may keep this one here for long.
                self._listen()
        self._send_names(timeout)
        self._send_unseen(timeout)
        self._send_lost(timeout)

    def _send_unseen(self, timeout):
        for why, path in self._watch.unseen[self._told :]:
            # A path that is cut would name another file.
            path = path if len(path.encode("utf-8", "replace")) <= frames.LONGEST_NOTE else ""
            self._connection.send(frames.note(frames.UNSEEN, why, path), timeout)
            self._told += 1

    def _send_lost(self, timeout):
        lost = collections.Counter()
        for lane in list(self._watch.lanes):
            # Counted since before this connection, and told on it once.
            lost.update(dict(lane.lost_calls))
        rows = [(func, 0, n) for func, n in lost.items() if n != self._lost.get(func)]
        for at in range(0, len(rows), COUNTS_AT_ONCE):
            self._connection.send(frames.counts(rows[at : at + COUNTS_AT_ONCE]), timeout)
        self._lost.update(lost)

    def _send_names(self, timeout):
        while self._named < len(self._watch.codes):
            some = self._watch.codes[self._named : self._named + NAMES_AT_ONCE]
            records = [record_of(*code) for code in some]
            # 512 texts of 12 KiB do not fit one frame: then fewer.
            while sum(map(len, records)) > frames.MAX_PAYLOAD // 2 and len(records) > 1:
                records = records[: len(records) // 2]
            self._connection.send(frames.intern(records), timeout)
            self._named += len(records)

    def _pack(self, lane, taken):
        seq, pid = self._seq.get(lane.number, 0), os.getpid()
        packed = []
        for kind, func, frame, flags, now, value in taken:
            packed.append(
                frames.EVENT.pack(
                    now,
                    frames.NOT_MEASURED,
                    pid,
                    lane.tid,
                    func,
                    seq & 0xFFFFFFFF,
                    frame,
                    0,
                    value,
                    kind,
                    SOURCE,
                    flags,
                    frames.CPU_NOT_READ,
                    0,
                    0,
                )
            )
            seq += 1
        self._seq[lane.number] = seq
        return packed
