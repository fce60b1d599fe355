"""Starts the probe in a Python program that runs already: ``python attach.py PID SOCKET``.

Run it with the executable of that program, as its user and in its mount namespace. Needs 3.14,
whose ``sys.remote_exec`` lets an interpreter run a script at its next safe point; older ones have
no safe way in. Exit code 0: asked for (HELLO follows); 1: the reason is on stderr.
"""

import os
import sys
import tempfile

SCRIPT = """\
import os, sys
try:
    os.unlink({script!r})
except OSError:
    pass
def start():
    before = os.environ.get("SCALPEL_SOCKET")
    os.environ["SCALPEL_SOCKET"] = {socket!r}
    sys.path.insert(0, {folder!r})
    try:
        import scalpel_probe
        scalpel_probe.start(({here!r},))
    finally:
        sys.path.remove({folder!r})
        if before is None:
            del os.environ["SCALPEL_SOCKET"]
        else:
            os.environ["SCALPEL_SOCKET"] = before
try:
    start()
except Exception:
    pass
"""


def attach(pid, socket):
    """Ask the process to start the probe. Return ``None``, or why that is not possible."""
    if sys.version_info < (3, 14):
        return "Python %d.%d cannot be entered while it runs; 3.14 can" % sys.version_info[:2]
    here = os.path.dirname(os.path.abspath(__file__))
    folder = os.path.join(os.path.dirname(here), "cp%d%d" % sys.version_info[:2])
    if not os.path.isdir(folder):
        return "there is no probe for this version: " + folder
    descriptor, script = tempfile.mkstemp(prefix="scalpel-", suffix=".py")
    text = SCRIPT.format(script=script, socket=socket, folder=folder, here=here)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    try:
        sys.remote_exec(pid, script)
    except (OSError, RuntimeError, ValueError) as error:
        os.unlink(script)
        return "%s: %s" % (type(error).__name__, error)
    return None


def main():
    """Read the command line, and tell a refusal."""
    if len(sys.argv) != 3 or not sys.argv[1].isdigit():
        print("usage: python attach.py PID SOCKET", file=sys.stderr)
        return 2
    refusal = attach(int(sys.argv[1]), sys.argv[2])
    if refusal:
        print("scalpel: not attached: " + refusal, file=sys.stderr)
    return 1 if refusal else 0


if __name__ == "__main__":
    sys.exit(main())
