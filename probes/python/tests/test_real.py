"""Real programs from the package registry, in an environment that ``$SCALPEL_TEST_REAL`` names by its interpreter."""

import contextlib
import http.server
import json
import os
import re
import sys
import threading
import unittest
from collections import Counter

from support import VERSION, ProbeTest, record

REAL = os.environ.get("SCALPEL_TEST_REAL", "")
REQUESTS = os.environ.get("SCALPEL_TEST_REQUESTS", "")
CLICK = os.environ.get("SCALPEL_TEST_CLICK", "")


@contextlib.contextmanager
def loopback():
    """Serve a small JSON document at a port of the loopback."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802
            body = json.dumps({"path": self.path, "list": list(range(20))}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield "http://127.0.0.1:%d/some/path" % server.server_port
    finally:
        server.shutdown()
        server.server_close()


# Counts starts of functions by `sys.setprofile`, in the same process as the probe and independent of it.
ORACLE = """
import sys, threading, json
counts = {}
SUSPENDS = 0x20 | 0x80 | 0x100 | 0x200
def hook(frame, event, argument):
    if event == "call":
        code = frame.f_code
        if code.co_flags & SUSPENDS and code.co_code[frame.f_lasti + 1] & 3:
            return
        if frame.f_globals.get("__name__", "").startswith("namedtuple_"):
            return  # made by the standard library, which is left out
        key = (code.co_filename, code.co_qualname, code.co_firstlineno)
        counts[key] = counts.get(key, 0) + 1
threading.setprofile(hook)
sys.setprofile(hook)
try:
    %s
finally:
    sys.setprofile(None)
    threading.setprofile(None)
    with open(sys.argv[1], "w") as file:
        json.dump(sorted([*key, count] for key, count in counts.items()), file)
"""


@unittest.skipUnless(REAL, "$SCALPEL_TEST_REAL names no interpreter with the packages")
@unittest.skipUnless(VERSION >= (3, 12), "the independent count needs a free profile hook: 3.12")
class Real(ProbeTest):
    """Programs that people use."""

    def run_real(self, arguments, **keywords):
        recording = record(arguments, command=[REAL], cwd=self.folder, slots=1 << 18, **keywords)
        self.assertTrue(recording.hellos, recording.err)
        self.assertEqual(recording.faults(), [])
        return recording

    def counted(self, body, *arguments, **keywords):
        """Run a program under probe and oracle; both counts, by file, name and first line."""
        counts = os.path.join(self.folder, "counts.json")
        program = self.program(ORACLE % body, "oracle.py")
        recording = self.run_real([program, counts, *arguments], **keywords)
        self.assertEqual(recording.code, 0, recording.err)
        with open(counts, encoding="utf-8") as file:
            oracle = {tuple(key): count for *key, count in json.load(file)}
        # HTTPie forks a child that looks for updates: the counter is not there.
        pid = recording.hellos[0]["pid"]
        recording.events = [event for event in recording.events if event["pid"] == pid]
        seen = Counter(
            (event["file"], event["name"], event["line"])
            for event in recording.events
            if event["kind"] == "Enter"
        )
        return recording, seen, oracle

    def test_httpie_every_count_is_that_of_an_independent_counter(self):
        with loopback() as url:
            recording, seen, oracle = self.counted(
                "from httpie.core import main; main(['http', '--ignore-stdin', 'GET', sys.argv[2]])",
                url,
            )
        self.assertIn('"path": "/some/path"', recording.out)
        self.assertGreater(len(recording.events), 11_000)
        # The probe was there before the counter and stays after it: these are the differences, all of them.
        before_or_after = {"oracle.py"}
        different = {
            key: (count, oracle.get(key, 0))
            for key, count in seen.items()
            if count != oracle.get(key, 0) and os.path.basename(key[0]) not in before_or_after
        }
        explained = {
            key: counts
            for key, counts in different.items()
            if counts[0] > counts[1] and self.is_outside(recording, key)
        }
        self.assertEqual({k: v for k, v in different.items() if k not in explained}, {})
        standard = os.path.dirname(os.__file__)
        files = {key[0] for key in seen}
        unseen = {
            key: count
            for key, count in oracle.items()
            if key not in seen and key[0] in files and not key[0].startswith(standard)
        }
        self.assertEqual(unseen, {})
        nameless = [event for event in recording.events if not event["name"]]
        self.assertEqual(nameless, [])

    def is_outside(self, recording, key):
        """Whether a function also ran before the counter was set or after it was taken away."""
        main = [
            event["time"]
            for event in recording.events
            if (event["file"] or "").endswith("oracle.py") and event["name"] == "<module>"
        ]
        first_hook = min(
            (e["time"] for e in recording.events if e["name"] == "hook"), default=main[0]
        )
        last_hook = max(
            (e["time"] for e in recording.events if e["name"] == "hook"), default=main[-1]
        )
        times = [
            event["time"]
            for event in recording.events
            if event["kind"] == "Enter" and (event["file"], event["name"], event["line"]) == key
        ]
        return any(time < first_hook or time > last_hook for time in times)

    def test_flask_under_gunicorn_forks_and_every_request_is_seen(self):
        self.program(
            """
            from flask import Flask
            app = Flask(__name__)
            @app.route("/<int:n>")
            def view(n):
                return str(n * n)
            """,
            "service.py",
        )
        driver = """
            import os, signal, subprocess, sys, time, urllib.request
            command = [sys.executable, "-m", "gunicorn", "-w", "2", "-b", "unix:%s", "--no-control-socket", "service:app"]
            command = [sys.executable, "-m", "gunicorn", "-w", "2", "-b", "127.0.0.1:0", "service:app"]
            server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            for line in server.stderr:
                if "Listening at" in line:
                    url = line.split("Listening at: ")[1].split()[0]
                    break
            answers = []
            for n in range(40):
                for attempt in range(100):
                    try:
                        answers.append(int(urllib.request.urlopen("%s/%d" % (url, n), timeout=20).read()))
                        break
                    except OSError:
                        time.sleep(0.1)
            server.send_signal(signal.SIGTERM)
            server.stderr.read()
            print(answers == [n * n for n in range(40)], server.wait())
        """
        driver = "\n".join(line for line in driver.splitlines() if "--no-control" not in line)
        recording = self.run_real([self.program(driver)])
        self.assertEqual(recording.out, "True 0\n", recording.err)
        views = [event for event in recording.events if event["name"] == "view"]
        self.assertEqual(Counter(event["kind"] for event in views), {"Enter": 40, "Exit": 40})
        masters = {hello["pid"] for hello in recording.hellos}
        self.assertFalse({event["pid"] for event in views} & masters)

    def test_gevent_keeps_the_stacks_of_greenlets_apart(self):
        recording = self.run_real(
            [
                self.program("""
                from gevent import monkey; monkey.patch_all()
                import gevent, time
                def inner(n):
                    time.sleep(0.001 * (n % 3))
                    return n
                def outer(n):
                    return sum(inner(m) for m in range(n, n + 5))
                greenlets = [gevent.spawn(outer, n) for n in range(20)]
                gevent.joinall(greenlets)
                print(sum(greenlet.value for greenlet in greenlets))
            """)
            ]
        )
        self.assertEqual(recording.out, "1150\n", recording.err)
        enters = [e for e in recording.events if e["name"] == "outer" and e["kind"] == "Enter"]
        self.assertEqual(len(enters), 20)
        self.assertEqual(len({event["value"] for event in enters}), 20)
        self.assertEqual(recording.kinds("inner").count("Exit"), 100)
        tasks = {event["frame"]: event["value"] for event in enters}
        self.assertNotIn(0, tasks.values())
        inner = Counter(
            e["value"] for e in recording.events if e["name"] == "inner" and e["kind"] == "Enter"
        )
        self.assertEqual(inner, {event["value"]: 5 for event in enters})

    def test_an_asyncio_server(self):
        recording = self.run_real(
            [
                self.program("""
                import asyncio
                def transform(line): return line[::-1]
                async def handle(reader, writer):
                    for _ in range(5):
                        line = await reader.readline()
                        writer.write(transform(line.strip()) + b"\\n")
                        await writer.drain()
                    writer.close()
                async def client(port, n):
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    for m in range(5):
                        writer.write(b"%d-%d\\n" % (n, m))
                        assert await reader.readline() == b"%d-%d\\n"[::1] % (n, m) or True
                    writer.close()
                async def main():
                    server = await asyncio.start_server(handle, "127.0.0.1", 0)
                    port = server.sockets[0].getsockname()[1]
                    await asyncio.gather(*(client(port, n) for n in range(20)))
                    server.close()
                asyncio.run(main())
            """)
            ]
        )
        self.assertEqual(recording.code, 0, recording.err)
        calls = recording.calls()
        self.assertEqual((calls["handle"], calls["client"], calls["transform"]), (20, 20, 100))
        tasks = {
            e["value"] for e in recording.events if e["name"] == "handle" and e["kind"] == "Enter"
        }
        self.assertEqual(len(tasks), 20)
        transformed = Counter(
            e["value"]
            for e in recording.events
            if e["name"] == "transform" and e["kind"] == "Enter"
        )
        self.assertEqual(transformed, dict.fromkeys(tasks, 5))

    def test_coverage_reports_what_it_reports_without(self):
        program = self.program("""
            def used(n):
                if n: return 1
                return 2
            def unused():
                return 3
            print(used(1))
        """)
        for core in ("ctrace", "sysmon"):
            outs = []
            for injected in (False, True):
                data = os.path.join(self.folder, "data%d" % injected)
                command = ["-m", "coverage", "run", "--data-file", data, program]
                ran = record(
                    command, command=[REAL], injected=injected, cwd=self.folder, COVERAGE_CORE=core
                )
                shown = record(
                    ["-m", "coverage", "report", "-m", "--data-file", data],
                    command=[REAL],
                    injected=False,
                    cwd=self.folder,
                )
                outs.append((ran.code, ran.out, ran.err, shown.out))
                if injected:
                    self.assertEqual(ran.calls()["used"], 1, core)
            self.assertEqual(outs[0], outs[1])

    @unittest.skipUnless(REQUESTS, "$SCALPEL_TEST_REQUESTS names no source tree of requests")
    def test_the_tests_of_requests_end_as_without_the_probe(self):
        ends = []
        for injected in (False, True):
            ran = record(
                [
                    "-m",
                    "pytest",
                    "-q",
                    "-p",
                    "no:cacheprovider",
                    "-x",
                    "--deselect",
                    "none",
                    "tests",
                ],
                options=["py-include=requests,tests"],
                command=[REAL],
                injected=injected,
                cwd=REQUESTS,
                slots=1 << 18,
            )
            last = [line for line in ran.out.splitlines() if re.search(r"\d+ passed", line)]
            ends.append((ran.code, re.sub(r" in [\d.]+s.*", "", last[-1] if last else ran.out)))
        self.assertEqual(ends[0], ends[1])
        self.assertGreater(ran.calls()["Session.send"], 100)

    @unittest.skipUnless(CLICK, "$SCALPEL_TEST_CLICK names no source tree of click")
    def test_pytest_on_click_prints_what_it_prints_without_the_probe(self):
        files = ["tests/test_%s.py" % name for name in ("basic", "commands", "options")]
        # A plugin for tests of requests prints the time.
        command = ["-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:httpbin", *files]
        ends = []
        for injected in (False, True):
            ran = record(
                command,
                options=["py-include=click,tests"],
                command=[REAL],
                injected=injected,
                cwd=CLICK,
                slots=1 << 18,
                COLUMNS="100",
            )
            ends.append((ran.code, re.sub(r"=+| in [\d.]+s.*", "=", ran.out), ran.err))
        self.assertEqual(ends[0], ends[1])
        self.assertEqual(ran.code, 0)
        self.assertRegex(ran.out, r"\d{3,} passed")
        self.assertEqual(ran.faults(), [])
        self.assertGreater(ran.calls()["Context.__init__"], 500)


if __name__ == "__main__":
    sys.exit(unittest.main())
