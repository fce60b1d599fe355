"""Runs programs under the stand-in for the collector, with the probe injected as ``record`` does."""

import collections
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest

COLLECTOR = os.environ.get("SCALPEL_TEST_COLLECTOR", "")
PROBES = os.environ.get("SCALPEL_PROBES", "")
PYTHON = os.environ.get("SCALPEL_TEST_PYTHON", sys.executable)
VERSION = tuple(int(part) for part in os.environ.get("SCALPEL_TEST_VERSION", "0.0").split("."))
MONITORING = VERSION >= (3, 12)

RUNTIME, BLIND_SPOT, GAP, REFUSAL, NOTE, EXCLUDED = 1, 2, 3, 4, 5, 6
INFERRED, C_FUNCTION, CLASS_BODY, ASYNC = 1 << 2, 1 << 4, 1 << 5, 1 << 0

Ran = collections.namedtuple("Ran", "code out err")


def program_file(folder, text, name="program.py"):
    """Write a program and return its path."""
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(textwrap.dedent(text))
    return path


def environment(injected=True, **more):
    """Return the environment of a program, as ``record`` sets it."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    env["PYTHONHASHSEED"] = "1"
    if injected:
        env["PYTHONPATH"] = os.path.join(PROBES, "python", "inject")
    if "PYTHONPATH" in more and injected:
        more["PYTHONPATH"] = env["PYTHONPATH"] + ":" + more["PYTHONPATH"]
    env.update(more)
    return env


def plain(arguments, cwd=None, **env):
    """Run Python without collector and probe."""
    done = subprocess.run(
        [PYTHON, *arguments],
        cwd=cwd,
        env=environment(False, **env),
        capture_output=True,
        text=True,
        timeout=120,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


class Recording:
    """What came of one program: its own output, and what its probes wrote."""

    def __init__(self, ran, lines):
        self.code, self.out, self.err = ran
        self.hellos, self.events, self.processes = [], [], []
        for line in lines:
            record = json.loads(line)
            if "hello" in record:
                self.hellos.append(record)
            elif "kind" in record:
                self.events.append(record)
            else:
                self.processes.append(record)
        self.events.sort(key=lambda event: event["time"])

    @property
    def functions(self):
        """All named functions."""
        return [function for process in self.processes for function in process["functions"]]

    def function(self, name):
        """Return the one function of that name."""
        found = [function for function in self.functions if function["name"] == name]
        assert len(found) == 1, (name, [function["name"] for function in self.functions])
        return found[0]

    def notes(self, kind):
        """Texts of the notes of a kind."""
        return [n["text"] for p in self.processes for n in p["notes"] if n["kind"] == kind]

    def kinds(self, name):
        """What happened to a function, in order: ``Enter Suspend ...``."""
        return " ".join(event["kind"] for event in self.events if event["name"] == name)

    def calls(self):
        """How often each function was entered."""
        return collections.Counter(e["name"] for e in self.events if e["kind"] == "Enter")

    def faults(self):
        """Ends without beginning, beginnings over open frames, numbers that are missing."""
        faults, is_open, last = [], {}, {}
        for event in self.events:
            key = (event["pid"], event["frame"])
            what = (event["kind"], event["name"])
            lane = (event["lane"], event["pid"], event["tid"])
            if event["seq"] != last.get(lane, event["seq"] - 1) + 1:
                faults.append(("gap", what))
            last[lane] = event["seq"]
            if event["kind"] == "Enter":
                if key in is_open:
                    faults.append(("entered twice", what))
                is_open[key] = event["func"]
            elif event["kind"] in ("Exit", "Unwind", "Suspend", "Resume"):
                if is_open.get(key) != event["func"]:
                    faults.append(("not open", what))
                if event["kind"] in ("Exit", "Unwind"):
                    is_open.pop(key, None)
        return faults


def record(
    arguments,
    options=(),
    mode="call",
    injected=True,
    cwd=None,
    command=None,
    slots=1 << 16,
    off=None,
    **env,
):
    """Run Python under the stand-in; ``command`` replaces the interpreter.

    The program's own output goes through a pipe beside that of the stand-in.
    """
    line = [COLLECTOR, "--mode", mode, "--slots", str(slots)]
    if off:
        line += ["--off", off]
    for option in options:
        line += ["--option", option]
    reading, writing = os.pipe()
    own = []
    with open(reading, encoding="utf-8", errors="replace") as pipe:
        reader = threading.Thread(target=lambda: own.append(pipe.read()))
        reader.start()
        shell = 'exec "$@" >&%d %d>&-' % (writing, writing)
        line += ["--", "sh", "-c", shell, "sh", *(command or [PYTHON]), *arguments]
        try:
            done = subprocess.run(
                line,
                cwd=cwd,
                env=environment(injected, **env),
                capture_output=True,
                text=True,
                timeout=240,
                pass_fds=[writing],
            )
        finally:
            os.close(writing)
            reader.join()
    return Recording(Ran(done.returncode, own[0], done.stderr), done.stdout.splitlines())


class ProbeTest(unittest.TestCase):
    """A test with a folder of its own."""

    maxDiff = None

    def setUp(self):
        """Make the folder."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)

    def program(self, text, name="program.py"):
        """Write a program into the folder."""
        return program_file(self.folder, text, name)

    def record(self, text, *arguments, **keywords):
        """Record a program that must end well and whose events must fit."""
        keywords.setdefault("options", ["py-include=app"])
        recording = record([self.program(text), *arguments], **keywords)
        self.assertEqual(recording.code, 0, recording.err)
        self.assertTrue(recording.hellos, "no HELLO: " + recording.err)
        self.assertEqual(recording.faults(), [])
        return recording

    def same(self, arguments, **keywords):
        """Run with and without the probe: same output, same exit code. Returns the recording."""
        without = record(arguments, cwd=self.folder, injected=False, **keywords)
        self.assertEqual(without.hellos, [])
        keywords.setdefault("options", ["py-include=app"])
        recording = record(arguments, cwd=self.folder, **keywords)
        self.assertTrue(recording.hellos)
        self.assertEqual(recording.faults(), [])
        self.assertEqual((recording.code, recording.out), (without.code, without.out))
        self.assertEqual(recording.err, without.err)
        return recording
