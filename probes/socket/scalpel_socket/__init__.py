"""Records Python functions for ``scalpel-ebpf record`` over the socket: no native code, no shared memory.

``start()`` joins the recording that ``$SCALPEL_SOCKET`` names, ``stop()`` leaves it.
"""

from scalpel_socket._start import start, stop

__all__ = ["start", "stop"]
