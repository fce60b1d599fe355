"""The probe and the collector together: ``scalpel-ebpf record``, which ``$SCALPEL_TEST_RECORDER`` names."""

import json
import os
import random
import subprocess
import time
import unittest

from support import PROBES, PYTHON, ProbeTest, environment

RECORDER = os.environ.get("SCALPEL_TEST_RECORDER", "")
REAL = os.environ.get("SCALPEL_TEST_REAL", "")
NODE = os.environ.get("SCALPEL_TEST_NODE", "")
NOT_PERMITTED = 3
# How many programs are killed; more by hand.
KILLS = int(os.environ.get("SCALPEL_TEST_KILLS", "20"))
# `cargo xtask soak` may ask for more.
MOMENTS = int(os.environ.get("SCALPEL_TEST_MOMENTS", "10"))


@unittest.skipUnless(RECORDER, "$SCALPEL_TEST_RECORDER names no scalpel-ebpf")
class Record(ProbeTest):
    """What the genome says."""

    def genome(self, options, arguments, program=PYTHON):
        """Record a program; its exit code, and the report as JSON."""
        file = os.path.join(self.folder, "run.genome")
        env = environment(False, SCALPEL_PROBES=PROBES)
        ran = subprocess.run(
            [RECORDER, "record", "-o", file, *options, "--", program, *arguments],
            env=env,
            capture_output=True,
            text=True,
            timeout=240,
        )
        if ran.returncode == NOT_PERMITTED:
            self.skipTest("not permitted: " + ran.stderr.strip().splitlines()[-1])
        told = subprocess.run(
            [RECORDER, "report", file, "--json"], capture_output=True, text=True, timeout=60
        )
        self.assertEqual(told.returncode, 0, ran.stderr + told.stderr)
        return ran.returncode, json.loads(told.stdout)

    def calls(self, report):
        """Calls of each Python function, by name."""
        return {f["name"]: f["calls"] for f in report["functions"] if f["language"] == "python"}

    def test_counts_and_edges_are_exact(self):
        program = self.program("""
            import threading
            def leaf(): pass
            def numbers():
                for n in range(10):
                    leaf()
                    yield n
            def work():
                for _ in range(100): list(numbers())
            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
        """)
        code, report = self.genome(["--no-kernel", "--py-include", "app"], [program])
        self.assertEqual(code, 0)
        # On a busy machine a thread may wait for its lane, and the calls until then are lost: told, function by function.
        told = {f["name"]: f["calls"] + f["lost"] for f in report["functions"]}
        self.assertEqual(told, {"<module>": 1, "work": 4, "numbers": 400, "leaf": 4000})
        names = {f["key"]: f["name"] for f in report["functions"]}
        edges = {
            (names.get(e["caller"]), names.get(e["callee"])): e["calls"] for e in report["edges"]
        }
        for edge, calls in ((("work", "numbers"), 400), (("numbers", "leaf"), 4000)):
            self.assertLessEqual(edges[edge], calls)
            self.assertGreaterEqual(edges[edge], calls - report["lost"])

    def test_native_functions_on_demand(self):
        program = self.program("""
            import os
            def leaf(): return os.getppid()
            for _ in range(500): leaf()
        """)
        options = ["--no-kernel", "--py-include", "app", "--probe-mode", "native"]
        code, report = self.genome(options, [program])
        self.assertEqual((code, report["lost"]), (0, 0))
        names = {f["key"]: f["name"] for f in report["functions"]}
        edges = {
            (names.get(e["caller"]), names.get(e["callee"])): e["calls"] for e in report["edges"]
        }
        self.assertEqual(edges["leaf", "getppid"], 500)

    def test_what_costs_too_much_is_switched_off_and_said_to_be(self):
        program = self.program("""
            import sys
            done = 0
            def hot(n): return n
            def rare():
                global done
                for n in range(20000): hot(n)
                done += 1
            import time
            until = time.monotonic() + 6
            while time.monotonic() < until: rare()
            print(done, file=open(sys.argv[1], "w"))
        """)
        file = os.path.join(self.folder, "done")
        options = ["--no-kernel", "--py-include", "app", "--max-overhead"]
        code, report = self.genome([*options, "5"], [program, file])
        with open(file, encoding="utf-8") as text:
            done = int(text.read())
        by_name = {f["name"]: f for f in report["functions"]}
        hot, rare = by_name["hot"], by_name["rare"]
        self.assertEqual((code, rare["calls"] + rare["lost"]), (0, done))
        self.assertLess(hot["calls"] + hot["lost"], 20000 * done, "it was switched off")
        self.assertRegex(" ".join(hot["doubts"]), "lower bound from .* over budget")
        self.assertNotIn("over budget", " ".join(rare["doubts"]))
        # Nobody is switched off where that is not asked for.
        code, report = self.genome([*options, "off"], [program, file])
        with open(file, encoding="utf-8") as text:
            done = int(text.read())
        hot = next(f for f in report["functions"] if f["name"] == "hot")
        self.assertEqual(hot["calls"] + hot["lost"], 20000 * done)

    @unittest.skipUnless(REAL, "$SCALPEL_TEST_REAL names no interpreter with real packages")
    def test_edges_of_greenlets_are_those_of_their_own_stacks(self):
        program = self.program("""
            from greenlet import greenlet
            def low(): pass
            def high(): pass
            def left():
                for _ in range(500):
                    low()
                    across.switch()
            def right():
                while True:
                    high()
                    back.switch()
            def root():
                global back, across
                back, across = greenlet(left), greenlet(right)
                back.switch()
            root()
        """)
        code, report = self.genome(["--no-kernel", "--py-include", "app"], [program], REAL)
        self.assertEqual((code, report["lost"]), (0, 0))
        names = {f["key"]: f["name"] for f in report["functions"]}
        edges = {
            (names.get(e["caller"]), names.get(e["callee"])): e["calls"] for e in report["edges"]
        }
        self.assertEqual((edges["left", "low"], edges["right", "high"]), (500, 500))
        # A greenlet's first function is called by nobody, or by whoever has made the switch: never by its neighbour.
        for wrong in (("left", "high"), ("right", "low"), ("low", "high"), ("high", "low")):
            self.assertNotIn(wrong, edges)
        by_name = {f["name"]: f for f in report["functions"]}
        for name in ("low", "high"):
            self.assertEqual(by_name[name]["self_wall_ns"], by_name[name]["total_wall_ns"])

    @unittest.skipUnless(NODE, "$SCALPEL_TEST_NODE names no Node.js")
    def test_what_costs_too_much_in_javascript_is_switched_off_and_said_to_be(self):
        program = self.program(
            """
            const fs = require("fs");
            let done = 0;
            function hot(n) { return n; }
            function rare() { for (let n = 0; n < 200000; n++) hot(n); done++; }
            const until = Date.now() + 6000;
            while (Date.now() < until) rare();
            fs.writeFileSync(process.argv[2], String(done));
            """,
            "program.js",
        )
        file = os.path.join(self.folder, "done")
        for allowed in ("5", "off"):
            options = ["--no-kernel", "--max-overhead", allowed, "--max-loss", "100"]
            code, report = self.genome(options, [program, file], NODE)
            with open(file, encoding="utf-8") as text:
                done = int(text.read())
            by_name = {f["name"]: f for f in report["functions"]}
            hot, rare = by_name["hot"], by_name["rare"]
            self.assertEqual((code, rare["calls"] + rare["lost"]), (0, done))
            told = hot["calls"] + hot["lost"]
            if allowed == "off":
                self.assertEqual(told, 200_000 * done)
                continue
            self.assertLess(told, 200_000 * done, "it was switched off")
            self.assertRegex(" ".join(hot["doubts"]), "lower bound from .* over budget")
            self.assertNotIn("over budget", " ".join(rare["doubts"]))

    def test_killed_at_any_moment_every_call_is_there_with_its_name(self):
        program = self.program("""
            import mmap, os, signal, sys
            signal.setitimer(signal.ITIMER_REAL, float(sys.argv[2]))
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            with open(sys.argv[1], "wb") as file: file.truncate(4096)
            with open(sys.argv[1], "r+b") as file: done = mmap.mmap(file.fileno(), 4096)
            def counted(): pass
            number = 0
            while True:
                counted()
                number += 1
                done[:8] = number.to_bytes(8, "little")
        """)
        for _ in range(KILLS):
            count = os.path.join(self.folder, "count")
            after = str(random.uniform(0.02, 0.3))
            with open(count, "wb"):
                pass
            code, report = self.genome(["--no-kernel"], [program, count, after])
            self.assertEqual(code, 128 + 14, "the signal that killed it")
            with open(count, "rb") as file:
                done = int.from_bytes(file.read(8), "little")
            told = self.calls(report).get("counted", 0)
            lost = sum(f["lost"] for f in report["functions"] if f["name"] == "counted")
            self.assertIn(told + lost - done, (0, 1), (told, lost, done, after))
            self.assertTrue(all(f["name"] for f in report["functions"]))

    def test_killed_collectors_leave_the_program_as_it_was(self):
        program = self.program("""
            import hashlib, os, sys, threading, time
            def leaf(n): return n * n
            def work(n): return sum(leaf(k) for k in range(n))
            threads = [threading.Thread(target=work, args=(20000,)) for _ in range(2)]
            for thread in threads: thread.start()
            told = hashlib.sha256(repr([work(n) for n in range(400)]).encode()).hexdigest()
            for thread in threads: thread.join()
            with open(sys.argv[1] + ".new", "w") as file:
                print(told, threading.active_count(), file=file)
            os.rename(sys.argv[1] + ".new", sys.argv[1])
        """)
        told = os.path.join(self.folder, "told")
        subprocess.run([PYTHON, program, told], env=environment(False), check=True, timeout=60)
        with open(told, encoding="utf-8") as file:
            plain = file.read()
        for _ in range(MOMENTS):
            os.remove(told)
            line = [RECORDER, "record", "-o", os.path.join(self.folder, "run.genome")]
            line += ["--no-kernel", "--", PYTHON, program, told]
            recorder = subprocess.Popen(
                line,
                env=environment(False, SCALPEL_PROBES=PROBES),
                stderr=subprocess.PIPE,
                text=True,
            )
            # Before that line the program has not begun.
            while "Ctrl-C" not in recorder.stderr.readline():
                self.assertIsNone(recorder.poll())
            time.sleep(random.uniform(0, 1.5))
            recorder.kill()
            recorder.wait()
            self.addCleanup(recorder.stderr.close)
            until = time.monotonic() + 60
            while not os.path.exists(told) and time.monotonic() < until:
                time.sleep(0.01)
            with open(told, encoding="utf-8") as file:
                self.assertEqual(file.read(), plain)

    @unittest.skipUnless(os.geteuid() == 0, "native functions need root")
    def test_python_and_native_frames_are_one_path_on_each_thread(self):
        program = self.program("""
            import os, threading
            def leaf(): return os.getppid()
            def work():
                for _ in range(12500): leaf()
            threads = [threading.Thread(target=work) for _ in range(8)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
        """)
        native = ["-F", "0", "--py-include", "app", "-f", "getppid", "--lib", "libc.so*"]
        code, report = self.genome(native, [program])
        self.assertEqual(code, 0)
        self.assertEqual((report["lost"], len(report["threads"])), (0, 9))
        by_name = {f["name"]: f for f in report["functions"]}
        self.assertEqual(
            (by_name["leaf"]["calls"], by_name["getppid"]["calls"]), (100_000, 100_000)
        )
        above = {e["callee"]: e["caller"] for e in report["edges"]}
        path, key = [], by_name["getppid"]["key"]
        while key in above and len(path) < 10:
            key = above[key]
            path.append(next(f["name"] for f in report["functions"] if f["key"] == key))
        self.assertIn("leaf", path)
        self.assertIn("work", path)
        edges = {(e["caller"], e["callee"]): e["calls"] for e in report["edges"]}
        self.assertEqual(edges[by_name["work"]["key"], by_name["leaf"]["key"]], 100_000)


if __name__ == "__main__":
    unittest.main()
