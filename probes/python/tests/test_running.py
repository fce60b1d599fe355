"""Programs that run already: ``scalpel-ebpf record --pid``, which ``$SCALPEL_TEST_RECORDER`` names."""

import json
import os
import random
import re
import subprocess
import time
import unittest

from support import PROBES, PYTHON, VERSION, ProbeTest, environment

RECORDER = os.environ.get("SCALPEL_TEST_RECORDER", "")
# Set for every interpreter: how places are forgotten and told of again differs between them.
AGAIN = os.environ.get("SCALPEL_TEST_AGAIN", RECORDER)
NODE = os.environ.get("SCALPEL_TEST_NODE", "")
# How many collectors are killed; `cargo xtask soak` asks for more.
MOMENTS = int(os.environ.get("SCALPEL_TEST_MOMENTS", "5"))
ENTERED = VERSION >= (3, 14)

SERVER = """
    import sys
    def leaf(number): return number + 1
    def work(times):
        number = 0
        for _ in range(times): number = leaf(number)
        return number
    def idle(): pass
    for line in sys.stdin:
        print(work(int(line)), flush=True)
"""

JAVASCRIPT = """
    function leaf(number) { return number + 1; }
    function work(times) {
      let number = 0;
      for (let n = 0; n < times; n++) number = leaf(number);
      return number;
    }
    function idle() {}
    require("readline").createInterface(process.stdin).on("line", line => console.log(work(+line)));
"""


def while_recorded(test, command, ask):
    """Call ``ask`` while the recorder is attached, then let it end well."""
    recorder = subprocess.Popen(
        command,
        env=environment(False, SCALPEL_PROBES=PROBES),
        stderr=subprocess.PIPE,
        text=True,
    )
    said = []
    for line in recorder.stderr:
        said.append(line)
        if "Ctrl-C" in line:
            break
    ask()
    recorder.terminate()
    said.append(recorder.communicate(timeout=120)[1])
    test.assertEqual(recorder.returncode, 0, said)


@unittest.skipUnless(RECORDER, "$SCALPEL_TEST_RECORDER names no scalpel-ebpf")
class Running(ProbeTest):
    """A program that answers questions, recorded while it does."""

    def setUp(self):
        """Start the program."""
        super().setUp()
        self.server = subprocess.Popen(
            [PYTHON, self.program(SERVER)],
            env=environment(False),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(self.end)
        self.assertEqual(self.ask(1), 1)

    def end(self):
        """Let the program end by itself."""
        self.server.stdin.close()
        self.assertEqual(self.server.wait(60), 0)
        self.server.stdout.close()

    def ask(self, times):
        """Ask the program for that many calls."""
        self.server.stdin.write("%d\n" % times)
        self.server.stdin.flush()
        return int(self.server.stdout.readline())

    def run_recorder(self, *arguments):
        """Run ``scalpel-ebpf`` to its end."""
        env = environment(False, SCALPEL_PROBES=PROBES)
        return subprocess.run(
            [RECORDER, *arguments], env=env, capture_output=True, text=True, timeout=120
        )

    def record(self, ask):
        """Record the program while ``ask`` asks it; the report."""
        file = os.path.join(self.folder, "run.genome")
        pid = str(self.server.pid)
        command = [RECORDER, "record", "--no-kernel", "-o", file]
        while_recorded(self, [*command, "--py-include", "app", "--pid", pid], ask)
        told = self.run_recorder("report", file, "--json")
        self.assertEqual(told.returncode, 0, told.stderr)
        return json.loads(told.stdout)

    def offer(self):
        """What ``list processes`` says of the program's Python."""
        listed = json.loads(self.run_recorder("list", "processes", "--json").stdout)
        offers = [row["offers"] for row in listed if row["pid"] == self.server.pid]
        return next(offer for offer in offers[0] if offer["runtime"] == "python")

    def test_what_it_offers_is_listed(self):
        offer = self.offer()
        self.assertTrue(offer["version"].startswith("%d.%d" % VERSION[:2]), offer)
        text = self.run_recorder("list", "processes").stdout
        if ENTERED:
            self.assertEqual((offer["offers"], offer["why_not"]), ("calls", None))
            self.assertRegex(text, r"python 3\.\d+\.\d+ \(calls\)")
        else:
            self.assertEqual(offer["offers"], "interpreter")
            self.assertIn("cannot be entered", offer["why_not"])
            self.assertIn(offer["why_not"], text)

    @unittest.skipUnless(ENTERED, "sys.remote_exec came with 3.14")
    def test_the_probe_is_loaded_into_it_and_counts_are_exact(self):
        # The first question lets it reach the place where it can load the probe.
        report = self.record(lambda: (self.ask(1), self.ask(5000), self.ask(5000)))
        calls = {f["name"]: f["calls"] + f["lost"] for f in report["functions"]}
        self.assertEqual(report["run"]["mode"], "probe+python")
        self.assertIn(calls["work"], (2, 3), report)
        self.assertIn(calls["leaf"], (10_000, 10_001))
        # The probe stays, and writes for whoever records it next.
        self.assertEqual((self.offer()["offers"], self.offer()["why_not"]), ("calls", None))
        self.assertEqual(self.ask(3), 3)

    @unittest.skipUnless(ENTERED, "sys.remote_exec came with 3.14")
    def test_one_that_runs_no_code_meanwhile_is_told_of(self):
        report = self.record(lambda: None)
        self.assertIn("was asked to load its probe", json.dumps(report["doubts"]))
        self.assertEqual(report["functions"], [])

    @unittest.skipIf(ENTERED, "can be entered")
    def test_of_one_that_cannot_be_entered_the_result_says_so(self):
        report = self.record(lambda: self.ask(100))
        doubts = json.dumps(report["doubts"])
        self.assertIn("functions of python %d.%d" % VERSION[:2], doubts)
        self.assertIn("are not visible", doubts)
        self.assertIn("Seen are native functions", doubts)


@unittest.skipUnless(AGAIN, "$SCALPEL_TEST_AGAIN names no scalpel-ebpf")
@unittest.skipIf(os.geteuid(), "/proc/PID/map_files is root's")
class Again(ProbeTest):
    """A program whose probe was loaded for an earlier recording, recorded again."""

    def command(self):
        """What runs the program."""
        return [PYTHON, self.program(SERVER)]

    def start(self, *options):
        """Start the program under a first recorder, which names its pid."""
        file = os.path.join(self.folder, "first.genome")
        command = self.command()
        self.first = subprocess.Popen(
            [AGAIN, "record", "--no-kernel", "-o", file, "--py-include", "app"]
            + [*options, "--", *command],
            env=environment(False, SCALPEL_PROBES=PROBES),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(self.end)
        self.pid = re.search(r"\(pid (\d+)\)", self.first.stderr.readline()).group(1)
        self.assertEqual(self.ask(1), 1)

    def end(self):
        """The program ends when nobody can ask it any more."""
        for pipe in (self.first.stdin, self.first.stdout, self.first.stderr):
            pipe.close()
        self.first.wait(60)

    def ask(self, times):
        """Ask the program for that many calls."""
        self.first.stdin.write("%d\n" % times)
        self.first.stdin.flush()
        return int(self.first.stdout.readline())

    def record(self, ask, *options):
        """Record the program while ``ask`` asks it: calls with those that were lost, and what is to be doubted."""
        file = os.path.join(self.folder, "again.genome")
        command = [AGAIN, "record", "--no-kernel", "-o", file, "--src", self.folder]
        while_recorded(self, [*command, *options, "--pid", self.pid], ask)
        told = subprocess.run(
            [AGAIN, "report", file, "--json"], capture_output=True, text=True, timeout=60
        )
        report = json.loads(told.stdout)
        # What it did for the recording before is not known now.
        for row in report["unseen"]:
            self.assertEqual((row["state"], row["why"]), ("not-visible", "before"), row)
        named = [f for f in report["functions"] if f["name"] in ("work", "leaf")]
        calls = {f["name"]: f["calls"] + f["lost"] for f in named}
        return calls, json.dumps(report["doubts"])

    def test_behind_a_killed_collector_every_call_is_told_again(self):
        self.start()
        self.ask(3000)
        self.first.kill()
        self.first.wait(60)
        self.assertEqual(self.ask(7), 7)
        time.sleep(2.5)
        self.assertEqual(self.ask(500), 500)
        # How and what it records was decided when its probe was loaded, and the result says so.
        other = ("--probe-mode", "count", "--py-include", "none", "--node-include", "none")
        calls, doubts = self.record(lambda: (self.ask(2000), self.ask(4000)), *other)
        self.assertEqual(calls, {"work": 2, "leaf": 6000}, doubts)
        self.assertIn("was taken over", doubts)
        self.assertIn("goes on to record calls, and not counts as was asked for", doubts)
        self.assertIn("filters for functions are those it was loaded with", doubts)
        self.assertEqual(self.ask(5), 5)

    def test_a_second_and_a_third_recording_follow_one_that_ended(self):
        self.start("-d", "1")
        while "the recording has ended" not in self.first.stderr.readline():
            self.assertIsNone(self.first.poll())
        for _ in range(2):
            # What runs often is told of no more, and what runs seldom brings it back.
            for _ in range(20):
                self.assertEqual(self.ask(3000), 3000)
            calls, doubts = self.record(lambda: (self.ask(1), self.ask(2000), self.ask(4000)))
            self.assertEqual(calls.get("work"), 3, doubts)
            self.assertIn(calls.get("leaf"), (6000, 6001), doubts)

    def test_whenever_collectors_are_killed_the_next_one_goes_on(self):
        self.start()
        self.first.kill()
        self.first.wait(60)
        file = os.path.join(self.folder, "killed.genome")
        command = [AGAIN, "record", "--no-kernel", "-o", file, "--pid", self.pid]
        for _ in range(MOMENTS):
            recorder = subprocess.Popen(
                command,
                env=environment(False, SCALPEL_PROBES=PROBES),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            until = time.monotonic() + random.uniform(0.0, 0.3)
            while time.monotonic() < until:
                self.assertEqual(self.ask(100), 100, "it answers as ever")
            recorder.kill()
            recorder.wait(60)
        calls, doubts = self.record(lambda: (self.ask(2000), self.ask(4000)))
        self.assertEqual(calls, {"work": 2, "leaf": 6000}, doubts)


@unittest.skipUnless(NODE, "$SCALPEL_TEST_NODE names no Node.js")
class AgainNode(Again):
    """The same of Node.js, whose functions are never told to be silent for good."""

    def command(self):
        """What runs the program."""
        path = os.path.join(self.folder, "server.js")
        with open(path, "w", encoding="utf-8") as file:
            file.write(JAVASCRIPT)
        return [NODE, path]


@unittest.skipUnless(RECORDER, "$SCALPEL_TEST_RECORDER names no scalpel-ebpf")
class Silent(ProbeTest):
    """A command whose Python loads no probe."""

    def test_an_isolated_interpreter_is_not_visible_and_the_result_says_so(self):
        file = os.path.join(self.folder, "run.genome")
        command = [PYTHON, "-I", "-c", "import time; time.sleep(1)"]
        env = environment(False, SCALPEL_PROBES=PROBES)
        subprocess.run(
            [RECORDER, "record", "--no-kernel", "-o", file, "--", *command],
            env=env,
            capture_output=True,
            timeout=120,
            check=True,
        )
        told = subprocess.run(
            [RECORDER, "report", file, "--json"], capture_output=True, text=True, timeout=60
        )
        doubts = json.dumps(json.loads(told.stdout)["doubts"])
        self.assertIn("python is in it and no probe of it said HELLO", doubts)


if __name__ == "__main__":
    unittest.main()
