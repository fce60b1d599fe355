"""Starts scalpel's probe when an interpreter starts, then runs the program's own ``sitecustomize``.

``record -- CMD`` puts this folder first on ``PYTHONPATH``. It must run on any Python, be silent,
and leave no trace but the probe: not on ``sys.path``, not in ``sys.modules``.
"""

import sys


def _start():
    import os

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or os.curdir) != here]
    if sys.version_info < (3, 8) or sys.implementation.name != "cpython":
        return
    if "t" in getattr(sys, "abiflags", ""):
        return
    version = "cp%d%d" % sys.version_info[:2]
    folder = os.path.join(os.path.dirname(here), version)
    if not os.path.isdir(folder) or "scalpel_probe" in sys.modules:
        return
    sys.path.insert(0, folder)
    try:
        import scalpel_probe
    finally:
        sys.path.remove(folder)
    scalpel_probe.start((here,))


try:
    _start()
except Exception:  # a probe's fault is never the program's
    pass
finally:
    del _start
    sys.modules.pop("sitecustomize", None)

# What is found now is the program's. If there is none, `site` takes the error for that.
import sitecustomize  # noqa: E402, F401
