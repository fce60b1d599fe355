"""What is recorded of a program whose truth is known."""

import unittest
from collections import Counter

from support import (
    ASYNC,
    C_FUNCTION,
    CLASS_BODY,
    EXCLUDED,
    GAP,
    INFERRED,
    MONITORING,
    PYTHON,
    VERSION,
    ProbeTest,
    record,
)


class Calls(ProbeTest):
    """Plain functions."""

    def test_each_call_of_each_function_is_entered_and_left_once(self):
        recording = self.record("""
            def leaf(): pass
            def middle(n):
                for _ in range(n): leaf()
            def recurse(n):
                return n and recurse(n - 1)
            for _ in range(10): middle(7)
            recurse(50)
        """)
        expected = {"<module>": 1, "leaf": 70, "middle": 10, "recurse": 51}
        self.assertEqual(recording.calls(), expected)
        ends = Counter(event["name"] for event in recording.events if event["kind"] == "Exit")
        self.assertEqual(ends, expected)

    def test_callers_enclose_their_callees(self):
        recording = self.record("""
            def a(): b()
            def b(): c()
            def c(): pass
            a()
        """)
        order = [(event["kind"], event["name"]) for event in recording.events]
        names = ["<module>", "a", "b", "c"]
        expected = [("Enter", name) for name in names] + [("Exit", name) for name in names[::-1]]
        self.assertEqual(order, expected)

    def test_an_exception_unwinds_what_it_leaves(self):
        recording = self.record("""
            def thrower(): raise ValueError
            def passed(): thrower()
            def catcher():
                try: passed()
                except ValueError: pass
            catcher()
        """)
        self.assertEqual(recording.kinds("thrower"), "Enter Unwind")
        self.assertEqual(recording.kinds("passed"), "Enter Unwind")
        self.assertEqual(recording.kinds("catcher"), "Enter Exit")

    def test_recursion_to_the_limit_stays_balanced(self):
        recording = self.record("""
            def deep(n): return deep(n + 1)
            def caught():
                try: deep(0)
                except RecursionError: return True
            assert caught() and caught()
        """)
        entered = recording.calls()["deep"]
        self.assertGreater(entered, 1000)
        self.assertEqual(recording.kinds("deep").count("Unwind"), entered)

    def test_sys_exit_unwinds_to_the_module(self):
        recording = self.record("""
            import sys
            def leave(): sys.exit(0)
            leave()
        """)
        self.assertEqual(recording.kinds("leave"), "Enter Unwind")
        self.assertEqual(recording.kinds("<module>"), "Enter Unwind")

    def test_threads_write_to_lanes_of_their_own(self):
        recording = self.record("""
            import threading
            def work():
                for _ in range(100): unit()
            def unit(): pass
            threads = [threading.Thread(target=work) for _ in range(8)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
        """)
        self.assertEqual(recording.calls()["work"], 8)
        self.assertEqual(recording.calls()["unit"], 800)
        tids = {event["tid"] for event in recording.events if event["name"] == "work"}
        self.assertEqual(len(tids), 8)
        self.assertEqual(recording.notes(GAP), [])

    def test_a_forked_child_has_lanes_of_its_own_and_no_frames_of_its_parent(self):
        recording = self.record("""
            import os
            def before(): pass
            def inside():
                child = os.fork()
                for _ in range(50): after()
                if child == 0: os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
            def after(): pass
            before()
            inside()
        """)
        self.assertEqual(recording.calls()["after"], 100)
        pids = {event["pid"] for event in recording.events if event["name"] == "after"}
        self.assertEqual(len(pids), 2)
        self.assertEqual(recording.kinds("inside"), "Enter Exit")

    def test_multiprocessing_by_fork_and_by_spawn(self):
        for method in ("fork", "spawn"):
            recording = self.record(
                """
                import multiprocessing, sys
                def square(n): return n * n
                if __name__ == "__main__":
                    context = multiprocessing.get_context(sys.argv[1])
                    with context.Pool(2) as pool:
                        assert pool.map(square, range(20), 1) == [n * n for n in range(20)]
                """,
                method,
            )
            self.assertEqual(recording.calls()["square"], 20, method)


class Suspensions(ProbeTest):
    """Generators, coroutines, tasks."""

    def test_a_generator_is_entered_once_and_suspended_at_each_yield(self):
        recording = self.record("""
            def numbers():
                yield 1
                yield 2
            list(numbers())
        """)
        self.assertEqual(recording.kinds("numbers"), "Enter Suspend Resume Suspend Resume Exit")

    def test_delegation_suspends_every_level(self):
        recording = self.record("""
            def inner():
                yield 1
            def outer():
                yield from inner()
            list(outer())
        """)
        self.assertEqual(recording.kinds("outer"), "Enter Suspend Resume Exit")
        self.assertEqual(recording.kinds("inner"), "Enter Suspend Resume Exit")

    def test_an_exception_thrown_in_resumes_and_unwinds(self):
        recording = self.record("""
            def patient():
                try: yield
                except KeyError: yield
            g = patient(); next(g); g.throw(KeyError)
            try: next(g)
            except StopIteration: pass
        """)
        self.assertEqual(recording.kinds("patient"), "Enter Suspend Resume Suspend Resume Exit")

    def test_a_closed_generator_has_ended_at_the_latest_when_its_memory_is_used_again(self):
        recording = self.record("""
            def endless():
                while True: yield
            def once():
                g = endless(); next(g); g.close()
            for _ in range(100): once()
        """)
        ends = [
            event
            for event in recording.events
            if event["name"] == "endless" and event["kind"] == "Unwind"
        ]
        self.assertGreaterEqual(len(ends), 99)
        if VERSION == (3, 13, 0):
            self.assertTrue(all(event["flags"] & INFERRED for event in ends))
        self.assertEqual(recording.calls()["endless"], 100)

    def test_tasks_have_serials_and_what_they_await_belongs_to_them(self):
        recording = self.record("""
            import asyncio
            def plain(): pass
            async def leaf():
                plain()
                await asyncio.sleep(0)
                plain()
            async def root():
                await leaf()
            async def main():
                await asyncio.gather(*(root() for _ in range(20)))
                for _ in range(100): await asyncio.ensure_future(leaf())
            asyncio.get_event_loop_policy().new_event_loop().run_until_complete(main())
        """)
        tasks = {
            name: [
                e["value"] for e in recording.events if e["name"] == name and e["kind"] == "Enter"
            ]
            for name in ("main", "root", "leaf", "plain")
        }
        self.assertEqual(len(set(tasks["root"])), 20)
        self.assertEqual(len(set(tasks["leaf"])), 120)
        self.assertEqual(set(tasks["leaf"]) & set(tasks["root"]), set(tasks["root"]))
        self.assertEqual(Counter(tasks["plain"]), Counter(tasks["leaf"] * 2))
        self.assertNotIn(0, tasks["main"] + tasks["leaf"] + tasks["plain"])
        self.assertTrue(all(e["flags"] & ASYNC for e in recording.events if e["name"] == "leaf"))

    def test_a_generator_goes_on_in_another_thread(self):
        recording = self.record("""
            import threading
            def numbers():
                yield 1
                yield 2
            g = numbers(); next(g)
            thread = threading.Thread(target=lambda: next(g)); thread.start(); thread.join()
            assert list(g) == []
        """)
        tids = [event["tid"] for event in recording.events if event["name"] == "numbers"]
        self.assertEqual(len(set(tids)), 2)

    def test_async_generators_and_comprehensions(self):
        recording = self.record("""
            import asyncio
            async def numbers():
                for n in range(3):
                    await asyncio.sleep(0)
                    yield n
            async def main():
                return [n async for n in numbers()]
            loop = asyncio.get_event_loop_policy().new_event_loop()
            assert loop.run_until_complete(main()) == [0, 1, 2]
        """)
        self.assertEqual(recording.calls()["numbers"], 1)
        self.assertEqual(recording.kinds("numbers").count("Suspend"), 6)


class Names(ProbeTest):
    """What functions are called."""

    def test_names_are_qualified_and_places_are_right(self):
        recording = self.record("""\
            class Outer:
                class Inner:
                    def method(self):
                        def local():
                            return (lambda: 1)()
                        return local()
            async def coroutine():
                pass
            Outer.Inner().method()
            try: coroutine().send(None)
            except StopIteration: pass
        """)
        expected = {
            "Outer": (1, 6, 1 << 4),
            "Outer.Inner": (2, 6, 1 << 4),
            "Outer.Inner.method": (3, 6, 0),
            "Outer.Inner.method.<locals>.local": (4, 5, 0),
            "Outer.Inner.method.<locals>.local.<locals>.<lambda>": (5, 5, 1 << 6),
            "coroutine": (7, 8, 1 << 0),
            "<module>": (1, 11, 1 << 5),
        }
        for name, (first, last, flags) in expected.items():
            function = recording.function(name)
            self.assertEqual(
                (function["line"], function["end_line"], function["flags"]),
                (first, last, flags),
                name,
            )
            self.assertEqual(function["owner"], "__main__")
            self.assertTrue(function["file"].endswith("/program.py"))
        body = [event["flags"] for event in recording.events if event["name"] == "Outer"]
        self.assertTrue(all(flags & CLASS_BODY for flags in body))

    def test_functions_have_the_hash_of_the_text_that_was_loaded(self):
        text = "def %s(): pass\n"
        for name, body in (("one", text % "f"), ("same", text % "f"), ("other", text % "g")):
            self.program(body, name + ".py")
        recording = self.record("""
            import one, same, other
            one.f(); same.f(); other.g()
            exec("def generated(): pass\\ngenerated()")
        """)
        hashes = {
            (function["owner"], function["name"]): function["text_hash"]
            for function in recording.functions
        }
        self.assertEqual(hashes["one", "f"], hashes["one", "<module>"])
        self.assertEqual(hashes["one", "f"], hashes["same", "f"])
        self.assertNotIn(hashes["one", "f"], ("0", hashes["other", "g"]))
        self.assertEqual(hashes["__main__", "generated"], "0")

    def test_a_program_out_of_a_pipe_is_read_by_the_interpreter_alone(self):
        text = "def f(): print('ran')\nf()\n"
        recording = record(
            ["-c", '"$1" <(printf "%s" "$2")', "bash", PYTHON, text],
            ["py-include=app"],
            command=["bash"],
        )
        self.assertEqual((recording.code, recording.out), (0, "ran\n"), recording.err)
        self.assertEqual(recording.calls()["f"], 1)

    def test_namesakes_are_told_apart_and_decorators_stand_before_what_they_wrap(self):
        recording = self.record("""
            import functools
            def decorate(function):
                @functools.wraps(function)
                def wrapper(*arguments): return function(*arguments)
                return wrapper
            @decorate
            def target(): pass
            first, second = [lambda: 1, lambda: 2]
            target(); first(); second()
        """)
        self.assertEqual(recording.calls()["decorate.<locals>.wrapper"], 1)
        self.assertEqual(recording.calls()["target"], 1)
        lambdas = {event["func"] for event in recording.events if event["name"] == "<lambda>"}
        self.assertEqual(len(lambdas), 2)

    def test_a_source_that_is_executed_again_keeps_its_ids(self):
        recording = self.record("""
            source = "def made(): return 1\\nmade()"
            for _ in range(500): exec(source, {"__name__": "generated"})
        """)
        self.assertEqual(recording.calls()["made"], 500)
        made = recording.function("made")
        self.assertEqual(
            (made["owner"], made["file"], made["flags"]), ("generated", "<string>", 1 << 3)
        )

    def test_paths_that_are_no_text_do_no_harm(self):
        self.record("""
            exec(compile("def odd(): pass\\nodd()", "bad\\udcff.py", "exec"), {})
            exec(compile("def lone(): pass\\nlone()", "lone\\ud800.py", "exec"), {"__name__": 7})
        """)


class Filters(ProbeTest):
    """What is left out."""

    PROGRAM = """
        import json, textwrap
        def mine(): return textwrap.indent("a", " "), json.dumps({"a": [1]}, indent=1)
        mine()
    """

    def test_the_standard_library_is_left_out_by_default_and_counted(self):
        recording = self.record(self.PROGRAM, options=[])
        installed = 1 << 8
        own = {
            function["name"]
            for function in recording.functions
            if not function["flags"] & installed
        }
        self.assertEqual(own, {"<module>", "mine"})
        counts = [
            n["value"] for p in recording.processes for n in p["notes"] if n["kind"] == EXCLUDED
        ]
        self.assertGreater(max(counts), 5)

    def test_patterns_choose_modules_and_files(self):
        recording = self.record(
            self.PROGRAM, options=["py-include=app,textwrap", "py-exclude=__main__"]
        )
        owners = {function["owner"] for function in recording.functions}
        self.assertEqual(owners, {"textwrap"})
        recording = self.record(
            self.PROGRAM, options=["py-include=all", "py-exclude=*/textwrap.py"]
        )
        owners = {function["owner"] for function in recording.functions}
        self.assertIn("json.encoder", owners)
        self.assertNotIn("textwrap", owners)

    def test_count_mode(self):
        recording = self.record(
            """
            def never(): pass
            def often(): pass
            def numbers(): yield; yield
            for _ in range(10): often()
            list(numbers())
            """,
            mode="count",
        )
        self.assertEqual(recording.events, [])
        counts = {function["name"]: function["calls"] for function in recording.functions}
        often = 1 if MONITORING else 10
        self.assertEqual(counts, {"<module>": 1, "often": often, "numbers": 1})


class Breaker(ProbeTest):
    """Functions that the collector switches off."""

    def test_what_is_switched_off_is_silent_and_all_else_goes_on(self):
        recording = self.record(
            """
            import time
            def hot(): return 1
            def generator():
                while True: yield hot()
            def cold(): pass
            def held():
                for _ in range(50):
                    time.sleep(0.01)
                    for _ in range(10): hot()
                    next(numbers)
            numbers = generator()
            held()
            for _ in range(5): hot(), next(numbers)
            cold()
            """,
            off="hot",
        )
        calls = recording.calls()
        self.assertGreater(calls["hot"], 0)
        self.assertLess(calls["hot"], 500)
        self.assertEqual((calls["held"], calls["cold"], calls["generator"]), (1, 1, 1))
        self.assertEqual(recording.kinds("generator").count("Suspend"), 55)

    def test_a_frame_that_is_open_when_it_is_switched_off_still_ends(self):
        recording = self.record(
            """
            import time
            def slow(): time.sleep(0.5)
            def stopped(): yield time.sleep(0.5); yield 2
            slow(); slow(); list(stopped())
            """,
            off="slow",
        )
        self.assertEqual(recording.kinds("slow"), "Enter Exit")
        self.assertEqual(recording.kinds("stopped"), "Enter Suspend Resume Suspend Resume Exit")


class Native(ProbeTest):
    """C functions, on demand."""

    def test_native_functions_are_seen_with_their_owners(self):
        recording = self.record(
            """
            def caller():
                values = []
                values.append(3)
                len(values)
                "a b".split()
                try: [].index(1)
                except ValueError: pass
            for _ in range(5): caller()
            """,
            mode="all",
        )
        calls = recording.calls()
        self.assertEqual((calls["list.append"], calls["len"], calls["str.split"]), (5, 5, 5))
        self.assertEqual(recording.kinds("list.index"), " ".join(["Enter Unwind"] * 5))
        self.assertEqual(recording.function("len")["owner"], "builtins")
        self.assertTrue(
            all(e["flags"] & C_FUNCTION for e in recording.events if e["name"] == "len")
        )

    def test_a_native_call_that_calls_back_encloses_it(self):
        recording = self.record(
            """
            def key(value): return -value
            def caller(): return sorted([1, 2, 3], key=key)
            caller()
            """,
            mode="all",
        )
        order = [(e["kind"], e["name"]) for e in recording.events if e["name"] in ("sorted", "key")]
        self.assertEqual(order[0], ("Enter", "sorted"))
        self.assertEqual(order[-1], ("Exit", "sorted"))
        self.assertEqual(len(order), 8)


if __name__ == "__main__":
    unittest.main()
