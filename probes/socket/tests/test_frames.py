"""Every frame kind has the bytes of the golden vectors."""

import json
import os
import unittest

from support import HOME

from scalpel_socket import _frames as frames

GOLDEN = os.path.join(HOME, "..", "..", "scalpel-common", "golden", "frames.txt")
FIELDS = ("time", "cpu_ns", "pid", "tid", "func", "seq", "frame", "site", "value", "kind", "source", "flags")


def vectors():
    """Kind, fields and bytes of each vector."""
    with open(GOLDEN, encoding="utf-8") as file:
        for line in file:
            if not line.startswith("#"):
                said, data = line.rstrip("\n").split(" => ")
                kind, fields = said.split(" ", 1)
                yield kind, json.loads(fields), bytes.fromhex(data)


def record(said):
    """Make a name record of what a vector says."""
    numbers = [said[key] for key in ("id", "source", "flags", "line", "end_line")]
    texts = [said[key] for key in ("name", "file", "owner")]
    return frames.name(*numbers, texts, (said["body_hash"], said["text_hash"]))


def event(said):
    """Pack an event of a vector."""
    return frames.EVENT.pack(*(said[key] for key in FIELDS), said["cpu"], said["weight"], said["reserved"])


WRITERS = {
    "HELLO": lambda f: frames.hello(f["source"], f["pid"], f["tid"], f["runtime"]),
    "INTERN": lambda f: frames.intern([record(said) for said in f["records"]]),
    "EVENTS": lambda f: frames.events(f["lane"], [event(said) for said in f["events"]]),
    "BLIND_SPOTS": lambda f: frames.blind_spots(f["texts"]),
    "COUNTS": lambda f: frames.counts(f["counts"]),
    "GAP": lambda f: frames.gap(f["start"], f["end"], f["lost"], f["why"]),
    "BYE": lambda f: frames.bye(f["why"]),
    "NOTE": lambda f: frames.note(f["kind"], f["value"], f["text"]),
}
READERS = {
    "WELCOME": lambda payload: dict(
        frames.welcome(payload), options=[list(o) for o in frames.welcome(payload)["options"]]
    ),
    "REFUSED": lambda payload: {"why": frames.refused(payload)},
    "OFF": lambda payload: {"ids": frames.switched_off(payload)},
    "INTERN_ACK": lambda payload: {"pairs": [list(pair) for pair in frames.acknowledged(payload)]},
}


class Golden(unittest.TestCase):
    """Frames, byte by byte."""

    def test_every_kind_is_written_or_read_as_the_vectors_say(self):
        seen = set()
        for kind, fields, data in vectors():
            with self.subTest(kind):
                if kind in WRITERS:
                    self.assertEqual(WRITERS[kind](fields), data)
                waiting = bytearray(data + b"more")
                number, payload = frames.take(waiting)
                self.assertEqual((number, waiting), (getattr(frames, kind), b"more"))
                if kind in READERS:
                    self.assertEqual(READERS[kind](payload), fields)
            seen.add(kind)
        self.assertEqual(seen, set(WRITERS) | set(READERS))

    def test_a_frame_is_taken_when_all_of_it_is_there(self):
        for _, _, data in vectors():
            for cut in range(len(data)):
                self.assertIsNone(frames.take(bytearray(data[:cut])))

    def test_what_is_no_frame_is_refused(self):
        for data in (b"\0\0\0\0\1\2\0\0", b"\xff\xff\xff\xff\1\1\0\0"):
            with self.assertRaises(frames.MalformedError):
                frames.take(bytearray(data))
        for cut in (0, 1, 27, 29):
            with self.assertRaises((frames.MalformedError, frames.struct.error)):
                frames.welcome(bytes(cut))


if __name__ == "__main__":
    unittest.main()
