"""An HTTP server at one bind address, for the lifetime of the process."""

import logging
from collections.abc import Callable

from knft.serve.connection import Handler
from knft.serve.http_thread import HttpThread, Listener
from knft.serve.sockets import listen_at, split_address

log = logging.getLogger("knft")

RETRY_SECONDS = 5.0


class HttpServer:
    """Listens at one address; if the address is unavailable, retries every ``RETRY_SECONDS`` or gives up."""

    def __init__(
        self,
        thread: HttpThread,
        name: str,
        address: str,
        handler: Handler,
        *,
        on_failure: Callable[[str], None],
        retries: bool,
    ) -> None:
        """Prepare the server ``name`` at ``address`` (``IP:port``); raise UsageError for an invalid address.

        ``on_failure`` gets the error message, once for each different message.
        """
        self._thread = thread
        self._name = name
        self._host, self._port = split_address(address)
        self._address = address
        self._handler = handler
        self._on_failure = on_failure
        self._retries = retries
        self._listener: Listener | None = None
        self._reported_error = ""

    def start(self) -> None:
        """Start to listen; call this only in the HTTP thread."""
        try:
            listening_socket = listen_at(self._host, self._port)
        except OSError as error:
            self._report_failure(f"the {self._name} server cannot listen on {self._address}: {error.strerror}")
            return
        self._listener = self._thread.listen(listening_socket, self._handler, f"{self._name} server")
        log.info("the %s server listens on %s", self._name, self._address)

    def _report_failure(self, message: str) -> None:
        if message != self._reported_error:
            log.error("%s%s", message, f"; retrying every {RETRY_SECONDS:g} s" if self._retries else "")
            self._reported_error = message
            self._on_failure(message)
        if self._retries:
            self._thread.call_later(RETRY_SECONDS, self.start)
