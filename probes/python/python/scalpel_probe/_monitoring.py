"""The mechanism of 3.12 and newer: ``sys.monitoring`` with native callbacks."""

import sys

from scalpel_probe._start import MODE_CALL, MODE_NATIVE

NAME = "sys.monitoring"
BLIND_SPOTS = (
    ("closing a generator that is suspended is told by 3.13 not at all: its end is inferred later",)
    if sys.version_info[:2] == (3, 13)
    else ()
)

TOOL_NAME = "scalpel"
# 3 and 4 have no name of their own; then the named ones, least used first.
TOOLS = (3, 4, 5, 2, 1, 0)


def refusal():
    """Return why the mechanism cannot be used now, or ``None``."""
    if all(sys.monitoring.get_tool(tool) for tool in TOOLS):
        return "all tools of sys.monitoring are taken"
    return None


def start(native):
    """Register the callbacks and switch the events on."""
    monitoring = sys.monitoring
    events = monitoring.events
    tool = next(tool for tool in TOOLS if not monitoring.get_tool(tool))
    monitoring.use_tool_id(tool, TOOL_NAME)
    native.set_disable(monitoring.DISABLE, monitoring.restart_events)
    modes = native.modes()
    wanted = {events.PY_START: native.py_start}
    if modes & MODE_CALL:
        wanted[events.PY_RESUME] = native.py_resume
        wanted[events.PY_THROW] = native.py_throw
        wanted[events.PY_RETURN] = native.py_return
        wanted[events.PY_YIELD] = native.py_yield
        wanted[events.PY_UNWIND] = native.py_unwind
        if modes & MODE_NATIVE:
            wanted[events.CALL] = native.call
            # These two come with CALL and cannot be asked for.
            monitoring.register_callback(tool, events.C_RETURN, native.c_return)
            monitoring.register_callback(tool, events.C_RAISE, native.c_raise)
    which = 0
    for event, callback in wanted.items():
        monitoring.register_callback(tool, event, callback)
        which |= event
    # Once: each change stops the world and counts towards a limit of the interpreter.
    monitoring.set_events(tool, which)
