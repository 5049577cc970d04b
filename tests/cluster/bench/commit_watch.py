"""CommitWatch: finds the time at which the addresses of new endpoints are in the node's rules.

The kernel notifies listeners of each commit, with everything that it adds. So do commits of ``iptables`` with the
nf_tables backend.
"""

import socket
import time

from tests.cluster.bench.endpoint_watch import EndpointWatch
from tests.cluster.churn.commit_listener import open_notifications

_LARGEST_MESSAGE = 1 << 20


class CommitWatch(EndpointWatch):
    """Listens to the notifications of commits."""

    def _open(self) -> socket.socket:
        return open_notifications()

    def _look(self) -> None:
        while self._is_looking():
            try:
                message = self._socket.recv(_LARGEST_MESSAGE)
            except TimeoutError:
                continue
            self._found(message, time.monotonic())
