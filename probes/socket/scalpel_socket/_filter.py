"""Which code is watched, asked once a code object: the patterns of ``--py-include`` and ``--py-exclude``."""

import fnmatch
import os
import sys
import sysconfig

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Filter:
    """Without ``include`` everything but Python's own library is watched."""

    def __init__(self, include="", exclude=""):
        self._include, self._exclude = _patterns(include), _patterns(exclude)
        folders = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
        self._standard = tuple(folder.rstrip("/") + "/" for folder in folders if folder)

    def watches(self, module, file):
        """Tell whether code of this module and file is watched."""
        if file.startswith(_OWN):
            return False
        origin = self._origin(file)
        if self._include:
            wanted = any(_matches(pattern, origin, module, file) for pattern in self._include)
        else:
            wanted = origin != "stdlib"
        return wanted and not any(_matches(p, origin, module, file) for p in self._exclude)

    def left_out(self, file):
        """Return what to tell of a file that is not watched: its path, unless it is told with its folder."""
        if file.startswith((_OWN, "<")) or self._origin(file) == "stdlib":
            return None
        return os.path.abspath(file)

    def standard(self):
        """Return the folders of Python's own library, if it is not watched."""
        folders = [folder for folder in self._standard if not self.watches("", folder + "x.py")]
        return sorted(set(folders))

    def loaded(self):
        """Return the files that were loaded already."""
        told = tuple(self.standard()) + (_OWN,)
        files = (getattr(module, "__dict__", {}).get("__file__") for module in list(sys.modules.values()))
        paths = {os.path.abspath(file) for file in files if type(file) is str and file.endswith(".py")}
        return sorted(path for path in paths if not path.startswith(told) or "/site-packages/" in path)

    def _origin(self, file):
        if "/site-packages/" in file or "/dist-packages/" in file:
            return "site"
        if file.startswith(("<frozen ", *self._standard)):
            return "stdlib"
        return "app"


def _patterns(text):
    return [part.strip() for part in text.split(",") if part.strip()]


def _matches(pattern, origin, module, file):
    if pattern in ("stdlib", "site", "app"):
        return origin == pattern
    if "/" in pattern:
        return fnmatch.fnmatchcase(file, pattern)
    parts = module.split(".")
    above = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return pattern == "all" or any(fnmatch.fnmatchcase(name, pattern) for name in above)
