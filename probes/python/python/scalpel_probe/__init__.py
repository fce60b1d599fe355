"""scalpel's in-process probe: tells a recording which Python functions run.

``start()`` joins the recording that ``$SCALPEL_SOCKET`` names. It never raises and never prints;
without a recording the program runs on as if this package were not there.
"""

from scalpel_probe._start import start

__all__ = ["start"]
