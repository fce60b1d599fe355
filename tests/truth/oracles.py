"""Static edges against what other tools find: ``python3 tests/truth/oracles.py``.

Each project is fetched in a pinned version, and read by ``scalpel-ebpf genome build``
and by the tool of its language: Go's ``callgraph``, PyCG, js-callgraph. An edge is a pair of
functions by where they stand. Of the edges between functions that both sides know:

* *agreed*: ours that the tool has, too. What it has not is printed: neither is sound,
  so only the source decides (for Go ``cha`` has every call that types allow).
* *found*: the tool's that we have, too.

Needs the collector (``$SCALPEL_BIN``), go, npm, and a Python that PyCG runs on
(``$SCALPEL_PYCG_PYTHON``, 3.8 to 3.11). Arguments: the languages, all without any.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = ROOT / "target" / "oracles"
RECORDER = os.environ.get("SCALPEL_BIN", str(ROOT / "target/release/scalpel-ebpf"))
PYCG_PYTHON = os.environ.get("SCALPEL_PYCG_PYTHON", "python3.11")

CALLGRAPH = "golang.org/x/tools/cmd/callgraph@v0.52.0"
GO_MODULE = "github.com/spf13/cobra@v1.10.2"
PYCG = "pycg==0.0.7"
PYTHON_PACKAGE = ("httpie==3.2.4", "httpie")
JS_CALLGRAPH = "@persper/js-callgraph@1.3.2"
NPM_PACKAGES = [("express@4.21.2", "lib"), ("marked@0.8.2", "src")]

CALLS = """
SELECT fa.path AS caller_file, a.kind AS caller_kind, a.qualified AS caller,
  fb.path AS callee_file, b.kind AS callee_kind, b.qualified AS callee,
  a.start_line AS a_start, a.start_column AS a_column, a.name_line AS a_name,
  a.end_line AS a_end, a.end_column AS a_last,
  b.start_line AS b_start, b.start_column AS b_column, b.name_line AS b_name,
  b.end_line AS b_end, b.end_column AS b_last, e.how, e.line, e.column
FROM static_edges e
JOIN static_definitions a ON a.id = e.caller
JOIN static_files fa ON fa.id = a.file
JOIN static_definitions b ON b.id = e.callee
JOIN static_files fb ON fb.id = b.file
WHERE e.how NOT IN ('address-taken', 'vtable')
"""

DEFINITIONS = """
SELECT f.path AS file, d.kind, d.qualified, d.start_line, d.start_column, d.name_line,
  d.end_line, d.end_column
FROM static_definitions d JOIN static_files f ON f.id = d.file
"""


def run(*command, cwd=None, **environment):
    """Run a program to its end and give back what it printed."""
    ended = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if ended.returncode != 0:
        sys.exit(f"{command} ended with {ended.returncode}: {ended.stderr[-2000:]}")
    return ended.stdout


class Ours:
    """What ``genome build`` finds in a folder."""

    def __init__(self, folder, key):
        self.file = HOME / "static.genome"
        run(RECORDER, "genome", "build", "--src", folder, "-o", self.file)
        self.functions = {key(row): row for row in self.query(DEFINITIONS)}
        self.edges = {}
        for row in self.query(CALLS):
            ends = (key(end(row, "a", "caller")), key(end(row, "b", "callee")))
            self.edges.setdefault(ends, row)

    def query(self, sql):
        """Rows of a question in SQL."""
        return json.loads(run(RECORDER, "genome", "query", self.file, sql, "--json"))


def end(row, short, name):
    """One end of an edge, as a definition."""
    return {
        "file": row[f"{name}_file"],
        "kind": row[f"{name}_kind"],
        "qualified": row[name],
        "start_line": row[f"{short}_start"],
        "start_column": row[f"{short}_column"],
        "name_line": row[f"{short}_name"],
        "end_line": row[f"{short}_end"],
        "end_column": row[f"{short}_last"],
    }


def compare(what, ours, theirs, known, certain=None):
    """Say how far both sides agree on edges between functions that both know."""
    both = known & set(ours.functions)
    edges = {pair for pair in ours.edges if pair[0] in both and pair[1] in both}
    agreed = {pair for pair in edges if pair in theirs}
    for pair in sorted(edges - agreed):
        row = ours.edges[pair]
        print(f"  not theirs: {row['caller_file']}:{row['line']}", *pair, row["how"])
    wanted = {
        pair
        for pair in (theirs if certain is None else certain)
        if pair[0] in both and pair[1] in both
    }
    found = wanted & edges
    print(
        f"{what}: agreed {len(agreed)} of {len(edges)}, found {len(found)} of"
        f" {len(wanted)}; {len(both)} functions of {len(ours.functions)} here and"
        f" {len(known)} there"
    )
    if os.environ.get("SCALPEL_MISSED"):
        for pair in sorted(wanted - found):
            print("  not ours:", *pair)


def go():
    """Go: ``callgraph`` by class hierarchy, by types (vta), and of static calls."""
    tools = HOME / "go"
    run("go", "install", CALLGRAPH, GOBIN=str(tools))
    told = json.loads(run("go", "mod", "download", "-json", GO_MODULE))
    folder = HOME / "go-module"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(told["Dir"], folder, copy_function=shutil.copyfile)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    run("go", "mod", "download", cwd=folder)
    place = "{{.%s.Prog.Fset.Position .%s.Pos}}"
    line = f"{place % ('Caller', 'Caller')}\t{place % ('Callee', 'Callee')}"

    def graph(kind):
        tool = [tools / "callgraph", f"-algo={kind}", f"-format={line}", "./..."]
        pairs = set()
        for row in run(*tool, cwd=folder).splitlines():
            ends = [at.removeprefix(f"{folder}/").split(":") for at in row.split("\t")]
            if all(len(at) == 3 and not at[0].startswith("/") for at in ends):
                pairs.add(tuple((at[0], int(at[1])) for at in ends))
        return pairs

    def key(row):
        named = "start_line" if row["kind"] == "closure" else "name_line"
        return (row["file"], row[named])

    ours = Ours(folder, key)
    graphs = {kind: graph(kind) for kind in ("static", "cha", "vta")}
    known = {at for pair in graphs["cha"] for at in pair}
    for kind in ("static", "vta"):
        name = f"{GO_MODULE}, {CALLGRAPH.rpartition('/')[2]} cha and {kind}"
        compare(name, ours, graphs["cha"], known, graphs[kind])


def python():
    """Python: PyCG, whose names are dotted and which has no places."""
    tools = HOME / "python"
    run(PYCG_PYTHON, "-m", "venv", tools)
    run(tools / "bin/pip", "install", "-q", PYCG, "setuptools<80")
    package, name = PYTHON_PACKAGE
    place = HOME / "python-package"
    if not (place / name).exists():
        run(tools / "bin/pip", "install", "-q", "--target", place, "--no-deps", package)
    files = sorted((place / name).rglob("*.py"))
    out = HOME / "pycg.json"
    command = [tools / "bin/python", "-m", "pycg", "--package", name, *files, "-o", out]
    run(*command, cwd=place)
    graph = json.loads(out.read_text())
    theirs = {(caller, callee) for caller in graph for callee in graph[caller]}

    def key(row):
        module = f"{name}/{row['file']}".removesuffix(".py").replace("/", ".")
        module = module.removesuffix(".__init__")
        if row["kind"] == "module":
            return module
        return f"{module}.{row['qualified'].replace('.<locals>', '')}"

    compare(f"{package}, {PYCG}", Ours(place / name, key), theirs, set(graph))


def javascript():
    """JavaScript: js-callgraph, which joins all properties of one name."""
    tools = HOME / "javascript"
    tools.mkdir(parents=True, exist_ok=True)
    (tools / "package.json").write_text("{}")
    packages = [package for package, _ in NPM_PACKAGES]
    run("npm", "install", "--silent", "--no-audit", JS_CALLGRAPH, *packages, cwd=tools)
    for package, part in NPM_PACKAGES:
        folder = tools / "node_modules" / package.rpartition("@")[0] / part
        out = HOME / "js-callgraph.json"
        tool = [tools / "node_modules/.bin/js-callgraph", "--cg"]
        files = sorted(folder.rglob("*.js"))
        run(*tool, "--strategy", "DEMAND", "--output", out, *files, cwd=tools)
        theirs, sites = set(), set()
        for edge in json.loads(out.read_text()):
            source, target = edge["source"], edge["target"]
            at = source["file"].removeprefix(f"{folder}/")
            site = (at, source["start"]["row"], source["start"]["column"])
            sites.add(site)
            if target["file"].startswith(f"{folder}/"):
                last = target["end"]
                place = target["file"].removeprefix(f"{folder}/")
                theirs.add((site, (place, last["row"], last["column"])))

        def key(row):
            return (row["file"], row["end_line"], row["end_column"])

        ours = Ours(folder, key)
        edges = {
            (
                (row["caller_file"], row["line"], row["column"]),
                key(end(row, "b", "callee")),
            ): row
            for row in ours.query(CALLS)
        }
        judged = {pair for pair in edges if pair[0] in sites}
        for pair in sorted(judged - theirs):
            print("  not theirs:", *pair, edges[pair]["how"])
        print(
            f"{package}, {JS_CALLGRAPH}: agreed {len(judged & theirs)} of {len(judged)}"
            f" ({len(edges)} here), found {len(judged & theirs)} of {len(theirs)}"
        )


if __name__ == "__main__":
    HOME.mkdir(parents=True, exist_ok=True)
    for language in sys.argv[1:] or ["go", "python", "javascript"]:
        {"go": go, "python": python, "javascript": javascript}[language]()
