"""The bytes of the wire protocol: every frame kind, and nothing about sockets. FORMAT.md shows the layouts."""

import struct

WIRE_VERSION = 1
EVENT_VERSION = 1
MAX_PAYLOAD = 1 << 20
SOCKET_MODE = 2

HELLO, WELCOME, REFUSED, INTERN, INTERN_ACK, EVENTS = 1, 2, 3, 4, 5, 6
BLIND_SPOTS, COUNTS, GAP, BYE, NOTE, OFF = 7, 8, 9, 10, 11, 12

ENTER, EXIT, SUSPEND, RESUME, UNWIND, LOST = 1, 2, 4, 5, 6, 11

# A note that functions may run unseen, and why.
UNSEEN, BEFORE, EXCLUDED = 7, 1, 2

# Flags of a name.
ASYNC, GENERATOR, MODULE, ANONYMOUS = 1 << 0, 1 << 1, 1 << 5, 1 << 6
# Flags of an event.
INFERRED = 1 << 2

NOT_KNOWN = 0xFFFFFFFF
NOT_MEASURED = 0xFFFFFFFFFFFFFFFF
CPU_NOT_READ = 0xFFFF

HEAD = struct.Struct("<IBBH")
EVENT = struct.Struct("<QQIIIIQQQBBHHBB")
EVENTS_AT_ONCE = 4096
_NAME = struct.Struct("<IBBH10I2Q")
_LONGEST_TEXT = 4096
LONGEST_NOTE = 232


class MalformedError(Exception):
    """What came is no frame of this protocol."""


def frame(kind, payload):
    """Return a whole frame."""
    return HEAD.pack(len(payload), kind, WIRE_VERSION, 0) + payload


def _text(text):
    data = text.encode("utf-8", "replace")[:0xFFFF]
    return struct.pack("<H", len(data)) + data


def hello(source, pid, tid, runtime):
    """Say who speaks."""
    head = struct.pack("<HBBII", EVENT_VERSION, source, SOCKET_MODE, pid, tid)
    return frame(HELLO, head + _text(runtime))


def name(func, source, flags, line, end_line, texts, hashes=(0, 0)):
    """Return the record of one function; ``texts`` are its name, file and owner."""
    parts = [text.encode("utf-8", "replace")[:_LONGEST_TEXT] for text in texts]
    lengths = [len(part) for part in parts]
    head = _NAME.pack(
        _NAME.size + sum(lengths),
        1,
        source,
        flags,
        func,
        line,
        end_line,
        NOT_KNOWN,
        NOT_KNOWN,
        NOT_KNOWN,
        *lengths,
        0,
        *hashes,
    )
    return head + b"".join(parts)


def intern(records):
    """Return a frame of name records."""
    return frame(INTERN, struct.pack("<I", len(records)) + b"".join(records))


def events(lane, packed):
    """Return a frame of events of one lane, each packed by ``EVENT``."""
    return frame(EVENTS, struct.pack("<I", lane) + b"".join(packed))


def blind_spots(texts):
    """Return what the probe cannot see."""
    return frame(BLIND_SPOTS, struct.pack("<H", len(texts)) + b"".join(map(_text, texts)))


def counts(rows):
    """Return counters: local id, calls so far, lost calls so far."""
    packed = (struct.pack("<IQQ", *row) for row in rows)
    return frame(COUNTS, struct.pack("<I", len(rows)) + b"".join(packed))


def gap(start, end, lost, why):
    """Say that events are missing."""
    return frame(GAP, struct.pack("<QQQ", start, end, lost) + _text(why))


def note(kind, value, text):
    """Return a word to the reader of the result."""
    return frame(NOTE, struct.pack("<BQ", kind, value) + _text(text))


def bye(why=""):
    """Return the last frame."""
    return frame(BYE, _text(why))


def take(data):
    """Take the first whole frame off a bytearray: its kind and payload, or None when more has to come."""
    if len(data) < HEAD.size:
        return None
    length, kind, version, _ = HEAD.unpack_from(data)
    if version != WIRE_VERSION:
        raise MalformedError("wire version %d" % version)
    if length > MAX_PAYLOAD:
        raise MalformedError("a frame of %d bytes" % length)
    end = HEAD.size + length
    if len(data) < end:
        return None
    payload = bytes(data[HEAD.size : end])
    del data[:end]
    return kind, payload


class _Reader:
    def __init__(self, payload):
        self.payload, self.at = payload, 0

    def take(self, length):
        part = self.payload[self.at : self.at + length]
        if len(part) != length:
            raise MalformedError("a payload is cut")
        self.at += length
        return part

    def numbers(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def text(self):
        (length,) = self.numbers("<H")
        return self.take(length).decode("utf-8", "replace")


def welcome(payload):
    """Return what a WELCOME says."""
    reader = _Reader(payload)
    version, clock, modes = reader.numbers("<HBB")
    recording = reader.take(16)
    segment, count = reader.numbers("<QH")
    options = [(reader.text(), reader.text()) for _ in range(count)]
    return {
        "event_version": version,
        "clock": clock,
        "modes": modes,
        "recording": recording.hex(),
        "segment": segment,
        "options": options,
    }


def refused(payload):
    """Return why."""
    return _Reader(payload).text()


def acknowledged(payload):
    """Return pairs of local and global ids."""
    reader = _Reader(payload)
    (count,) = reader.numbers("<I")
    return [reader.numbers("<II") for _ in range(count)]


def switched_off(payload):
    """Return local ids of functions of which nothing more is wanted."""
    reader = _Reader(payload)
    (count,) = reader.numbers("<I")
    return [reader.numbers("<I")[0] for _ in range(count)]
