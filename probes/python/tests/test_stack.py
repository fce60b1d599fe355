"""Python, a C extension and the C library as one path: ``scalpel-ebpf record``, which ``$SCALPEL_TEST_RECORDER`` names."""

import json
import os
import shutil
import subprocess
import unittest

from support import PROBES, PYTHON, ProbeTest, environment

RECORDER = os.environ.get("SCALPEL_TEST_RECORDER", "")
NOT_PERMITTED = 3

EXTENSION = """
    #define PY_SSIZE_T_CLEAN
    #include <Python.h>
    #include <unistd.h>
    __attribute__((noinline)) long bridge_step(long number) {
        long parent = getppid();
        __asm__ volatile("" : "+r"(parent));
        return number + (parent > 0);
    }
    static PyObject *step(PyObject *self, PyObject *argument) {
        return PyLong_FromLong(bridge_step(PyLong_AsLong(argument)));
    }
    __attribute__((noinline)) PyObject *bridge_back(PyObject *function) {
        return PyObject_CallNoArgs(function);
    }
    static PyObject *back(PyObject *self, PyObject *function) {
        PyObject *result = bridge_back(function);
        __asm__ volatile("" : "+r"(result));
        return result;
    }
    static PyMethodDef methods[] = {
        {"step", step, METH_O, NULL}, {"back", back, METH_O, NULL}, {NULL, NULL, 0, NULL}};
    static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "bridge", NULL, -1, methods};
    PyMODINIT_FUNC PyInit_bridge(void) { return PyModule_Create(&definition); }
"""


@unittest.skipUnless(RECORDER, "$SCALPEL_TEST_RECORDER names no scalpel-ebpf")
@unittest.skipUnless(os.geteuid() == 0, "native functions need root")
class Stack(ProbeTest):
    """What was called from where, across the sources."""

    def setUp(self):
        """Build the extension, which nothing has mapped when the recording begins."""
        super().setUp()
        ask = "import sysconfig; print(sysconfig.get_paths()['include'])"
        include = subprocess.run([PYTHON, "-c", ask], capture_output=True, text=True, check=True)
        headers = include.stdout.strip()
        if not shutil.which("cc") or not os.path.exists(os.path.join(headers, "Python.h")):
            self.skipTest("no C compiler, or no headers of this Python")
        source = self.program(EXTENSION, "bridge.c")
        self.extension = os.path.join(self.folder, "bridge.so")
        # Debian's headers ask for a part that lies beside them.
        for part in ("x86_64-linux-gnu", "aarch64-linux-gnu"):
            own = os.path.join(os.path.dirname(headers), part, os.path.basename(headers))
            if os.path.isdir(own):
                os.mkdir(os.path.join(self.folder, part))
                os.symlink(own, os.path.join(self.folder, part, os.path.basename(headers)))
        options = ["-O2", "-g", "-shared", "-fPIC", "-I", headers, "-I", self.folder]
        subprocess.run(["cc", *options, source, "-o", self.extension], check=True)

    def genome(self, options, text):
        """Record a program; the summary and the report."""
        genome, summary = (os.path.join(self.folder, name) for name in ("g.genome", "s.json"))
        command = [RECORDER, "record", "-o", genome, "--summary", summary, *options]
        ran = subprocess.run(
            [*command, "--", PYTHON, self.program(text)],
            env=environment(False, SCALPEL_PROBES=PROBES),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=240,
        )
        if ran.returncode == NOT_PERMITTED:
            self.skipTest("not permitted: " + ran.stderr.strip().splitlines()[-1])
        self.assertEqual(ran.returncode, 0, ran.stderr)
        told = subprocess.run(
            [RECORDER, "report", genome, "--json"], capture_output=True, text=True, timeout=60
        )
        self.assertEqual(told.returncode, 0, told.stderr)
        with open(summary, encoding="utf-8") as file:
            return json.load(file), json.loads(told.stdout)

    def edges(self, report):
        """Calls by the names of caller and callee."""
        names = {f["key"]: f["name"] for f in report["functions"]}
        return {
            (names.get(e["caller"]), names.get(e["callee"])): e["calls"] for e in report["edges"]
        }

    def passed(self, edges, caller, callee):
        """Calls from one to the other, straight or through a function of the interpreter that nobody else called."""
        through = {via for via, called in edges if called == callee}
        for via in through - {caller}:
            self.assertEqual({above for above, called in edges if called == via}, {caller}, edges)
        return sum(calls or 0 for (_, called), calls in edges.items() if called == callee)

    def test_every_edge_from_python_over_an_extension_to_the_c_library_is_exact(self):
        native = ["-f", "step", "-f", "bridge_step", "-f", "getppid"]
        files = ["--lib", self.extension, "--lib", "libc.so*"]
        options = ["-F", "0", "--py-include", "app", *native, *files]
        summary, report = self.genome(
            options,
            """
            import threading
            import bridge
            def leaf(number): return bridge.step(number)
            def work():
                for number in range(12500): leaf(number)
            threads = [threading.Thread(target=work) for _ in range(8)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            """,
        )
        self.assertEqual((report["lost"], len(report["threads"])), (0, 9))
        edges = self.edges(report)
        path = ["work", "leaf", "step", "bridge_step", "getppid"]
        for edge in zip(path, path[1:]):
            self.assertEqual(self.passed(edges, *edge), 100_000, (edge, edges))
        for edge in (("work", "leaf"), ("step", "bridge_step"), ("bridge_step", "getppid")):
            self.assertEqual(edges.get(edge), 100_000, (edge, edges))
        by_name = {f["name"]: f for f in report["functions"]}
        self.assertEqual(by_name["getppid"]["calls"], 100_000)
        total = [by_name[name]["total_wall_ns"] for name in path if by_name[name]["total_wall_ns"]]
        self.assertGreater(len(total), 2, by_name)
        self.assertEqual(total, sorted(total, reverse=True))
        own = by_name["work"]["self_wall_ns"] + by_name["leaf"]["total_wall_ns"]
        self.assertEqual(own, by_name["work"]["total_wall_ns"])
        self.assertGreater(summary["clock_error_ns"], 0)

    def test_calls_back_into_python_nest_and_samples_land_in_the_innermost(self):
        native = ["-f", "back", "-f", "bridge_back", "--lib", self.extension]
        options = ["-F", "999", "--py-include", "app", *native]
        _, report = self.genome(
            options,
            """
            import time
            import bridge
            def spin():
                until = time.thread_time() + 0.02
                while time.thread_time() < until: pass
            def outer(): bridge.back(spin)
            for _ in range(50): outer()
            """,
        )
        edges = self.edges(report)
        for edge in (("back", "bridge_back"), ("bridge_back", "spin")):
            self.assertEqual(edges.get(edge), 50, edges)
        sampled = {f["name"]: f["sampled_total_ns"] for f in report["functions"]}
        self.assertGreater(sampled["outer"], 0)
        # The extension's return address is on the stack all the time: it is not where the program is.
        self.assertGreater(sampled["spin"], sampled["outer"] * 3 / 4, sampled)


if __name__ == "__main__":
    unittest.main()
