"""Harm, through ``scalpel-ebpf record`` itself: a Python and a Node.js program do what they do without it.

``$SCALPEL_TEST_RECORDER`` names the program; ``$SCALPEL_TEST_NODE`` Node.js, else the one in the path.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from support import PROBES, PYTHON, ProbeTest, environment

RECORDER = os.environ.get("SCALPEL_TEST_RECORDER", "")
NODE = os.environ.get("SCALPEL_TEST_NODE") or shutil.which("node") or ""
ROOT = os.geteuid() == 0
NOT_PERMITTED = 3
MEMORY = 64 << 20

# What a process is to others, after some work. Addresses and times aside.
STATE = {
    "python": """
        import os, resource, signal, sys, threading
        def work(depth): return depth and 1 + work(depth - 1)
        def deep():
            try: return 1 + deep()
            except RecursionError: return 1
        def lines(*names):
            with open("/proc/self/status") as file:
                return [line.split() for line in file if line.split(":")[0] in names]
        print(sum(work(50) for _ in range(200)), deep(), sys.getrecursionlimit())
        print(sorted(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")))
        print(lines("SigBlk", "SigIgn", "SigCgt", "Threads", "Umask", "NoNewPrivs", "Seccomp"))
        print([signal.getsignal(number) for number in (2, 10, 12, 13, 15, 17)])
        print(open("/proc/self/limits").read())
        print(os.getcwd(), threading.active_count(), sys.gettrace(), sys.getprofile())
        sys.stderr.write("to stderr\\n")
        sys.exit(7)
    """,
    "node": """
        const fs = require('fs');
        function work(depth) { return depth && 1 + work(depth - 1); }
        let sum = 0;
        for (let i = 0; i < 200; i++) sum += work(50);
        const lines = /^(SigBlk|SigIgn|SigCgt|Threads|Umask|NoNewPrivs|Seccomp):.*/gm;
        console.log(sum, process.execArgv, Object.keys(require.cache).length);
        console.log(fs.readdirSync('/proc/self/fd').length, fs.readdirSync('/proc/self/task').length);
        console.log(fs.readFileSync('/proc/self/status', 'utf8').match(lines).join(' '));
        console.log(fs.readFileSync('/proc/self/limits', 'utf8'));
        console.log(process.cwd(), process.listenerCount('exit'), process.listenerCount('SIGINT'));
        console.error('to stderr');
        process.exitCode = 7;
    """,
}

BUSY = {
    "python": """
        def leaf(number): return number + 1
        def work():
            number = 0
            for _ in range(60000): number = leaf(number)
            return number
        print(work())
    """,
    "node": """
        function leaf(number) { return number + 1; }
        function work() { let n = 0; for (let i = 0; i < 60000; i++) n = leaf(n); return n; }
        console.log(work());
    """,
}


# Calls for longer than a collector's lease lasts, and says when it has begun and how often it has called.
STOPPED = {
    "python": """
        import os, sys, time
        def leaf(): pass
        def work():
            number, until = 0, time.monotonic() + 5
            while time.monotonic() < until:
                for _ in range(1000): leaf()
                number += 1000
            return number
        leaf()
        open(sys.argv[0] + ".begun", "w").close()
        number = work()
        with open(sys.argv[0] + ".new", "w") as file: file.write(str(number + 1))
        os.rename(sys.argv[0] + ".new", sys.argv[0] + ".done")
    """,
    "node": """
        const fs = require('fs');
        function leaf() {}
        function work() {
          let number = 0;
          for (const until = Date.now() + 5000; Date.now() < until; number += 1000)
            for (let n = 0; n < 1000; n++) leaf();
          return number;
        }
        leaf();
        fs.writeFileSync(process.argv[1] + '.begun', '');
        const number = work();
        fs.writeFileSync(process.argv[1] + '.new', String(number + 1));
        fs.renameSync(process.argv[1] + '.new', process.argv[1] + '.done');
    """,
}


def languages(test):
    """Run a test for each language that can be recorded here, as subtests."""

    def both(self):
        for language in ("python", "node"):
            if language == "node" and not (NODE and os.path.isdir(os.path.join(PROBES, "node"))):
                continue
            with self.subTest(language):
                test(self, language)

    both.__doc__ = test.__doc__
    return both


@unittest.skipUnless(RECORDER, "$SCALPEL_TEST_RECORDER names no scalpel-ebpf")
class Unharmed(ProbeTest):
    """Programs in the surroundings that killed probes in trials."""

    def line(self, language, text, wrap=()):
        """The command line of a program, behind a shell's line if there is one."""
        program = self.program(text, {"python": "app.py", "node": "app.js"}[language])
        command = [{"python": PYTHON, "node": NODE}[language], program]
        return ["sh", "-c", " ".join(wrap) + ' exec "$@"', "sh", *command] if wrap else command

    def plain(self, command):
        """Run it alone."""
        return subprocess.run(
            command,
            env=environment(False),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=240,
        )

    def recorded(self, command, options=("--no-kernel",), genome=None):
        """Run it under ``record``, its own errors in a file; the end of ``record``, the errors, and the genome."""
        genome = genome or os.path.join(self.folder, "run.genome")
        errors = os.path.join(self.folder, "stderr")
        shell = ["sh", "-c", 'exec "$@" 2>"$0"', errors, *command]
        ran = subprocess.run(
            [RECORDER, "record", "-o", genome, *options, "--", *shell],
            env=environment(False, SCALPEL_PROBES=PROBES),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if ran.returncode == NOT_PERMITTED:
            self.skipTest("not permitted: " + ran.stderr.strip().splitlines()[-1])
        with open(errors, encoding="utf-8") as file:
            return ran, file.read(), genome

    def report(self, genome):
        """The report as JSON."""
        told = subprocess.run(
            [RECORDER, "report", genome, "--json"], capture_output=True, text=True, timeout=60
        )
        self.assertEqual(told.returncode, 0, told.stderr)
        return json.loads(told.stdout)

    def calls(self, genome, name):
        """Calls of a function, with those that were lost and told."""
        rows = [f for f in self.report(genome)["functions"] if f["name"] == name]
        return sum((f["calls"] or 0) + f["lost"] for f in rows)

    def same(self, command, options=("--no-kernel",)):
        """Output, errors and exit code are the same; the genome."""
        without = self.plain(command)
        ran, errors, genome = self.recorded(command, options)
        self.assertEqual(
            (ran.stdout, errors, ran.returncode),
            (without.stdout, without.stderr, without.returncode),
            ran.stderr,
        )
        return genome

    @languages
    def test_descriptors_threads_signals_limits_and_depth_are_the_same(self, language):
        command = self.line(language, STATE[language])
        self.assertGreater(self.calls(self.same(command), "work"), 0)
        if ROOT:
            self.same(command, ("-F", "99", "-f", "getppid", "--lib", "libc.so*"))

    @languages
    def test_limits_on_descriptors_file_sizes_and_memory_are_kept(self, language):
        few = {"python": "ulimit -n 8;", "node": "ulimit -n 32;"}[language]
        for limit in (few, "ulimit -f 0;", "ulimit -c 0;"):
            with self.subTest(limit):
                genome = self.same(self.line(language, BUSY[language], [limit]))
                self.assertEqual(self.calls(genome, "leaf"), 60_000)
        if language == "python":
            # The segment finds no room among 100 MB of addresses: the program runs without it.
            self.same(self.line(language, BUSY[language], ["ulimit -v 100000;"]))

    @unittest.skipUnless(ROOT, "a memory group needs root")
    @languages
    def test_within_64_megabytes_the_lanes_are_not_the_programs(self, language):
        group = self.memory_group()
        text = BUSY[language].replace("60000", "400000")
        command = self.line(language, text, ['echo $$ >"%s/cgroup.procs";' % group])
        genome = self.same(command)
        self.assertEqual(self.calls(genome, "leaf"), 400_000)
        self.assertEqual(self.killed_in(group), 0)

    def memory_group(self):
        """A group of 64 MB, of either version."""
        for top in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory"):
            try:
                group = tempfile.mkdtemp(prefix="scalpel-", dir=top)
            except OSError:
                continue
            for name in ("memory.max", "memory.limit_in_bytes"):
                limit = os.path.join(group, name)
                if os.path.exists(limit):
                    with open(limit, "w", encoding="utf-8") as file:
                        file.write(str(MEMORY))
                    self.addCleanup(os.rmdir, group)
                    return group
            os.rmdir(group)
        raise unittest.SkipTest("no memory group can be made here")

    def killed_in(self, group):
        """How often the kernel killed for want of memory."""
        for name in ("memory.events", "memory.oom_control"):
            file = os.path.join(group, name)
            if os.path.exists(file):
                with open(file, encoding="utf-8") as lines:
                    words = dict(line.split() for line in lines)
                return int(words["oom_kill"])
        raise AssertionError("no account of kills in " + group)

    @unittest.skipUnless(ROOT, "a small disk needs root")
    @languages
    def test_a_full_disk_ends_the_recording_and_not_the_program(self, language):
        disk = os.path.join(self.folder, "disk-" + language)
        os.mkdir(disk)
        mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", disk]
        if subprocess.run(mount, stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("nothing can be mounted here")
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        command = self.line(language, BUSY[language])
        without = self.plain(command)
        ran, errors, _ = self.recorded(command, genome=os.path.join(disk, "run.genome"))
        self.assertEqual((ran.stdout, errors), (without.stdout, without.stderr), ran.stderr)
        self.assertIn("No space left", ran.stderr)

    def test_five_thousand_threads_have_room_in_the_budget(self):
        text = """
            import threading
            threading.stack_size(65536)
            gate, ready = threading.Event(), threading.Semaphore(0)
            def called(): pass
            def again(): pass
            def run():
                called(); ready.release(); gate.wait(); again()
            threads = [threading.Thread(target=run) for _ in range(5000)]
            for thread in threads: thread.start()
            for thread in threads: ready.acquire()
            print(len(threads), threading.active_count())
            gate.set()
            for thread in threads: thread.join()
        """
        without = self.plain(self.line("python", text))
        if without.returncode:
            self.skipTest("5,000 threads cannot be made here: " + without.stderr[-200:])
        options = ("--no-kernel", "--py-include", "app", "--max-loss", "100")
        report = self.report(self.same(self.line("python", text), options))
        rows = {f["name"]: f for f in report["functions"]}
        # A thread may have to wait for its lane; what it calls meanwhile is lost, and told.
        for name in ("called", "again"):
            self.assertEqual(rows[name]["calls"] + rows[name]["lost"], 5000, rows[name])
        self.assertGreaterEqual(rows["again"]["calls"], rows["called"]["calls"])

    def test_within_a_filter_of_system_calls_that_kills_the_probe_makes_none(self):
        # What an interpreter needs to go on without opening anything: read, write, memory, signals' return, futexes, exit.
        text = """
            import ctypes, os, struct
            def leaf(number): return number + 1
            def work(times):
                number = 0
                for _ in range(times): number = leaf(number)
                return number
            work(1)
            libc = ctypes.CDLL(None, use_errno=True)
            allowed = [0, 1, 9, 10, 11, 12, 15, 25, 28, 202, 231]
            load, same, answer = 0x20, 0x15, 0x06
            rules = [(load, 0, 0, 0)]
            rules += [(same, len(allowed) - at, 0, number) for at, number in enumerate(allowed)]
            rules += [(answer, 0, 0, 0x80000000), (answer, 0, 0, 0x7fff0000)]
            code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
            filter = struct.pack("HxxxxxxQ", len(rules), ctypes.addressof(code))
            holder = ctypes.create_string_buffer(filter)
            assert libc.prctl(38, 1, 0, 0, 0) == 0
            assert libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(holder)), 0, 0) == 0
            os.write(1, b"%d\\n" % work(5000))
            os._exit(0)
        """
        if os.uname().machine != "x86_64":
            self.skipTest("the numbers of system calls are those of x86-64")
        genome = self.same(self.line("python", text), ("--no-kernel", "--py-include", "app"))
        self.assertEqual(self.calls(genome, "leaf"), 5001)

    @languages
    def test_a_stopped_collector_holds_nobody_up_and_every_call_is_told_or_counted(self, language):
        command = self.line(language, STOPPED[language])
        begun, done = (command[-1] + end for end in (".begun", ".done"))
        genome = os.path.join(self.folder, "stopped.genome")
        options = ["--no-kernel", "--max-loss", "100", "-o", genome]
        recorder = subprocess.Popen(
            [RECORDER, "record", *options, "--", *command],
            env=environment(False, SCALPEL_PROBES=PROBES),
            cwd=self.folder,
            stderr=subprocess.DEVNULL,
        )
        self.wait_for(begun)
        os.kill(recorder.pid, signal.SIGSTOP)
        # It comes to its end while nobody listens.
        self.wait_for(done)
        os.kill(recorder.pid, signal.SIGCONT)
        self.assertEqual(recorder.wait(60), 0)
        with open(done, encoding="utf-8") as file:
            number = int(file.read())
        report = self.report(genome)
        leaf = next(f for f in report["functions"] if f["name"] == "leaf")
        others = sum(f["lost"] for f in report["functions"] if f["name"] != "leaf")
        self.assertEqual(leaf["calls"] + report["lost"] - others, number)
        self.assertGreater(report["lost"], leaf["lost"], "the lease never ended")
        self.assertIn("of no known function", json.dumps(report["doubts"]))

    def wait_for(self, path):
        """Wait until a file is there."""
        until = time.monotonic() + 60
        while not os.path.exists(path):
            self.assertLess(time.monotonic(), until, path)
            time.sleep(0.01)

    def test_a_daemonizer_that_closes_everything_goes_on(self):
        text = """
            import os, sys
            def before(): pass
            def after(): pass
            before()
            if os.fork(): os._exit(0 * os.wait()[1])
            os.setsid()
            if os.fork(): os._exit(0)
            os.closerange(0, 256)
            first = os.open("/dev/null", os.O_RDWR)
            after()
            with open(sys.argv[0] + ".out", "w") as file:
                file.write("%d %s" % (first, sorted(os.listdir("/proc/self/fd"))))
        """
        command = self.line("python", text)
        outputs = []
        for run in (self.plain, self.recorded):
            run(command)
            out = command[-1] + ".out"
            for _ in range(2000):
                if os.path.exists(out) and os.path.getsize(out):
                    break
                subprocess.run(["sleep", "0.01"], check=True)
            with open(out, encoding="utf-8") as file:
                outputs.append(file.read())
            os.remove(out)
        self.assertEqual(outputs[0], outputs[1])


if __name__ == "__main__":
    unittest.main()
