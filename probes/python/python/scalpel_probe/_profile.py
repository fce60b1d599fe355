"""The mechanism below 3.12: ``PyEval_SetProfile``, a thread at a time."""

import sys

from scalpel_probe._start import NOTE_NOTE, NOTE_UNSEEN, UNSEEN_UNWATCHED

NAME = "PyEval_SetProfile"
BLIND_SPOTS = (
    "threads that native code brings along, and those that ran before the probe",
    "a thread in which the program uses sys.setprofile or cProfile, while it does",
)


def refusal():
    """Return why the mechanism cannot be used now, or ``None``."""
    if sys.getprofile() is not None:
        return "the profile hook is taken: sys.setprofile, cProfile or another profiler is at work"
    return None


def start(native):
    """Take the hook in this thread and in those that the program starts from now on."""
    if not native.watch_profile():
        native.note(
            NOTE_NOTE, 0, "an audit hook forbids to watch for others taking the profile hook"
        )
    if not native.follow_threads():
        native.note(NOTE_UNSEEN, UNSEEN_UNWATCHED, "")
    native.set_profile()
