"""Blind spots, of Python and of Node.js: for each that a probe declares a program whose function runs unseen there.

The report names the spot, and never says of such a function that it did not run.
"""

import json
import os
import shutil
import struct
import subprocess
import unittest

from support import MONITORING, PROBES, PYTHON, VERSION, ProbeTest, environment

RECORDER = os.environ.get("SCALPEL_TEST_RECORDER", "")
NODE = os.environ.get("SCALPEL_TEST_NODE") or shutil.which("node") or ""
EXTENSION = os.path.join(PROBES, "python", "cp%d%d" % VERSION[:2])
BEFORE = "code that ran before this preload"
ONLY_COUNTED = "functions that are only counted"
# What is looked for in a single executable, and kinds of program headers.
FUSE = b"NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2:"
LOAD, NOTE, GNU_STACK = 1, 4, 0x6474E551
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

# A thread of C code that comes in by itself, and one that `threading` knows nothing of.
NATIVE_THREAD = """\
import ctypes
def inner(_): return 0
made = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(inner)
libc, thread = ctypes.CDLL(None), ctypes.c_ulong()
libc.pthread_create(ctypes.byref(thread), None, made, None)
libc.pthread_join(thread, None)
"""
BARE_THREAD = """\
import _thread, time
done = []
def inner(): done.append(1)
_thread.start_new_thread(inner, ())
while not done: time.sleep(0.001)
"""

# Children that start without the probe, and what they run.
CHILD = "def in_child(): pass\nin_child()\n"
PYTHON_CHILDREN = {
    "isolated": "subprocess.run([sys.executable, '-I', '-S', child], check=True)",
    "without an environment": "subprocess.run([sys.executable, child], env={}, check=True)",
    "of a shell": "subprocess.run(['sh', '-c', 'env -i \"$0\" \"$1\"; true', sys.executable, child])",
    "the next program": "os.execve(sys.executable, [sys.executable, '-S', child], {})",
    "orphaned": "subprocess.Popen([sys.executable, '-E', child], start_new_session=True)",
}
NODE_CHILDREN = {
    "without an environment": "children.spawnSync(process.execPath, [child], { env: {} });",
    "orphaned": "children.spawn(process.execPath, [child],"
    " { env: {}, detached: true, stdio: 'ignore' }).unref();",
}
# Of a recording that knows of every child, as the ones of root do outside of containers.
NOT_EVERY = "not every process of this recording is known"

# The spots of the mechanism below 3.12.
PROFILE_SPOTS = [
    ("threads that native code brings along", "inner", NATIVE_THREAD, []),
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


def single_executable(folder):
    """Put `blob` into a copy of Node.js, as postject does; the path, or nothing where it cannot be."""
    with open(shutil.which(NODE), "rb") as file, open(os.path.join(folder, "blob"), "rb") as other:
        node, blob = bytearray(file.read()), other.read()
    fuse = node.find(FUSE)
    at, count = struct.unpack_from("<Q", node, 32)[0], struct.unpack_from("<H", node, 56)[0]
    headers = [struct.unpack_from("<IIQQQQQQ", node, at + 56 * i) for i in range(count)]
    kinds = [header[0] for header in headers]
    if fuse < 0 or GNU_STACK not in kinds or kinds.index(GNU_STACK) < kinds.index(LOAD):
        return None
    node[fuse + len(FUSE)] = ord("1")
    # A page of its own behind everything, and the note in it; the headers are those of the stack and of other notes.
    name = b"NODE_SEA_BLOB\0\0\0"
    note = struct.pack("<III", len(name) - 2, len(blob), 0) + name + blob
    node += bytes(-len(node) % 4096)
    end = max(header[3] + header[6] for header in headers if header[0] == LOAD)
    address = (end + 4095) // 4096 * 4096
    place = (len(node), address, address, len(note), len(note))
    for kind, old in ((LOAD, GNU_STACK), (NOTE, NOTE)):
        where = at + 56 * kinds.index(old)
        struct.pack_into("<IIQQQQQQ", node, where, kind, 4, *place, 4096)
    path = os.path.join(folder, "single")
    with open(path, "wb") as file:
        file.write(node + note)
    os.chmod(path, 0o755)
    return path


@unittest.skipUnless(RECORDER, "$SCALPEL_TEST_RECORDER names no scalpel-ebpf")
class Unseen(ProbeTest):
    """What the probes say that they cannot see."""

    def report(self, command, *options, inside=()):
        """Record a program that must end well; the report."""
        genome = os.path.join(self.folder, "run.genome")
        ran = subprocess.run(
            [*inside, RECORDER, "record", "--no-kernel", "-o", genome, *options, "--", *command],
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

    def states(self, command, *options, inside=()):
        """What became of the functions of the sources that did not run: by name, the state and the reason."""
        told = self.report(command, "--src", self.folder, *options, inside=inside)
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
            kept = ["were left out", BEFORE, ONLY_COUNTED, "functions of /", "any function: "]
            known = [*spots, *kept]
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

    def test_python_functions_of_children_without_the_probe_are_not_said_not_to_have_run(self):
        self.program(CHILD, "child.py")
        self.program("def never(): pass\n", "idle.py")
        head = "import os, subprocess, sys\nchild = os.path.join(os.path.dirname(__file__), 'child.py')\n"
        for how, text in PYTHON_CHILDREN.items():
            with self.subTest(how):
                program = self.program(head + "def seen(): pass\nseen()\n" + text + "\n")
                states, told = self.states([PYTHON, program])
                self.assertEqual(states["in_child"], ("not-visible", "unwatched"), told["doubts"])
        program = self.program(head + "subprocess.run([sys.executable, child], check=True)\n")
        states, told = self.states([PYTHON, program])
        self.assertNotIn("in_child", states, "the child has the probe")
        if not any(NOT_EVERY in doubt["what"] for doubt in told["doubts"]):
            self.assertEqual(states["never"], ("never-ran", None), told["doubts"])

    def test_where_the_kernel_tells_of_no_children_one_sign_of_them_is_enough(self):
        # Long enough to be looked at: what takes the place of a target and is over before has no sign.
        self.program(CHILD + "import time\ntime.sleep(2)\n", "child.py")
        self.program("def never(): pass\n", "idle.py")
        inside = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
        if subprocess.run([*inside, "true"], capture_output=True).returncode:
            self.skipTest("no namespaces of pids can be made here")
        head = "import os, subprocess, sys\nchild = os.path.join(os.path.dirname(__file__), 'child.py')\n"
        for how in ("isolated", "of a shell", "the next program"):
            with self.subTest(how):
                text = head + "def seen(): pass\nseen()\n" + PYTHON_CHILDREN[how] + "\n"
                states, told = self.states([PYTHON, self.program(text)], inside=inside)
                self.assertEqual(states["in_child"], ("not-visible", "unwatched"), told["doubts"])
                self.assertTrue(any(NOT_EVERY in doubt["what"] for doubt in told["doubts"]))
        states, told = self.states(
            [PYTHON, self.program("def seen(): pass\nseen()\n")], inside=inside
        )
        self.assertEqual(states["never"], ("never-ran", None), told["doubts"])

    def test_a_thread_that_threading_knows_nothing_of_is_seen(self):
        program = self.program(BARE_THREAD + "def never(): pass\n")
        states, told = self.states([PYTHON, program])
        self.assertNotIn("inner", states, told["blind_spots"])
        self.assertEqual(states["never"], ("never-ran", None), told["blind_spots"])
        states, told = self.states([PYTHON, self.program(NATIVE_THREAD + "def never(): pass\n")])
        if MONITORING:
            self.assertNotIn("inner", states, told["blind_spots"])
        else:
            for name in ("inner", "never"):
                self.assertEqual(states[name], ("not-visible", "unwatched"), told["blind_spots"])

    @unittest.skipUnless(
        os.path.isdir(os.path.join(PROBES, "node")) and NODE, "no probe of Node.js"
    )
    def test_javascript_functions_of_children_without_the_probe_are_not_said_not_to_have_run(self):
        self.program("function inChild() {}\ninChild();\n", "child.js")
        self.program("exports.never = function never() {};\n", "idle.js")
        head = "const children = require('child_process'), child = __dirname + '/child.js';\n"
        for how, text in NODE_CHILDREN.items():
            with self.subTest(how):
                program = self.program(head + "function seen() {}\nseen();\n" + text, "app.js")
                states, told = self.states([NODE, program])
                self.assertEqual(states["inChild"], ("not-visible", "unwatched"), told["doubts"])
        text = head + "children.spawnSync(process.execPath, [child]);\n"
        states, told = self.states([NODE, self.program(text, "app.js")])
        self.assertNotIn("inChild", states, "the child has the probe")
        if not any(NOT_EVERY in doubt["what"] for doubt in told["doubts"]):
            self.assertEqual(states["never"], ("never-ran", None), told["doubts"])

    @unittest.skipUnless(
        os.path.isdir(os.path.join(PROBES, "node")) and NODE, "no probe of Node.js"
    )
    def test_functions_of_a_single_executable_are_not_said_not_to_have_run(self):
        self.program("function inside() {}\ninside();\n", "inside.js")
        config = {"main": "inside.js", "output": "blob", "disableExperimentalSEAWarning": True}
        config = self.program(json.dumps(config), "sea.json")
        made = [NODE, "--experimental-sea-config", config]
        subprocess.run(made, cwd=self.folder, check=True, capture_output=True, timeout=120)
        single = single_executable(self.folder)
        if single is None:
            self.skipTest("this Node.js is not one to which a program can be added here")
        head = "function seen() {}\nseen();\nconst run = require('child_process').execFileSync;\n"
        for how, env, why in (
            ("with the preload", "process.env", "unread"),
            ("without", "{}", "unwatched"),
        ):
            with self.subTest(how):
                text = head + "run(%s, [], { env: %s });\n" % (json.dumps(single), env)
                states, told = self.states([NODE, self.program(text, "app.js")])
                self.assertEqual(states["inside"], ("not-visible", why), told["doubts"])

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
