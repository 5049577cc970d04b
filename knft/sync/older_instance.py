"""OlderInstance: leaves a table to an older version of knft that changes it again and again and still runs.

An older version does not know the instance lock, so this one cannot notice it at start. Each of the two would replace
the other's rules without end. The older one cannot give way, so this one does, which holds the lock: it waits until the
other process has ended. See docs/operations/failure-modes.md#older-version.
"""

import threading
from collections.abc import Callable

from knft.kernel.notifications import ForeignChange
from knft.kernel.process_names import is_knft
from knft.render.layout import RULES_MARKER


class OlderInstance:
    """The older version that one family's table is left to, if there is one; safe to use from any thread."""

    def __init__(self, own_marker: str, is_port_open: Callable[[int], bool]) -> None:
        """Start without one.

        ``own_marker`` is the name of the chain that marks this process's rules. ``is_port_open`` tells whether a
        netlink socket with a port id exists: the one that made a change closes when its process ends.
        """
        self._own_marker = own_marker
        self._is_port_open = is_port_open
        self._lock = threading.Lock()
        self._port_id: int | None = None
        """The port id of the socket that made the older version's last change; None while there is none."""
        self._was_found = False
        """Whether there was one since the start. The next change of such a process is then enough."""

    def has_table(self) -> bool:
        """Return whether the table is left to an older version."""
        return self._port_id is not None

    def record(self, change: ForeignChange, *, is_repeated: bool) -> bool:
        """Record a change of the table; return whether the table is left to its process from now on.

        It is if the process is knft, changes the table again and again (``is_repeated``), and still runs.
        """
        if not self._is_from_knft(change):
            return False
        with self._lock:
            is_new = self._port_id is None
            if not (is_repeated or self._was_found) or not self._is_port_open(change.port_id):
                return False
            self._port_id, self._was_found = change.port_id, True
            return is_new

    def _is_from_knft(self, change: ForeignChange) -> bool:
        """Return whether the process is named as knft, or wrote the marker chain of other rules than this process's.

        An older version that runs in a container may have the name of its interpreter.
        """
        markers = {name for name in change.chains if name.startswith(RULES_MARKER)}
        return is_knft(change.process) or bool(markers - {self._own_marker})

    def take_end(self) -> bool:
        """Return True once after the process has ended: the table is this process's again."""
        with self._lock:
            if self._port_id is None or self._is_port_open(self._port_id):
                return False
            self._port_id = None
            return True
