"""Reads exports with the libraries of those who consume them, and compares with the report: what differs is printed.

    check.py WHAT FILE [REPORT] [SCHEMA | SPEEDSCOPE CHROMIUM]
"""

import functools
import http.server
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter

# The elements of Cobertura's reports, as its readers know them.
COBERTURA = """
<!ELEMENT coverage (sources?, packages)>
<!ATTLIST coverage line-rate CDATA #REQUIRED branch-rate CDATA #REQUIRED lines-covered CDATA #REQUIRED
  lines-valid CDATA #REQUIRED branches-covered CDATA #REQUIRED branches-valid CDATA #REQUIRED
  complexity CDATA #REQUIRED version CDATA #REQUIRED timestamp CDATA #REQUIRED>
<!ELEMENT sources (source*)>
<!ELEMENT source (#PCDATA)>
<!ELEMENT packages (package*)>
<!ELEMENT package (classes)>
<!ATTLIST package name CDATA #REQUIRED line-rate CDATA #REQUIRED branch-rate CDATA #REQUIRED complexity CDATA #REQUIRED>
<!ELEMENT classes (class*)>
<!ELEMENT class (methods, lines)>
<!ATTLIST class name CDATA #REQUIRED filename CDATA #REQUIRED line-rate CDATA #REQUIRED branch-rate CDATA #REQUIRED
  complexity CDATA #REQUIRED>
<!ELEMENT methods (method*)>
<!ELEMENT method (lines)>
<!ATTLIST method name CDATA #REQUIRED signature CDATA #REQUIRED line-rate CDATA #REQUIRED branch-rate CDATA #REQUIRED
  complexity CDATA #REQUIRED>
<!ELEMENT lines (line*)>
<!ELEMENT line EMPTY>
<!ATTLIST line number CDATA #REQUIRED hits CDATA #REQUIRED branch CDATA "false" condition-coverage CDATA "100%">
"""


def calls(report):
    """Calls by name, as the report has them."""
    counts = Counter()
    for function in json.loads(pathlib.Path(report).read_text())["functions"]:
        counts[function["name"]] += function["calls"] or 0
    return +counts


def same(found, expected):
    assert found == expected, f"found {found}, the report has {expected}"


class Nesting:
    """Every beginning has its end, inside what is open; times never go back on a track."""

    def __init__(self):
        self.tracks = {}
        self.times = {}

    def at(self, track, time):
        assert time >= self.times.get(track, 0), f"time goes back on {track}"
        self.times[track] = time

    def begin(self, track, time, name):
        self.at(track, time)
        self.tracks.setdefault(track, []).append(name)

    def end(self, track, time, name=None):
        self.at(track, time)
        assert self.tracks.get(track), f"an end without a beginning on {track}"
        innermost = self.tracks[track].pop()
        assert name in (None, innermost), f"{name} ends inside {innermost}"

    def finish(self):
        left = {track: names for track, names in self.tracks.items() if names}
        assert not left, f"without an end: {left}"


def chrome(file, report):
    """Chrome's JSON trace."""
    nesting, counts = Nesting(), Counter()
    for event in json.loads(pathlib.Path(file).read_text())["traceEvents"]:
        track, arguments = (event["pid"], event["tid"]), event.get("args", {})
        if event["ph"] == "B":
            nesting.begin(track, event["ts"], event["name"])
            if arguments.get("start") != "resumed":
                counts[event["name"]] += arguments.get("calls", 1)
        elif event["ph"] == "E":
            nesting.end(track, event["ts"], event["name"])
        elif event["ph"] == "i":
            nesting.at(track, event["ts"])
            if event["name"] != "[lost]":
                counts[event["name"]] += arguments.get("calls", 1)
        else:
            same(event["ph"], "M")
    nesting.finish()
    same(counts, calls(report))


def perfetto(file, report):
    """Perfetto's trace, decoded with Perfetto's own messages."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

    trace = Trace()
    trace.ParseFromString(pathlib.Path(file).read_bytes())
    nesting, counts, names, tracks = Nesting(), Counter(), {}, set()
    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id == 1
        tracks.add(packet.track_descriptor.uuid)
        names |= {name.iid: name.name for name in packet.interned_data.event_names}
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        assert event.track_uuid in tracks, "an event on a track that nobody described"
        notes = {note.name: note for note in event.debug_annotations}
        if event.type == TrackEvent.TYPE_SLICE_END:
            nesting.end(event.track_uuid, packet.timestamp)
            continue
        name = names[event.name_iid]
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            nesting.begin(event.track_uuid, packet.timestamp, name)
        if name != "[lost]" and not ("start" in notes and notes["start"].string_value == "resumed"):
            counts[name] += notes["calls"].uint_value if "calls" in notes else 1
    nesting.finish()
    same(counts, calls(report))
    clock = trace.packet[0].clock_snapshot
    same(clock.primary_trace_clock, trace.packet[0].trace_packet_defaults.timestamp_clock_id)


def speedscope(file, schema):
    """speedscope's own schema, and what it demands beyond it."""
    import jsonschema

    document = json.loads(pathlib.Path(file).read_text())
    jsonschema.validate(document, json.loads(pathlib.Path(schema).read_text()))
    frames = document["shared"]["frames"]
    for profile in document["profiles"]:
        if profile["type"] == "sampled":
            same(len(profile["samples"]), len(profile["weights"]))
            assert all(number < len(frames) for sample in profile["samples"] for number in sample)
            continue
        nesting = Nesting()
        for event in profile["events"]:
            step = nesting.begin if event["type"] == "O" else nesting.end
            step(profile["name"], event["at"], event["frame"])
        nesting.finish()


def browser(file, application, chromium):
    """speedscope itself, offline: it shows the profile, and says of a broken one that it cannot."""
    document = json.loads(pathlib.Path(file).read_text())
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "app").symlink_to(application)
        (folder / "good.json").write_text(json.dumps(document))
        for profile in document["profiles"]:
            if profile["type"] == "evented":
                profile["events"].pop()
            else:
                profile["weights"].pop()
        (folder / "bad.json").write_text(json.dumps(document))
        handler = functools.partial(Silent, directory=folder)
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            shown = {name: dom(chromium, server.server_port, name, folder) for name in ("good", "bad")}
            server.shutdown()
    first = document["profiles"][document["activeProfileIndex"]]["name"].split(" ")[0]
    assert first in shown["good"], f"speedscope does not show {first}: {shown['good'][-2000:]}"
    assert "Something went wrong" not in shown["good"], "speedscope cannot open it"
    assert "Something went wrong" in shown["bad"], f"a broken file is shown: {shown['bad'][-2000:]}"


class Silent(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, *_):
        pass


def dom(chromium, port, name, folder):
    """The page, once speedscope has done what it does."""
    address = f"http://127.0.0.1:{port}/app/index.html#profileURL=http://127.0.0.1:{port}/{name}.json"
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/{name}"]
    command += ["--virtual-time-budget=20000", "--dump-dom", address]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout


def adds_up(contexts):
    """Self and children are total, on every node of the tree."""
    for times in ("wall", "cpu"):
        sums = {context["id"]: context[f"self_{times}_ns"] or 0 for context in contexts}
        for context in contexts:
            if context["id"] != 0:
                sums[context["parent"]] += context[f"total_{times}_ns"] or 0
        for context in contexts:
            if context["id"] != 0:
                same(context[f"total_{times}_ns"] or 0, sums[context["id"]])


def ndjson(file, report, schema):
    """Each line by the published schema; sums by DuckDB; self and children are total."""
    import duckdb
    import jsonschema

    validator = jsonschema.Draft202012Validator(json.loads(pathlib.Path(schema).read_text()))
    records = [json.loads(line) for line in pathlib.Path(file).read_text().splitlines()]
    for record in records:
        validator.validate(record)
    adds_up([record for record in records if record["record"] == "context"])
    rows = duckdb.sql(
        f"SELECT record, sum(calls) FROM read_json('{file}', format='newline_delimited', union_by_name=true) "
        "WHERE record IN ('function', 'context') GROUP BY record"
    ).fetchall()
    total = sum(calls(report).values())
    same({record: int(count) for record, count in rows}, {"function": total, "context": total})


def report_json(file, schema):
    """A report, or what `genome show` tells, by its published schema."""
    import jsonschema

    schema = json.loads(pathlib.Path(schema).read_text())
    jsonschema.Draft202012Validator(schema).validate(json.loads(pathlib.Path(file).read_text()))


def csv(file, report):
    """Calls by name, summed by DuckDB."""
    import duckdb

    rows = duckdb.sql(f"SELECT name, sum(calls) FROM read_csv('{file}') GROUP BY name").fetchall()
    same(+Counter({name: int(count or 0) for name, count in rows}), calls(report))


def cobertura(file, report):
    """The elements and their order; rates as its readers compute them; calls a method."""
    import io

    from lxml import etree
    from pycobertura import Cobertura

    document = etree.parse(file)
    elements = etree.DTD(io.StringIO(COBERTURA))
    assert elements.validate(document), elements.error_log
    read = Cobertura(file)
    stated = float(document.getroot().get("line-rate"))
    assert abs(read.line_rate() - stated) < 1e-3, f"{read.line_rate()} and {stated}"
    counts = Counter()
    for method in document.iter("method"):
        name = re.sub(r"(:[0-9]+){1,2}$", "", method.get("name"))
        counts[name] += int(method.find("lines/line").get("hits"))
    same(+counts, calls(report))


def main():
    what, *rest = sys.argv[1:]
    {
        "chrome": chrome,
        "perfetto": perfetto,
        "speedscope": speedscope,
        "browser": browser,
        "ndjson": ndjson,
        "report": report_json,
        "overlay": report_json,
        "csv": csv,
        "cobertura": cobertura,
    }[what](*rest)


if __name__ == "__main__":
    main()
