"""Whether matching tells the truth: programs whose functions are labelled by hand are recorded and laid over their sources.

Needs the collector and the probes, and no privilege. ``$SCALPEL_BIN``: the collector. ``$SCALPEL_PROBES``: the folder of
the probes. ``$SCALPEL_TRUTH_PYTHON``: the Python to record. ``$SCALPEL_NODE``: the Node.js to record.
``$SCALPEL_PACKAGES``: a folder whose ``node_modules`` has typescript, esbuild, express and rxjs. ``$SCALPEL_TRUTH_REAL``: a
Python with HTTPie and Flask. What is not named is skipped.
"""

import contextlib
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from collections import Counter

HOME = pathlib.Path(__file__).resolve().parent
RECORDER = os.environ.get("SCALPEL_BIN", "")
PYTHON = os.environ.get("SCALPEL_TRUTH_PYTHON", "")
NODE = os.environ.get("SCALPEL_NODE", "")
PACKAGES = os.environ.get("SCALPEL_PACKAGES", "")
REAL = os.environ.get("SCALPEL_TRUTH_REAL", "")

# What every run has to reach, whatever its labels say.
MATCH_TARGET = 0.9
UNKNOWN_LIMIT = 0.05

# A call with one text: in what a compiler made, too, where `hit` has another name.
MARK = re.compile(r"\(['\"]([^'\"()]+)['\"]\)")


def run(*command, cwd):
    """Run a program to its end and give back what it printed."""
    ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    if ended.returncode != 0:
        raise AssertionError(f"{command} ended with {ended.returncode}: {ended.stderr}{ended.stdout}")
    return ended.stdout


class Recording:
    """A program that was recorded over its sources."""

    def __init__(self, folder, sources, command):
        self.file = folder / "truth.genome"
        roots = [part for source in sources for part in ("--src", str(source))]
        options = ["record", "--no-kernel", *roots, "-o", str(self.file), "--"]
        self.out = run(RECORDER, *options, *map(str, command), cwd=folder)
        self.report = json.loads(run(RECORDER, "report", self.file, "--json", cwd=folder))
        self.ran = [row for row in self.report["functions"] if row["calls"]]

    def query(self, sql):
        """Rows of a question in SQL."""
        return json.loads(run(RECORDER, "genome", "query", self.file, sql, "--json", cwd=HOME))

    def rates(self):
        """Match rate and share without a name."""
        return self.report["match_rate"], self.report["unknown_share"]


class Truth(unittest.TestCase):
    """A folder of its own, and what every recording has to show."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="scalpel-truth-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def copy(self, name):
        shutil.copytree(HOME / name, self.folder / name)
        return self.folder / name

    def reach(self, recording, target=MATCH_TARGET):
        rate, unknown = recording.rates()
        known = recording.report["static"]
        lost = {row["why"]: row["functions"] for row in known["unmatched"]}
        print(known["match_rate"], known["raw_rate"], f"unknown {unknown}", lost, flush=True)
        self.assertIsNotNone(rate, "nothing was matched")
        self.assertGreater(rate, target, recording.report["static"]["unmatched"])
        self.assertLess(unknown, UNKNOWN_LIMIT)


def labels(path):
    """Sections of a label file: names of lists of lines."""
    sections = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("# "):
            continue
        if re.fullmatch(r"\w+", line):
            current = sections.setdefault(line, [])
        else:
            current.append(line)
    return sections


def unseen(rows):
    """What of the sources did not run, as label files write it."""
    return sorted(
        " ".join(filter(None, [f"{row['file']}:{row['line']} {row['name']}", "=", row["state"], row["why"]]))
        for row in rows
    )


@unittest.skipUnless(RECORDER and PYTHON, "no collector, or no Python to record")
class Python(Truth):
    """Decorators, lambdas, nested and redefined functions, properties, generators, generated code."""

    def test_every_function_is_what_its_label_says(self):
        source = self.copy("python")
        recording = Recording(self.folder, [source], [PYTHON, source / "shapes.py"])
        said = labels(source / "labels.txt")
        own = [row for row in recording.ran if (row["file"] or "").endswith("shapes.py")]
        # From 3.14 on: functions that the compiler makes for annotations.
        made = [row for row in own if row["name"].endswith("__annotate__")]
        self.assertEqual({row["not_found"] for row in made} - {"generated"}, set())
        found = Counter(self.told(row) for row in own if row not in made)
        sure = [line for line in said["ran"] if not line.startswith("? ")]
        maybe = [line[2:] for line in said["ran"] if line.startswith("? ")]
        self.maxDiff = None
        self.assertEqual(sorted(found.keys() - set(maybe)), sorted(sure))
        self.reach(recording)
        for line in said["made"]:
            name, number, _, why = line.split()
            # The language's own library makes some, too.
            ran = [row for row in recording.ran if row["module"] == "__main__"]
            made = [row for row in ran if (row["file"] or "").startswith("<") and row["name"].endswith(name)]
            self.assertEqual((len(made), {row["not_found"] for row in made}), (int(number), {why}), line)

    def test_what_did_not_run_is_told_apart_from_what_could_not_be_seen(self):
        source = self.copy("python")
        recording = Recording(self.folder, [source], [PYTHON, source / "shapes.py"])
        self.maxDiff = None
        self.assertEqual(unseen(recording.report["unseen"]), sorted(labels(source / "labels.txt")["unseen"]))

    def test_an_edited_source_is_not_taken_for_the_one_that_ran(self):
        source = self.copy("python")
        recording = Recording(self.folder, [source], [PYTHON, source / "shapes.py"])
        text = (source / "shapes.py").read_text(encoding="utf-8")
        (source / "shapes.py").write_text("\n" + text, encoding="utf-8")
        edited = Recording(self.folder, [source], [PYTHON, source / "shapes.py"])
        run(RECORDER, "genome", "build", "--src", source, "-o", "static.genome", cwd=self.folder)
        self.assertEqual(edited.rates()[0], recording.rates()[0])
        # The first recording keeps what was found with the sources of its time.
        kept = json.loads(run(RECORDER, "report", f"{recording.file}.old", "--json", cwd=self.folder))
        self.assertEqual(kept["match_rate"], recording.rates()[0])

    @staticmethod
    def told(row):
        line = f"{row['name']} @{row['line']} "
        return line + (f"= {row['definition']}" if row["definition"] else f"! {row['not_found']}")


class Marked(Truth):
    """JavaScript, whose functions say a mark of their own: it is in the text that was loaded and in the source."""

    def check(self, recording, said):
        """Every function that has a mark is the definition that has it; the others are what the labels say."""
        definitions = recording.query(
            "SELECT d.id, f.path, r.path AS root, start_utf16 AS start, end_utf16 AS end, d.kind, d.qualified "
            "FROM static_definitions d JOIN static_files f ON f.id = d.file JOIN static_roots r ON r.id = f.root"
        )
        functions = recording.query(
            "SELECT f.id, f.name, f.path, text_start AS start, text_end AS end, m.definition, m.why "
            "FROM functions f JOIN func_total t ON t.func = f.id JOIN matches m ON m.func = f.id WHERE t.calls > 0"
        )
        functions = [row for row in functions if row["start"] is not None]
        for row in definitions:
            row["path"] = os.path.join(row["root"], row["path"])
        told = set(json.loads(recording.out[recording.out.index("[") :]))
        names = {mark for row in definitions for mark in marks_of_source(row["path"])}
        of_definition = own_marks(definitions, names)
        of_function = own_marks(functions, told)
        folded = set(said.get("folded", []))
        by_id = {row["id"]: row for row in definitions}
        ran, wrong, unmatched, without = set(), [], Counter(), Counter()
        for row in functions:
            marks = of_function.get(row["id"], set()) - folded
            ran |= marks
            if row["definition"] is None:
                for mark in marks:
                    unmatched[f"{mark} ! {row['why']}"] += 1
                if not marks:
                    without[f"! {row['why']}"] += 1
                continue
            definition = by_id[row["definition"]]
            if marks != of_definition.get(row["definition"], set()):
                wrong.append((row, definition))
            elif not marks:
                without[f"= {definition['kind']} {definition['qualified']}"] += 1
        self.maxDiff = None
        self.assertEqual(wrong, [], "taken for another")
        self.assertEqual(told - folded - ran, set(), "said that they ran, and were not seen")
        self.assertEqual(sorted(unmatched), sorted(said.get("unmatched", [])))
        counted = sorted(f"{number} {what}" for what, number in without.items())
        self.assertEqual(counted, sorted(said.get("unmarked", [])))
        self.reach(recording)
        self.assertEqual(unseen(recording.report["unseen"]), sorted(said["unseen"]))


@functools.cache
def marks_of_source(path):
    """All marks of a source, those of functions that never run included."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    return frozenset(re.findall(r"hit\(['\"]([^'\"]+)['\"]\)", text))


def own_marks(rows, names):
    """By id: the marks that stand in a stretch of text and in no smaller one of the rows."""
    texts, marks = {}, {}
    for path in {row["path"] for row in rows}:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            text = pathlib.Path(path).read_text(encoding="utf-8")
            found = [found for found in MARK.finditer(text) if found[1] in names]
            texts[path] = [(utf16(text, one.start()), one[1]) for one in found]
    for path, found in texts.items():
        here = [row for row in rows if row["path"] == path and row["end"] > row["start"]]
        for at, mark in found:
            around = [row for row in here if row["start"] <= at < row["end"]]
            if around:
                inner = min(around, key=lambda row: row["end"] - row["start"])
                marks.setdefault(inner["id"], set()).add(mark)
    return marks


def utf16(text, at):
    """Units of UTF-16 before a place in a text."""
    return len(text[:at].encode("utf-16-le")) // 2


@unittest.skipUnless(RECORDER and NODE, "no collector, or no Node.js to record")
class JavaScript(Marked):
    """As it is written: CommonJS and ECMAScript modules."""

    def test_common_js(self):
        source = self.copy("cjs")
        recording = Recording(self.folder, [source], [NODE, source / "shapes.cjs"])
        self.check(recording, labels(source / "labels.txt"))

    def test_ecmascript_modules(self):
        source = self.copy("mjs")
        recording = Recording(self.folder, [source], [NODE, source / "shapes.mjs"])
        self.check(recording, labels(source / "labels.txt"))


@unittest.skipUnless(RECORDER and NODE and PACKAGES, "no collector, no Node.js to record, or no packages")
class TypeScript(Marked):
    """Through source maps: compiled by tsc, and bundled and minified by esbuild."""

    def built(self, *command):
        source = self.copy("typescript")
        (source / "node_modules").symlink_to(pathlib.Path(PACKAGES) / "node_modules")
        run(NODE, *command, cwd=source)
        return source

    def test_tsc(self):
        source = self.built("node_modules/typescript/bin/tsc", "-p", ".")
        recording = Recording(self.folder, [source / "src"], [NODE, source / "tsc/main.js"])
        self.check(recording, labels(source / "tsc.txt"))

    def test_esbuild_minified(self):
        source = self.built("esbuild.js")
        recording = Recording(self.folder, [source / "src"], [NODE, source / "esbuild/main.js"])
        self.check(recording, labels(source / "esbuild.txt"))


class Real(Truth):
    """Programs that people use, of pinned versions: what was not found is explained, and no truth is known."""

    @unittest.skipUnless(RECORDER and REAL, "no collector, or no Python with HTTPie")
    def test_httpie(self):
        package = run(REAL, "-c", "import httpie; print(httpie.__path__[0])", cwd=self.folder).strip()
        ask = ["-m", "httpie", "--offline", "--ignore-stdin", "POST", "http://localhost/", "a=1", "b:=2", "X-H:1"]
        self.reach(Recording(self.folder, [package], [REAL, *ask]))

    @unittest.skipUnless(RECORDER and REAL, "no collector, or no Python with Flask")
    def test_flask(self):
        source = self.copy("flask")
        recording = Recording(self.folder, [source], [REAL, source / "app.py"])
        self.assertIn("[401, 200, 200, 404, 3]", recording.out)
        self.reach(recording)
        # A template that is made from a text runs no context processors.
        never = ["app.py:55 constants = never-ran", "app.py:88 never = never-ran"]
        self.assertEqual(unseen(recording.report["unseen"]), never)

    @unittest.skipUnless(RECORDER and NODE and PACKAGES, "no collector, no Node.js, or no packages")
    def test_express(self):
        source = self.copy("express")
        modules = pathlib.Path(PACKAGES).resolve() / "node_modules"
        (source / "node_modules").symlink_to(modules)
        sources = [source, modules / "express/lib"]
        self.reach(Recording(self.folder, sources, [NODE, source / "app.js"]))

    def rxjs(self, *command):
        source = self.copy("rxjs")
        (source / "node_modules").symlink_to(pathlib.Path(PACKAGES) / "node_modules")
        shutil.copytree(source / "node_modules/rxjs/src", source / "src/rxjs")
        subprocess.run([NODE, *command], cwd=source, capture_output=True, timeout=300)
        return source

    @unittest.skipUnless(RECORDER and NODE and PACKAGES, "no collector, no Node.js, or no packages")
    def test_rxjs_compiled_by_tsc(self):
        # The types of RxJS need another version of the compiler: it tells so, and compiles.
        source = self.rxjs("node_modules/typescript/bin/tsc", "-p", ".")
        self.reach(Recording(self.folder, [source / "src"], [NODE, source / "tsc/app.js"]))

    def published(self, name, edit=lambda text: text):
        """RxJS as its authors publish it: maps without sources, and these beside them, here newer than the maps."""
        package = pathlib.Path(PACKAGES).resolve() / "node_modules"
        folder = self.folder / name
        shutil.copytree(package / "rxjs", folder / "node_modules/rxjs")
        shutil.copytree(package / "tslib", folder / "node_modules/tslib")
        shutil.copy(HOME / "rxjs/published.cjs", folder)
        later = time.time() + 60
        for source in (folder / "node_modules/rxjs/src").rglob("*.ts"):
            source.write_text(edit(source.read_text(encoding="utf-8")), encoding="utf-8")
            os.utime(source, (later, later))
        return Recording(folder, [folder / "node_modules/rxjs/src"], [NODE, folder / "published.cjs"])

    @unittest.skipUnless(RECORDER and NODE and PACKAGES, "no collector, no Node.js, or no packages")
    def test_rxjs_as_it_is_published(self):
        # Of small files the words are too few to tell.
        self.reach(self.published("sound"), target=0.8)
        edited = self.published("edited", lambda text: "// One line more.\n" + text).report["static"]
        self.assertEqual(edited["match_rate"]["matched"], 0)
        lost = {row["why"]: row["written"] for row in edited["unmatched"]}
        self.assertGreater(lost["not-compared"], 100)

    @unittest.skipUnless(RECORDER and NODE and PACKAGES, "no collector, no Node.js, or no packages")
    def test_rxjs_minified_by_esbuild(self):
        source = self.rxjs("esbuild.js")
        self.reach(Recording(self.folder, [source / "src"], [NODE, source / "esbuild/app.js"]))


def main():
    """Run all tests, or those named; the closing line has the form of cargo's test runner."""
    loader, module = unittest.TestLoader(), sys.modules["__main__"]
    names = sys.argv[1:]
    suite = loader.loadTestsFromNames(names, module) if names else loader.loadTestsFromModule(module)
    result = unittest.TextTestRunner(verbosity=2, stream=sys.stdout).run(suite)
    failed = len(result.failures) + len(result.errors)
    passed = result.testsRun - failed - len(result.skipped)
    word = "FAILED" if failed else "ok"
    print(f"test result: {word}. {passed} passed; {failed} failed; {len(result.skipped)} ignored")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
