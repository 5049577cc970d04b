"""CommitWatch: finds the time at which the addresses of new endpoints are in the node's rules.

The kernel notifies listeners of each commit, with everything that it adds. So do commits of ``iptables`` with the
nf_tables backend.
"""

import threading
import time
from collections.abc import Iterable
from typing import Self

from tests.cluster.bench.address_search import AddressSearch
from tests.cluster.churn.commit_listener import open_notifications
from tests.support.lab.namespace import Namespace

_LARGEST_MESSAGE = 1 << 20


class CommitWatch:
    """A context manager, which listens in a thread of its own until all endpoints were added."""

    def __init__(self, namespace: Namespace, numbers: Iterable[int]) -> None:
        """Take the numbers of endpoints that are not in the rules yet."""
        self._namespace = namespace
        self._search = AddressSearch(numbers)
        self._time = 0.0
        self._is_closed = False

    def __enter__(self) -> Self:
        """Listen before anything is changed."""
        with self._namespace.entered():
            self._socket = open_notifications()
        self._thread = threading.Thread(target=self._listen, name="commit-watch")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening."""
        self._is_closed = True
        self._thread.join()
        self._socket.close()

    def wait(self, seconds: float) -> float:
        """Return the ``time.monotonic()`` of the commit that added the last endpoint; raise TimeoutError."""
        self._thread.join(seconds)
        if self._search.missing:
            msg = f"{self._search.missing} endpoints are not in the rules after {seconds:g} s"
            raise TimeoutError(msg)
        return self._time

    def _listen(self) -> None:
        while self._search.missing and not self._is_closed:
            try:
                message = self._socket.recv(_LARGEST_MESSAGE)
            except TimeoutError:
                continue
            now = time.monotonic()
            self._search.search(message)
            self._time = now
