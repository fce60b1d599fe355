"""A program with the probe is the program without it: output, exit code, descriptors, threads, signals, limits."""

import os
import subprocess
import unittest

from support import (
    COLLECTOR,
    GAP,
    MONITORING,
    NOTE,
    PROBES,
    PYTHON,
    REFUSAL,
    VERSION,
    ProbeTest,
    environment,
    plain,
    record,
)

STATE = """
    import os, resource, signal, sys, threading
    def limits():
        return [resource.getrlimit(getattr(resource, n)) for n in sorted(dir(resource)) if n.startswith("RLIMIT_")]
    def state():
        status = dict(line.split(":", 1) for line in open("/proc/self/status"))
        print(sorted(os.listdir("/proc/self/fd")))
        print(len(os.listdir("/proc/self/task")), threading.active_count())
        print({name: status[name].strip() for name in ("SigBlk", "SigIgn", "SigCgt", "Seccomp", "NoNewPrivs")})
        print(limits(), sys.getrecursionlimit(), sys.getswitchinterval())
        print(sys.gettrace(), sys.getprofile(), sys.path[1:], sys.argv[1:], sys.flags)
        print("sitecustomize" in sys.modules, sys.meta_path[-1], len(sys.path_hooks), sorted(sys.warnoptions))
        print(os.getcwd(), os.umask(0o022), threading.stack_size())
"""


class Same(ProbeTest):
    """The same with and without."""

    def test_descriptors_threads_signals_limits_and_paths(self):
        self.same([self.program(STATE + "\n    state()\n")])

    def test_recursion_depth(self):
        program = """
            import sys
            sys.setrecursionlimit(%d)
            def depth(n):
                try: return depth(n + 1)
                except RecursionError: return n
            class Meta(type):
                def __call__(cls, n): return cls.go(n)
            class Through(metaclass=Meta):
                @staticmethod
                def go(n):
                    try: return Through(n + 1)
                    except RecursionError: return n
            print(depth(0), Through(0))
        """
        for limit in (200, 1000, 5000):
            self.same([self.program(program % limit)])

    def test_exit_codes_and_errors(self):
        for line in (
            "import sys; sys.exit(7)",
            "raise KeyError('x')",
            "import os; os._exit(3)",
            "import sys; sys.exit('text')",
            "import os, signal; signal.signal(signal.SIGTERM, lambda *_: (print('caught'), exit(5))); "
            "os.kill(os.getpid(), signal.SIGTERM); import time; time.sleep(5)",
            "def f(: pass",
            "import atexit; atexit.register(lambda: print('last')); print('first')",
            "import threading, time; threading.Thread(target=time.sleep, args=(9,), daemon=True).start(); print(1)",
        ):
            with self.subTest(line):
                self.same(["-c", line])

    def test_tracebacks_of_generators_and_threads(self):
        self.same(
            [
                self.program("""
            import threading
            def numbers():
                try: yield 1
                finally: print("closed")
            def fail():
                for _ in numbers(): raise ValueError("deep")
            thread = threading.Thread(target=fail, name="worker"); thread.start(); thread.join()
            fail()
        """)
            ]
        )

    def test_reading_from_standard_input(self):
        done = [
            subprocess.run(
                command, input="print(6 * 7)\n", env=env, capture_output=True, text=True, timeout=60
            )
            for command, env in (
                ([PYTHON, "-"], environment(False)),
                ([COLLECTOR, "--quiet", "--", PYTHON, "-"], environment(True)),
            )
        ]
        self.assertEqual(done[0].stdout, "42\n")
        self.assertTrue(
            done[1].stdout.startswith("42\n") or "\n42\n" in done[1].stdout, done[1].stdout
        )

    def test_limits_on_files_descriptors_and_memory(self):
        for limit in ("RLIMIT_FSIZE, (0, 0)", "RLIMIT_NOFILE, (8, 8)", "RLIMIT_CORE, (0, 0)"):
            program = (
                "import resource, os; resource.setrlimit(resource.%s)\nos.execv(%r, [%r, '-c', %r])"
            )
            inner = "def f(): return 1\nprint(sum(f() for _ in range(1000)))"
            with self.subTest(limit):
                self.same(["-c", program % (limit, PYTHON, PYTHON, inner)])

    def test_a_daemonizer_that_closes_everything_is_recorded_on(self):
        recording = self.same(
            [
                self.program("""
            import os
            def before(): pass
            def after(): pass
            before()
            os.closerange(3, 256)
            first = os.open("/dev/null", os.O_RDONLY)
            after()
            print(first)
        """)
            ]
        )
        self.assertEqual((recording.calls()["before"], recording.calls()["after"]), (1, 1))

    def test_exec_vfork_and_unshare(self):
        self.same(
            [
                self.program("""
            import os, subprocess, sys
            print(subprocess.run([sys.executable, "-c", "print(1)"], stdout=subprocess.PIPE).stdout)
            print(os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", "raise SystemExit(4)"]), flush=True)
            os.execv(sys.executable, [sys.executable, "-c", "print('executed')"])
        """)
            ]
        )

    def test_warnings_about_forks_of_threads_are_the_programs_own(self):
        self.same(
            [
                "-W",
                "error",
                self.program("""
            import os
            child = os.fork()
            if child == 0: os._exit(0)
            print(os.waitpid(child, 0)[1])
        """),
            ]
        )

    def test_callbacks_of_the_probe_never_raise_when_called_by_hand(self):
        self.record("""
            import sys
            native = sys.modules["scalpel_probe._native"]
            for name in dir(native):
                function = getattr(native, name)
                if callable(function) and name not in ("set_profile", "__loader__", "set_disable"):
                    for arguments in ((), (1,), (1, 2), (None, "x", 3), (compile("1", "f", "exec"), 0, len, 1)):
                        try: function(*arguments)
                        except TypeError: pass
        """)

    def test_a_start_compiles_no_source_of_the_probe(self):
        recording = self.record(
            """
            import os, sys
            ours = [m for name, m in sys.modules.items() if name.startswith("scalpel_probe")]
            kept = {m.__name__: os.path.exists(m.__spec__.cached) for m in ours if m.__file__.endswith(".py")}
            print(len(kept) >= 3, all(kept.values()))
            """,
            PYTHONDONTWRITEBYTECODE="1",
        )
        self.assertEqual(recording.out, "True True\n")


class Absent(ProbeTest):
    """Where the probe cannot be, the program does not notice."""

    LINE = "def f(): return 'ran'\nprint(f())"

    def run_with(self, *flags, **env):
        done = subprocess.run(
            [PYTHON, *flags, "-c", self.LINE],
            env=environment(**env),
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "ran\n", ""))

    def test_no_collector(self):
        self.run_with()

    def test_a_socket_that_is_gone_or_no_socket(self):
        self.run_with(SCALPEL_SOCKET=os.path.join(self.folder, "gone"))
        self.run_with(SCALPEL_SOCKET=self.program("", "plain"))
        self.run_with(SCALPEL_SOCKET="x" * 300)

    def test_isolated_and_without_environment_or_site(self):
        for flag in ("-I", "-E", "-S"):
            recording = record([flag, "-c", self.LINE])
            self.assertEqual((recording.code, recording.out, recording.hellos), (0, "ran\n", []))

    def test_a_program_that_is_killed_leaves_its_events_and_their_names(self):
        recording = record(
            ["-c", "import os\ndef f(): pass\nfor _ in range(100): f()\nos.kill(os.getpid(), 9)"]
        )
        self.assertEqual(recording.calls()["f"], 100)
        self.assertTrue(all(event["name"] for event in recording.events))

    def test_killed_at_random_moments_no_published_event_is_without_name(self):
        program = self.program("""
            import os, signal, sys, threading
            signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            number = 0
            while True:
                number += 1
                exec("def made_%d(): pass\\nmade_%d()" % (number, number), {"__name__": "made"})
        """)
        for step in range(5):
            recording = record([program, str(0.05 + step * 0.013)])
            self.assertEqual(recording.faults(), [])
            self.assertTrue(recording.events)
            self.assertTrue(all(event["name"] for event in recording.events))


class Delivery(ProbeTest):
    """The ways into a program."""

    def test_the_programs_own_sitecustomize_still_runs(self):
        own = os.path.join(self.folder, "own")
        os.mkdir(own)
        with open(os.path.join(own, "sitecustomize.py"), "w", encoding="utf-8") as file:
            file.write(
                "import sys\ndef mine(): print('own', __name__, __file__ == sys.argv)\nmine()\n"
            )
        without = plain(["-c", "import sitecustomize; print(sitecustomize.mine)"], PYTHONPATH=own)
        options = ["py-include=app"]
        recording = record(
            ["-c", "import sitecustomize; print(sitecustomize.mine)"], options, PYTHONPATH=own
        )
        self.assertEqual(without.out.split(" at ")[0], recording.out.split(" at ")[0])
        self.assertEqual((recording.code, recording.err), (0, ""))
        self.assertEqual(recording.calls()["mine"], 1)

    def test_a_sitecustomize_that_fails_is_told_as_without(self):
        own = os.path.join(self.folder, "own")
        os.mkdir(own)
        with open(os.path.join(own, "sitecustomize.py"), "w", encoding="utf-8") as file:
            file.write("raise RuntimeError('mine')\n")
        without = plain(["-c", "print(1)"], PYTHONPATH=own)
        recording = record(["-c", "print(1)"], PYTHONPATH=own)
        self.assertEqual((recording.out, recording.err), (without.out, without.err))

    def test_by_hand_with_a_module_and_with_a_file(self):
        folder = os.path.join(PROBES, "python", "cp%d%d" % VERSION[:2])
        program = self.program(
            "import sys\ndef f(): print(sys.argv[1:], __name__, sys.path[0] == %r)\nf()"
            % self.folder
        )
        by_file = record(["-m", "scalpel_probe", program, "a"], injected=False, PYTHONPATH=folder)
        self.assertEqual((by_file.code, by_file.out), (0, "['a'] __main__ True\n"), by_file.err)
        self.assertEqual(by_file.calls()["f"], 1)
        by_module = record(
            ["-m", "scalpel_probe", "-m", "program", "b"],
            injected=False,
            PYTHONPATH=folder + ":" + self.folder,
            cwd=self.folder,
        )
        self.assertEqual(by_module.calls()["f"], 1, by_module.err)
        self.assertIn("['b'] __main__", by_module.out)
        alone = plain(["-m", "scalpel_probe", program, "c"], PYTHONPATH=folder)
        self.assertEqual(alone.code, 0)
        self.assertIn("not recording", alone.err)

    def test_in_a_virtual_environment(self):
        folder = os.path.join(self.folder, "venv")
        made = plain(["-m", "venv", "--without-pip", folder])
        if made.code:
            self.skipTest("no venv: " + made.err)
        recording = record(
            ["-c", "def f(): pass\nf()"], command=[os.path.join(folder, "bin", "python")]
        )
        self.assertEqual(recording.calls()["f"], 1, recording.err)

    def test_a_program_out_of_exec_sees_no_names_of_the_probe(self):
        self.same(["-c", "exec('print(sorted(k for k in globals() if not k.startswith(\"__\")))')"])

    def test_a_subinterpreter_is_refused_by_name(self):
        module = {True: "_interpreters", False: "_xxsubinterpreters"}[VERSION >= (3, 13)]
        recording = self.record(
            """
            import %s as interpreters
            def seen(): pass
            other = interpreters.create()
            interpreters.run_string(other, "def unseen(): pass\\nfor _ in range(100): unseen()")
            seen()
            """
            % module
        )
        self.assertEqual(recording.calls()["seen"], 1)
        self.assertNotIn("unseen", recording.calls())
        self.assertIn("subinterpreter", " ".join(recording.notes(REFUSAL)))


class Attach(ProbeTest):
    """A program that runs already."""

    LOOP = """
        import sys, time
        def work(): pass
        def outer():
            print("ready", flush=True)
            until = time.monotonic() + 20
            while time.monotonic() < until and "scalpel_probe" not in sys.modules: work()
            for _ in range(100): work()
        outer()
        work()
    """

    def attach(self, *command):
        """Run a program whose child attaches to it."""
        script = os.path.join(PROBES, "python", "inject", "attach.py")
        program = """
            import os, subprocess, sys
            child = subprocess.Popen([sys.executable, %r], env={k: v for k, v in os.environ.items()
                                     if k not in ("SCALPEL_SOCKET", "PYTHONPATH")}, stdout=subprocess.PIPE)
            child.stdout.readline()
            done = subprocess.run([sys.executable, %r, str(child.pid), os.environ["SCALPEL_SOCKET"]],
                                  stderr=subprocess.PIPE)
            print(done.returncode, done.stderr.decode())
            if done.returncode: child.kill()
            print(child.wait())
        """ % (self.program(self.LOOP, "loop.py"), script)
        return record([self.program(program)], ["py-include=app"], injected=False)

    @unittest.skipUnless(VERSION >= (3, 14), "sys.remote_exec came with 3.14")
    def test_a_running_program_is_entered(self):
        recording = self.attach()
        self.assertEqual(recording.out.split(), ["0", "0"], recording.err)
        self.assertEqual(recording.faults(), [])
        self.assertGreaterEqual(recording.calls()["work"], 101)
        self.assertNotIn("outer", recording.calls())

    @unittest.skipIf(VERSION >= (3, 14), "can be entered")
    def test_an_older_one_is_not_and_the_reason_is_told(self):
        recording = self.attach()
        self.assertIn("cannot be entered while it runs", recording.out)
        self.assertEqual(recording.hellos, [])


class Neighbours(ProbeTest):
    """Other tools at work in the same program: theirs goes on working."""

    def test_cprofile_inside_the_program(self):
        program = """
            import cProfile, pstats, io
            def counted(): pass
            def run():
                for _ in range(100): counted()
            profile = cProfile.Profile(); profile.runcall(run)
            print(sorted((name, counts[0]) for (_, _, name), counts in pstats.Stats(profile).stats.items()
                         if name in ("counted", "run")))
            for _ in range(10): counted()
        """
        recording = self.same([self.program(program)])
        if MONITORING:
            self.assertEqual(recording.calls()["counted"], 110)
        else:
            self.assertEqual(recording.calls()["counted"], 10)
            self.assertTrue(recording.notes(GAP))
            self.assertIn("let go", " ".join(recording.notes(NOTE)))

    def test_setprofile_settrace_and_a_debugger(self):
        program = """
            import bdb, sys, threading
            seen = []
            def target(): return 1
            def hook(frame, event, argument):
                if frame.f_code is target.__code__: seen.append(event)
                return hook
            sys.setprofile(hook); target(); sys.setprofile(None)
            sys.settrace(hook); target(); sys.settrace(None)
            class Debugger(bdb.Bdb):
                def user_line(self, frame): seen.append(frame.f_code.co_name)
            debugger = Debugger(); debugger.runcall(target)
            print(seen, sys.getprofile(), sys.gettrace())
        """
        recording = self.same([self.program(program)])
        self.assertGreaterEqual(recording.calls()["target"], 3 if MONITORING else 2)

    def test_a_profiler_that_was_there_first_is_left_alone(self):
        folder = os.path.join(PROBES, "python", "cp%d%d" % VERSION[:2])
        program = """
            import cProfile, pstats, sys
            def counted(): pass
            profile = cProfile.Profile(); profile.enable()
            import scalpel_probe
            answer = scalpel_probe.start()
            for _ in range(100): counted()
            profile.disable()
            print({n: c[0] for (_, _, n), c in pstats.Stats(profile).stats.items() if n == "counted"}, answer)
        """
        recording = record([self.program(program)], injected=False, PYTHONPATH=folder)
        self.assertEqual(recording.code, 0, recording.err)
        self.assertIn("{'counted': 100}", recording.out)
        if MONITORING:
            self.assertEqual(recording.calls()["counted"], 100)
        else:
            self.assertIn("taken", " ".join(recording.notes(REFUSAL)))
            self.assertNotIn("counted", recording.calls())

    @unittest.skipUnless(MONITORING, "sys.monitoring came with 3.12")
    def test_all_tools_taken(self):
        folder = os.path.join(PROBES, "python", "cp%d%d" % VERSION[:2])
        program = """
            import sys
            for tool in range(6): sys.monitoring.use_tool_id(tool, "other")
            import scalpel_probe
            print(scalpel_probe.start())
        """
        recording = record([self.program(program)], injected=False, PYTHONPATH=folder)
        self.assertIn("taken", recording.out)
        self.assertIn("taken", " ".join(recording.notes(REFUSAL)))

    @unittest.skipUnless(MONITORING, "sys.monitoring came with 3.12")
    def test_another_tool_that_restarts_events(self):
        recording = self.record("""
            import sys
            monitoring = sys.monitoring
            monitoring.use_tool_id(1, "other")
            monitoring.set_events(1, monitoring.events.PY_START)
            monitoring.register_callback(1, monitoring.events.PY_START, lambda code, offset: monitoring.DISABLE)
            def counted(): pass
            for _ in range(200):
                monitoring.restart_events(); counted()
        """)
        self.assertEqual(recording.calls()["counted"], 200)


if __name__ == "__main__":
    unittest.main()
