"""Scopes of one body of real code; tells as JSON what is left, and what they gave.

A process of its own: what all scopes of one process may take is limited.
"""

import concurrent.futures
import json
import re
import sys

from conftest import held, leaked
from scalpel_scope import HwTrace

SCOPED = """
with HwTrace.scope(emit=None) as t:
    result = body()
"""

#: Call sites that take turns, each with its own budget.
SITES = 10
PATTERN = re.compile(r"(\w+)@(\w+)\.org")


def numpy_sort():
    import numpy

    values = numpy.array([3, 1, 2])
    return lambda: int(numpy.sort(values)[0])


def pool():
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        return list(executor.map(abs, range(-5, 0)))


#: The body, and how often in a round: what starts threads takes long.
BODIES = {
    "json": (lambda: json.loads("[1, {}]"), 25),
    "re": (lambda: PATTERN.search("to a@b.org").groups(), 25),
    "sorted": (lambda: sorted([3, 1, 2]), 25),
    "numpy": (None, 25),
    "pool": (pool, 2),
}


def main(name: str) -> None:
    body, times = BODIES[name]
    body = body or numpy_sort()
    expect = body()
    codes = [compile(SCOPED, f"<{name} {site}>", "exec") for site in range(SITES)]
    turn, complete, reasons = 0, 0, set()

    def once() -> None:
        nonlocal turn, complete
        names = {"HwTrace": HwTrace, "body": body}
        exec(codes[turn % SITES], names)
        turn += 1
        assert names["result"] == expect, name
        t = names["t"]
        assert t.skip_reason is None, t.skip_reason
        assert t.instructions > 0
        complete += t.complete
        reasons.update(t.reasons)

    for _ in range(SITES):
        once()
    told = {"leaked": leaked(held(once, times)), "complete": complete, "of": turn}
    print(json.dumps({**told, "reasons": sorted(reasons)}))


if __name__ == "__main__":
    main(sys.argv[1])
