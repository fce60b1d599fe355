"""Run a program with the probe: ``python -m scalpel_socket [-m MODULE | FILE] ARGS``."""

import os
import sys

USAGE = "usage: python -m scalpel_socket [-m MODULE | FILE] ARGS"


def main():
    """Start the probe, then run the rest of the command line as ``python`` would."""
    arguments = sys.argv[1:]
    if not arguments or arguments == ["-m"]:
        print(USAGE, file=sys.stderr)
        return 2
    import runpy

    from scalpel_socket import start

    refusal = start()
    if refusal:
        print("scalpel_socket: not recording: " + refusal, file=sys.stderr)
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.realpath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
