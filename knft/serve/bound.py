"""BoundServer: one address that is to be served for as long as the process lives."""

import logging
from collections.abc import Callable

from knft.serve.connection import Answer, Room
from knft.serve.sockets import listen_at, split_address
from knft.serve.thread import HttpThread, Listener

log = logging.getLogger("knft")

RETRY_SECONDS = 5.0
MOST_CONNECTIONS = 128


class BoundServer:
    """Listens at an address, or tries again every few seconds; or tries once, where that is what is wanted."""

    def __init__(
        self,
        thread: HttpThread,
        what: str,
        address: str,
        answer: Answer,
        *,
        on_failure: Callable[[str], None],
        retries: bool,
    ) -> None:
        """Serve ``what`` at ``address`` (``IP:port``); raise UsageError where it is no address.

        ``on_failure`` is told the sentence that the log has, when a failure begins or is another one.
        """
        self._thread = thread
        self._what = what
        self._host, self._port = split_address(address)
        self._address = address
        self._answer = answer
        self._on_failure = on_failure
        self._retries = retries
        self._room = Room(MOST_CONNECTIONS)
        self._listener: Listener | None = None
        self._said = ""

    def start(self) -> None:
        """Begin to serve; only from within the thread."""
        try:
            listening = listen_at(self._host, self._port)
        except OSError as error:
            self._fail(f"{self._what} cannot be served at {self._address}: {error.strerror}")
            return
        self._listener = self._thread.listen(listening, self._room, self._answer)
        log.info("%s served at %s", self._what, self._address)

    def _fail(self, sentence: str) -> None:
        log.error("%s%s", sentence, f"; tried again in {RETRY_SECONDS:g} s" if self._retries else "")
        if sentence != self._said:
            self._said = sentence
            self._on_failure(sentence)
        if self._retries:
            self._thread.later(RETRY_SECONDS, self.start)
