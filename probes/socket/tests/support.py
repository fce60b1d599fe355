"""Runs programs under ``scalpel-ebpf record --no-kernel``, with the probe of this folder alone."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
HOME = os.path.dirname(HERE)
PYTHON = os.environ.get("SCALPEL_TEST_PYTHON", sys.executable)
RECORDER = os.environ.get("SCALPEL_TEST_RECORDER", "")

sys.path.insert(0, HOME)


class Recorded:
    """What came of one program, and what the report says."""

    def __init__(self, ran, report):
        self.code, self.out, self.err = ran.returncode, ran.stdout, ran.stderr
        self.report = report
        self.functions = {f["name"]: f for f in report["functions"]}
        self.doubts = " ".join(str(doubt) for doubt in report["doubts"])

    def calls(self):
        """Calls of each function, by name."""
        return {name: f["calls"] for name, f in self.functions.items()}

    def edges(self):
        """Calls from each caller to each callee, by their names."""
        names = {f["key"]: f["name"] for f in self.report["functions"]}
        edges = self.report["edges"]
        return {(names.get(e["caller"]), names.get(e["callee"])): e["calls"] for e in edges}


@unittest.skipUnless(RECORDER, "$SCALPEL_TEST_RECORDER names no scalpel-ebpf")
class RecordTest(unittest.TestCase):
    """A test with a folder of its own."""

    maxDiff = None

    def setUp(self):
        """Make the folder, in which no native probe is found."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)
        os.mkdir(os.path.join(self.folder, "python"))
        os.mkdir(os.path.join(self.folder, "node"))
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        self.env.update(SCALPEL_PROBES=self.folder, PYTHONPATH=HOME, PYTHONDONTWRITEBYTECODE="1")

    def program(self, text, name="program.py"):
        """Write a program into the folder."""
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(text))
        return path

    def record(self, text, *arguments, options=(), probe=("-m", "scalpel_socket")):
        """Record a program and read the report."""
        file = os.path.join(self.folder, "run.genome")
        line = [RECORDER, "record", "-o", file, "--no-kernel", "--py-include", "app", *options]
        line += ["--", PYTHON, *probe, self.program(text), *arguments]
        ran = subprocess.run(line, env=self.env, capture_output=True, text=True, timeout=120)
        told = subprocess.run([RECORDER, "report", file, "--json"], capture_output=True, text=True, timeout=60)
        self.assertEqual(told.returncode, 0, ran.stderr + told.stderr)
        return Recorded(ran, json.loads(told.stdout))

    def plain(self, text, *arguments):
        """Run a program without probe and collector."""
        line = [PYTHON, self.program(text), *arguments]
        return subprocess.run(line, env=self.env, capture_output=True, text=True, timeout=120)
