"""The probe and the collector together."""

import os
import random
import re
import subprocess
import time
import unittest

from support import PYTHON, RECORDER, RecordTest

# How many collectors are killed.
MOMENTS = int(os.environ.get("SCALPEL_TEST_MOMENTS", "5"))


class Record(RecordTest):
    """What the genome says."""

    def test_counts_names_and_edges_are_exact(self):
        recorded = self.record("""
            import threading
            def leaf(): pass
            def work():
                for _ in range(500): leaf()
            class Shape:
                def area(self): return leaf()
            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            [Shape().area() for _ in range(10)]
            print("done")
        """)
        self.assertEqual((recorded.code, recorded.out), (0, "done\n"))
        self.assertEqual(recorded.report["lost"], 0)
        area = "Shape.area" if "Shape.area" in recorded.functions else "area"
        calls = recorded.calls()
        self.assertEqual({name: calls[name] for name in ("work", "leaf", area)}, {"work": 4, "leaf": 2010, area: 10})
        edges = recorded.edges()
        self.assertEqual((edges["work", "leaf"], edges[area, "leaf"]), (2000, 10))
        leaf = recorded.functions["leaf"]
        self.assertEqual((leaf["line"], leaf["language"], leaf["module"]), (3, "python", "__main__"))
        self.assertEqual(len(recorded.report["threads"]), 5)
        self.assertNotIn("BYE", recorded.doubts)

    def test_what_costs_too_much_is_switched_off_and_said_to_be(self):
        program = """
            import sys, time
            def hot(): pass
            def rare():
                for _ in range(1000): hot()
            done, until = 0, time.monotonic() + 5
            while time.monotonic() < until:
                rare()
                done += 1
            print(done)
        """
        recorded = self.record(program, options=("--max-overhead", "5"))
        hot, rare, done = recorded.functions["hot"], recorded.functions["rare"], int(recorded.out)
        self.assertRegex(" ".join(hot["doubts"]), "lower bound from .* over budget")
        self.assertLess(hot["calls"] + hot["lost"], 1000 * done, "it was switched off")
        self.assertEqual(rare["calls"] + rare["lost"], done)
        self.assertNotIn("over budget", " ".join(rare["doubts"]))

    def test_what_ran_before_it_or_is_left_out_is_not_said_not_to_have_run(self):
        self.program("def left_out(): pass\ndef idle(): pass\nleft_out()", "other.py")
        self.program("def never(): pass\n", "third.py")
        text = """
            def early(): pass
            early()
            import scalpel_socket
            scalpel_socket.start()
            import other
            def seen(): pass
            seen()
        """
        options = ("--src", self.folder, "--py-exclude", "other")
        recorded = self.record(text, options=options, probe=())
        states = {row["name"]: (row["state"], row["why"]) for row in recorded.report["unseen"]}
        self.assertEqual(recorded.calls()["seen"], 1)
        self.assertEqual(states["early"], ("not-visible", "before"))
        self.assertEqual(states["left_out"], ("not-visible", "excluded"))
        self.assertEqual(states["idle"], ("not-visible", "excluded"))
        self.assertEqual(states["never"], ("never-ran", None))

    def test_generators_and_coroutines_are_called_once_and_exceptions_unwind(self):
        recorded = self.record("""
            import asyncio
            def leaf(): pass
            def numbers():
                for n in range(10):
                    leaf()
                    yield n
                yield from range(3)
            def fails(): raise ValueError
            async def inner():
                await asyncio.sleep(0)
                leaf()
            async def outer():
                for _ in range(5): await inner()
            for _ in range(20): list(numbers())
            for _ in range(7):
                try: fails()
                except ValueError: pass
            asyncio.run(outer())
        """)
        calls = recorded.calls()
        told = {name: calls[name] for name in ("numbers", "leaf", "fails", "inner", "outer")}
        self.assertEqual(told, {"numbers": 20, "leaf": 205, "fails": 7, "inner": 5, "outer": 1})
        edges = recorded.edges()
        self.assertEqual((edges["numbers", "leaf"], edges["inner", "leaf"]), (200, 5))
        self.assertEqual(recorded.functions["fails"]["unwound"], 7)
        self.assertEqual(recorded.functions["numbers"]["unwound"], 0)

    def test_frames_may_leave_in_any_parts(self):
        recorded = self.record(
            """
            import socket
            class Parts(socket.socket):
                def send(self, data, flags=0): return super().send(data[:7], flags)
            whole, socket.socket = socket.socket, Parts
            import scalpel_socket
            assert scalpel_socket.start() is None
            socket.socket = whole
            def leaf(): pass
            for _ in range(1000): leaf()
            """,
            probe=(),
        )
        self.assertEqual((recorded.code, recorded.calls()["leaf"]), (0, 1000), recorded.err)
        self.assertEqual(recorded.report["lost"], 0)

    def test_a_program_that_closes_all_descriptors_is_recorded_on_and_nothing_is_written_elsewhere(self):
        recorded = self.record(
            """
            import os, sys, time
            def before(): pass
            def after(): pass
            for _ in range(100): before()
            time.sleep(0.3)
            os.closerange(3, 1024)
            mine = [os.open(sys.argv[1] + str(n), os.O_CREAT | os.O_RDWR) for n in range(8)]
            for _ in range(100): after()
            time.sleep(0.5)
            for _ in range(100): after()
            print([os.fstat(descriptor).st_size for descriptor in mine])
        """,
            os.path.join(self.folder, "taken"),
        )
        self.assertEqual((recorded.code, recorded.out), (0, str([0] * 8) + "\n"), recorded.err)
        calls = recorded.calls()
        self.assertEqual(calls["before"], 100)
        # What was on its way when the connection broke is lost, and said to be.
        lost = recorded.report["lost"]
        self.assertIn("the program closed the connection", recorded.doubts)
        self.assertTrue(200 - lost <= calls["after"] <= 200, (calls, lost))
        self.assertGreaterEqual(calls["after"], 100)

    def test_a_forked_child_speaks_for_itself(self):
        recorded = self.record("""
            import os
            def parent(): pass
            def child(): pass
            for _ in range(10): parent()
            pid = os.fork()
            if pid == 0:
                for _ in range(30): child()
            else:
                os.waitpid(pid, 0)
                for _ in range(10): parent()
        """)
        calls = recorded.calls()
        self.assertEqual((recorded.code, calls["parent"], calls["child"]), (0, 20, 30), recorded.err)
        self.assertEqual(len({thread["pid"] for thread in recorded.report["threads"]}), 2)

    def test_killed_at_any_moment_what_is_told_is_true(self):
        program = """
            import mmap, os, signal, sys
            with open(sys.argv[1], "wb") as file: file.truncate(4096)
            with open(sys.argv[1], "r+b") as file: done = mmap.mmap(file.fileno(), 4096)
            def counted(): pass
            signal.setitimer(signal.ITIMER_REAL, float(sys.argv[2]))
            signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
            number = 0
            while True:
                counted()
                number += 1
                done[:8] = number.to_bytes(8, "little")
        """
        for _ in range(4):
            count = os.path.join(self.folder, "count")
            recorded = self.record(program, count, str(random.uniform(0.05, 0.5)))
            self.assertEqual(recorded.code, 128 + 9)
            with open(count, "rb") as file:
                done = int.from_bytes(file.read(8), "little")
            self.assertLessEqual(recorded.calls().get("counted", 0), done + 1)
            self.assertIn("without a BYE", recorded.doubts, "never passed off as complete")

    def test_a_recording_that_ends_before_the_program_has_all_until_then(self):
        recorded = self.record(
            """
            import sys, time
            def counted(): pass
            for _ in range(1000): counted()
            # The probe goes when the recording ends.
            until = time.monotonic() + 30
            while sys.getprofile() and time.monotonic() < until: time.sleep(0.01)
            print("on")
            """,
            options=("-d", "3"),
        )
        self.assertEqual((recorded.code, recorded.out), (0, "on\n"), recorded.err)
        self.assertEqual(recorded.calls()["counted"], 1000)
        self.assertNotIn("BYE", recorded.doubts)

    def test_more_than_a_lane_has_room_for_is_lost_by_whole_calls_and_counted(self):
        recorded = self.record(
            """
            import scalpel_socket._watch as watch, scalpel_socket._sender as sender
            watch.ROOM, sender.EVERY = 1000, 0.4
            import scalpel_socket
            assert scalpel_socket.start() is None
            def leaf(): pass
            def work():
                for _ in range(20000): leaf()
            work()
            """,
            probe=(),
        )
        leaf = recorded.functions["leaf"]
        self.assertGreater(leaf["lost"], 0)
        self.assertEqual(leaf["calls"] + leaf["lost"], 20000)
        self.assertEqual(recorded.edges()["work", "leaf"], leaf["calls"])


class Harm(RecordTest):
    """The program does the same as without."""

    def test_output_exit_code_and_descriptors_are_the_same(self):
        program = """
            import os, sys
            def work(n): return n and work(n - 1)
            work(50)
            print("out", sys.argv[1:], flush=True)
            print("err", file=sys.stderr)
            sys.exit(3)
        """
        plain = self.plain(program, "a")
        recorded = self.record(program, "a")
        self.assertEqual((recorded.code, recorded.out), (plain.returncode, plain.stdout))
        self.assertIn("err\n", recorded.err)
        self.assertGreater(recorded.functions["work"]["calls"], 50)

    def test_without_a_collector_the_program_runs_and_is_told_why(self):
        text = "import scalpel_socket; print(scalpel_socket.start()); print('on')"
        self.env.pop("SCALPEL_SOCKET", None)
        ran = self.plain(text)
        self.assertTrue(re.match("SCALPEL_SOCKET is not set.*\non\n", ran.stdout), ran)
        self.env["SCALPEL_SOCKET"] = "/nonexistent/socket"
        ran = self.plain(text)
        self.assertTrue(re.match("the collector at /nonexistent/socket: .*\non\n", ran.stdout), ran)

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
                print(told, sum(t.name != "scalpel-sender" for t in threading.enumerate()), file=file)
            os.rename(sys.argv[1] + ".new", sys.argv[1])
        """)
        told = os.path.join(self.folder, "told")
        subprocess.run([PYTHON, program, told], env=self.env, check=True, timeout=60)
        with open(told, encoding="utf-8") as file:
            plain = file.read()
        for _ in range(MOMENTS):
            os.remove(told)
            line = [RECORDER, "record", "-o", os.path.join(self.folder, "run.genome")]
            line += ["--no-kernel", "--", PYTHON, "-m", "scalpel_socket", program, told]
            recorder = subprocess.Popen(line, env=self.env, stderr=subprocess.PIPE, text=True)
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

    def test_another_profiler_keeps_its_place(self):
        recorded = self.record(
            """
            import sys
            mine = lambda *_: None
            sys.setprofile(mine)
            import scalpel_socket
            print(scalpel_socket.start(), sys.getprofile() is mine)
            """,
            probe=(),
        )
        self.assertEqual(recorded.out, "another profiler is at work True\n")


if __name__ == "__main__":
    unittest.main()
