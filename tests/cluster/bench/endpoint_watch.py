"""EndpointWatch: finds the time at which the addresses of new endpoints are in the node's rules."""

import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Self

from tests.cluster.bench.address_search import AddressSearch
from tests.support.lab.namespace import Namespace


class EndpointWatch(ABC):
    """A context manager, which looks in a thread of its own until all endpoints were added."""

    def __init__(self, namespace: Namespace, numbers: Iterable[int]) -> None:
        """Take the numbers of endpoints that are not in the rules yet."""
        self._namespace = namespace
        self._search = AddressSearch(numbers)
        self._time = 0.0
        self._is_closed = False

    def __enter__(self) -> Self:
        """Start to watch; call this before the change."""
        with self._namespace.entered():
            self._socket = self._open()
        self._thread = threading.Thread(target=self._look, name="endpoint-watch")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop looking."""
        self._is_closed = True
        self._thread.join()
        self._socket.close()

    def wait(self, seconds: float) -> float:
        """Return the ``time.monotonic()`` of the change that added the last endpoint; raise TimeoutError."""
        self._thread.join(seconds)
        if self._search.missing:
            msg = f"{self._search.missing} endpoints are not in the rules after {seconds:g} s"
            raise TimeoutError(msg)
        return self._time

    def _is_looking(self) -> bool:
        return bool(self._search.missing) and not self._is_closed

    def _found(self, text: bytes, moment: float) -> None:
        """Search a part of the rules that was there at ``moment``."""
        self._search.search(text)
        self._time = moment

    @abstractmethod
    def _open(self) -> socket.socket:
        """Return the socket that tells of changes, opened in the namespace."""

    @abstractmethod
    def _look(self) -> None:
        """Pass what is added to ``_found``, while ``_is_looking()``."""
