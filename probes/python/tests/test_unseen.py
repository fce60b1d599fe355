"""Blind spots, of Python and of Node.js: for each that a probe declares a program whose function runs unseen there.

The report names the spot, and never says of such a function that it did not run.
"""

import json
import os
import shutil
import subprocess
import unittest

from support import MONITORING, PROBES, PYTHON, VERSION, ProbeTest, environment

RECORDER = os.environ.get("SCALPEL_TEST_RECORDER", "")
NODE = os.environ.get("SCALPEL_TEST_NODE") or shutil.which("node") or ""
EXTENSION = os.path.join(PROBES, "python", "cp%d%d" % VERSION[:2])
BEFORE = "code that ran before this preload"
ONLY_COUNTED = "functions that are only counted"
INTERPRETERS = "_interpreters" if VERSION >= (3, 13) else "_xxsubinterpreters"

# Part of the declared spot, what runs unseen, the program (which also calls `seen`), and flags.
PYTHON_SPOTS = [
    ("comprehensions", "<listcomp>", "[number for number in range(9)]", []),
    ("functions of C extensions", "sleep", "import time; time.sleep(0)", []),
    ("operators and other C code", "index", "[1, 2, 3].index(2) + len('x' * 3)", []),
    (
        "code that ran before the probe started",
        "early",
        "def early(): pass\nearly()\nimport sys; sys.path.insert(0, %r)\n"
        "import scalpel_probe; scalpel_probe.start()" % EXTENSION,
        ["-S"],
    ),
    (
        "subinterpreters",
        "inner",
        "import %s as i\nother = i.create()\ni.run_string(other, 'def inner(): pass\\ninner()')"
        % INTERPRETERS,
        [],
    ),
]

# The spots of the mechanism below 3.12.
PROFILE_SPOTS = [
    (
        "threads that the program starts without `threading`",
        "inner",
        "import _thread, time\ndone = []\ndef inner(): done.append(1)\n"
        "_thread.start_new_thread(inner, ())\nwhile not done: time.sleep(0.001)",
        [],
    ),
    (
        "a thread in which the program uses sys.setprofile",
        "inner",
        "import sys\ndef inner(): pass\nsys.setprofile(lambda *_: None)\ninner()\n"
        "sys.setprofile(None)",
        [],
    ),
]

NODE_SPOTS = [
    ("code of Node.js itself", "map", "[1].map((number) => number);", "app.js"),
    ("eval, new Function", "made", "eval('function made() {} made()');", "app.js"),
    ("initializers of class fields", "field", "class A { field = 1; } new A();", "app.js"),
    (
        "children and workers that are started without NODE_OPTIONS",
        "inChild",
        "require('child_process').execFileSync(process.execPath,"
        " ['-e', 'function inChild() {} inChild()'], { env: {} });",
        "app.js",
    ),
]

# What runs here has been loaded in another process, and lies in a snapshot of its heap.
EARLY = "function early() { return 1; }\nglobalThis.early = early;\n"


@unittest.skipUnless(RECORDER, "$SCALPEL_TEST_RECORDER names no scalpel-ebpf")
class Unseen(ProbeTest):
    """What the probes say that they cannot see."""

    def report(self, command, *options):
        """Record a program that must end well; the report."""
        genome = os.path.join(self.folder, "run.genome")
        ran = subprocess.run(
            [RECORDER, "record", "--no-kernel", "-o", genome, *options, "--", *command],
            env=environment(False, SCALPEL_PROBES=PROBES),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=240,
        )
        self.assertEqual(ran.returncode, 0, ran.stderr)
        told = subprocess.run(
            [RECORDER, "report", genome, "--json"], capture_output=True, text=True, timeout=60
        )
        self.assertEqual(told.returncode, 0, told.stderr)
        return json.loads(told.stdout)

    def states(self, command, *options):
        """What became of the functions of the sources that did not run: by name, the state and the reason."""
        told = self.report(command, "--src", self.folder, *options)
        return {row["name"]: (row["state"], row["why"]) for row in told["unseen"]}, told

    def check(self, report, probe, spot, name):
        """The spot is named; what ran there is not in the report, or at least is not said not to have run."""
        declared = [text for text in report["blind_spots"] if text.startswith(probe + ": ")]
        self.assertTrue([text for text in declared if spot in text], (spot, declared))
        rows = {f["name"]: f for f in report["functions"]}
        self.assertEqual(rows["seen"]["calls"], 1)
        unseen = [f for f in report["functions"] if f["name"] == name]
        self.assertTrue(all(f["state"] != "never-ran" and not f["calls"] for f in unseen), unseen)
        return declared

    def test_of_python(self):
        declared = []
        all_spots = PYTHON_SPOTS if MONITORING else PYTHON_SPOTS[1:] + PROFILE_SPOTS
        for spot, name, text, flags in all_spots:
            with self.subTest(spot):
                program = self.program(text + "\ndef seen(): pass\nseen()\n")
                report = self.report([PYTHON, *flags, program])
                declared = self.check(report, "python", spot, name)
        spots = [spot for spot, *_ in PYTHON_SPOTS + PROFILE_SPOTS]
        for text in declared:
            # What was left out is a choice, and a generator's end is no function.
            kept = [
                *spots,
                "were left out",
                "closing a generator",
                "functions of /",
                "any function: ",
            ]
            known = any(part in text for part in kept)
            self.assertTrue(known, "no program shows: " + text)

    @unittest.skipUnless(
        os.path.isdir(os.path.join(PROBES, "node")) and NODE, "no probe of Node.js"
    )
    def test_of_node(self):
        declared = []
        for spot, name, text, file in NODE_SPOTS:
            with self.subTest(spot):
                program = self.program(text + "\nfunction seen() {}\nseen();\n", file)
                declared = self.check(self.report([NODE, program]), "node", spot, name)
        spots = [spot for spot, *_ in NODE_SPOTS]
        for text in declared:
            # The other two tests show these.
            known = [*spots, "were left out", BEFORE, ONLY_COUNTED, "functions of /"]
            self.assertTrue(any(part in text for part in known), "no program shows: " + text)

    @unittest.skipUnless(
        os.path.isdir(os.path.join(PROBES, "node")) and NODE, "no probe of Node.js"
    )
    def test_of_what_lies_in_a_snapshot(self):
        entry = self.program(EARLY, "entry.js")
        snapshot = ["--snapshot-blob", os.path.join(self.folder, "heap")]
        subprocess.run([NODE, *snapshot, "--build-snapshot", entry], check=True, timeout=120)
        program = self.program("early();\nfunction seen() {}\nseen();\n", "app.js")
        self.check(self.report([NODE, *snapshot, program]), "node", BEFORE, "early")

    @unittest.skipUnless(
        os.path.isdir(os.path.join(PROBES, "node")) and NODE, "no probe of Node.js"
    )
    def test_of_what_is_only_counted(self):
        text = "function twice(x) { function x() {} x(); }\ntwice(1);\ntwice(2);\n"
        program = self.program(text + "function seen() {}\nseen();\n", "app.js")
        report = self.report([NODE, program])
        self.assertTrue([text for text in report["blind_spots"] if ONLY_COUNTED in text])
        row = {f["name"]: f for f in report["functions"]}["twice"]
        self.assertEqual((row["calls"], row["state"], row["self_wall_ns"]), (2, "ran", None))

    def test_python_functions_of_the_sources_that_may_have_run_unseen_are_not_said_not_to_have_run(
        self,
    ):
        self.program("def never(): pass\n", "idle.py")
        self.program("def left(): pass\ndef left_idle(): pass\nleft()\n", "leftout.py")
        by_hand = self.program(PYTHON_SPOTS[3][2] + "\ndef seen(): pass\nseen()\n")
        states, told = self.states([PYTHON, "-S", by_hand])
        self.assertEqual(states["early"], ("not-visible", "before"), told["blind_spots"])
        self.assertEqual(states["never"], ("never-ran", None), told["blind_spots"])
        program = self.program("import leftout\ndef seen(): pass\ndef not_called(): pass\nseen()\n")
        states, told = self.states([PYTHON, program], "--py-exclude", "leftout")
        for name in ("left", "left_idle"):
            self.assertEqual(states[name], ("not-visible", "excluded"), told["blind_spots"])
        for name in ("never", "not_called"):
            self.assertEqual(states[name], ("never-ran", None), told["blind_spots"])
        # Of a second interpreter nothing is known.
        inner = PYTHON_SPOTS[4][2] + "\ndef seen(): pass\nseen()\n"
        states, told = self.states([PYTHON, self.program(inner)])
        self.assertEqual(states["never"], ("not-visible", "unwatched"), told["blind_spots"])

    @unittest.skipUnless(
        os.path.isdir(os.path.join(PROBES, "node")) and NODE, "no probe of Node.js"
    )
    def test_javascript_functions_of_the_sources_that_may_have_run_unseen_are_not_said_not_to_have_run(
        self,
    ):
        self.program("exports.never = function never() {};\n", "idle.js")
        left = "exports.left = function left() {}; exports.leftIdle = function leftIdle() {};\n"
        self.program(left + "exports.left();\n", "leftout.js")
        text = "require('./leftout.js');\nfunction seen() {}\nfunction notCalled() {}\nseen();\n"
        program = self.program(text, "app.js")
        states, told = self.states([NODE, program], "--node-exclude", "**/leftout.js")
        for name in ("left", "leftIdle"):
            self.assertEqual(states[name], ("not-visible", "excluded"), told["blind_spots"])
        for name in ("never", "notCalled"):
            self.assertEqual(states[name], ("never-ran", None), told["blind_spots"])
        entry = self.program(EARLY, "entry.js")
        snapshot = ["--snapshot-blob", os.path.join(self.folder, "heap")]
        subprocess.run([NODE, *snapshot, "--build-snapshot", entry], check=True, timeout=120)
        program = self.program("early();\nfunction seen() {}\nseen();\n", "app.js")
        states, told = self.states([NODE, *snapshot, program])
        self.assertEqual(states["early"], ("not-visible", "before"), told["blind_spots"])


if __name__ == "__main__":
    unittest.main()
