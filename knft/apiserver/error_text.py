"""Texts for errors between knft and the API server: one line, of limited length, without secrets."""

import re
import socket
import ssl
from collections.abc import Iterable, Iterator

import urllib3
from urllib3 import exceptions

from knft.redaction import hide_secrets

MAX_CHARACTERS = 300
"""How much of a text of the server is shown."""
_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]?|[\]PX^_][^\x07\x1b]*+(?:\x07|\x1b\\)?|[ -/]*+.?)")
"""A terminal's: CSI such as colours, OSC such as the window's title, and others."""


def one_line(text: str, max_characters: int = MAX_CHARACTERS) -> str:
    """Return an untrusted text as a message may show it: in one line, printable, and cut after ``max_characters``."""
    line = " ".join(text.split())
    line = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)
    return line if len(line) <= max_characters else f"{line[:max_characters]}..."


def program_output(text: str, secrets: Iterable[str] = ()) -> str:
    """Return what a program printed as a message may show it: as ``one_line``, and without credentials.

    ``secrets`` are texts that the program knows and that must not be shown.
    """
    line = one_line(_ESCAPE_SEQUENCE.sub("", text), len(text))
    return one_line(hide_secrets(line, secrets))


def describe_error(error: Exception) -> str:
    """Return why a request failed."""
    causes = list(_causes(error))
    for cause in causes:
        text = _specific_text(cause)
        if text:
            return text
    if any(isinstance(cause, exceptions.ConnectTimeoutError) for cause in causes):
        return "connection timed out"
    if any(isinstance(cause, TimeoutError | exceptions.TimeoutError) for cause in causes):
        return "the server did not answer in time"
    return one_line(str(causes[-1]) or type(causes[-1]).__name__)


def _specific_text(cause: BaseException) -> str:
    """Return a text for an error whose own text does not help, "" for any other."""
    match cause:
        case ssl.SSLCertVerificationError():
            return f"the server's certificate is not trusted: {one_line(cause.verify_message)}; check the CA"
        case socket.gaierror():
            return f"cannot resolve the host name: {one_line(cause.strerror or str(cause))}"
        case ConnectionAbortedError():
            return "knft is shutting down"
        case ssl.SSLError():
            return f"TLS error: {one_line(cause.reason or str(cause))}"
        case OSError() if cause.strerror and not isinstance(cause, TimeoutError):
            return one_line(cause.strerror).lower()
        case _:
            return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes; urllib3 also puts them into ``reason`` and ``args``."""
    seen: set[int] = set()
    pending: list[BaseException] = [error]
    while pending:
        item = pending.pop(0)
        if id(item) in seen:
            continue
        seen.add(id(item))
        yield item
        inner = [item.__cause__, item.__context__, getattr(item, "reason", None)]
        if isinstance(item, urllib3.exceptions.HTTPError):
            inner += item.args
        pending += [cause for cause in inner if isinstance(cause, BaseException)]
