"""The mechanism below 3.12: ``PyEval_SetProfile``, a thread at a time."""

import sys

from scalpel_probe._start import NOTE_NOTE

NAME = "PyEval_SetProfile"
BLIND_SPOTS = (
    "threads that the program starts without `threading`, and those that ran before the probe",
    "a thread in which the program uses sys.setprofile or cProfile, while it does",
)


def refusal():
    """Return why the mechanism cannot be used now, or ``None``."""
    if sys.getprofile() is not None:
        return "the profile hook is taken: sys.setprofile, cProfile or another profiler is at work"
    return None


def start(native):
    """Take the hook in this thread and in those that ``threading`` starts from now on."""
    if not native.watch_profile():
        native.note(
            NOTE_NOTE, 0, "an audit hook forbids to watch for others taking the profile hook"
        )
    _follow_threads(native)
    native.set_profile()


def _follow_threads(native):
    threading = sys.modules.get("threading")
    if threading is not None:
        _follow(threading, native)
        return
    # Importing it here would show in the program: wait until the program does.
    sys.meta_path.insert(0, _Threading(native))


def _follow(threading, native):
    if threading._profile_hook is None:
        threading.setprofile(native.set_profile)


class _Threading:
    """Waits for the import of ``threading``, then leaves."""

    def __init__(self, native):
        self.native = native

    def find_spec(self, name, path=None, target=None):
        """Never find anything; wrap the loader of ``threading`` on the way."""
        if name != "threading":
            return None
        sys.meta_path.remove(self)
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            _follow(module, self.native)

        spec.loader.exec_module = exec_module
        return spec
