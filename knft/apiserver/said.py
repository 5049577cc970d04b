"""Words for what goes wrong between knft and the API server: always one line, never long, never a secret."""

import socket
import ssl
from collections.abc import Iterator

import urllib3
from urllib3 import exceptions

LONGEST = 300
"""How many characters of what the server says are shown."""


def in_one_line(text: str, longest: int = LONGEST) -> str:
    """Return somebody else's words as a message may show them."""
    line = " ".join(text.split())
    line = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)
    return line if len(line) <= longest else f"{line[:longest]}..."


def because(error: Exception) -> str:
    """Return why a request came to nothing."""
    causes = list(_causes(error))
    for cause in causes:
        words = _words(cause)
        if words:
            return words
    if any(isinstance(cause, exceptions.ConnectTimeoutError) for cause in causes):
        return "it does not take a connection in time"
    if any(isinstance(cause, TimeoutError | exceptions.TimeoutError) for cause in causes):
        return "it does not answer in time"
    return in_one_line(str(causes[-1]) or type(causes[-1]).__name__)


def _words(cause: BaseException) -> str:
    """Return words for an error that needs some of its own, "" for any other."""
    match cause:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted: {in_one_line(cause.verify_message)}; is the CA the right one?"
        case socket.gaierror():
            return f"its name cannot be resolved: {in_one_line(cause.strerror or str(cause))}"
        case ConnectionAbortedError():
            return "knft is ending"
        case ssl.SSLError():
            return f"TLS fails: {in_one_line(cause.reason or str(cause))}"
        case OSError() if cause.strerror and not isinstance(cause, TimeoutError):
            return in_one_line(cause.strerror).lower()
        case _:
            return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it came from, urllib3's own ways of wrapping included."""
    seen: set[int] = set()
    waiting: list[BaseException] = [error]
    while waiting:
        item = waiting.pop(0)
        if id(item) in seen:
            continue
        seen.add(id(item))
        yield item
        inner = [item.__cause__, item.__context__, getattr(item, "reason", None)]
        if isinstance(item, urllib3.exceptions.HTTPError):
            inner += item.args
        waiting += [cause for cause in inner if isinstance(cause, BaseException)]
