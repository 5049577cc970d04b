"""Watches the configuration file: the process exits when its content changes, to be restarted by the supervisor.

kube-proxy exits at every write to the file; knft compares the content, so writing the same content has no effect.
See docs/behaviour/configuration.md#run.
"""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

from knft.configuration.file_content import read_configuration
from knft.errors import ConfigurationChangedError, ConfigurationError
from knft.source.files import Signature, file_signature, format_path

CHECK_SECONDS = 1.0
"""The time between two looks at the file. A look costs one system call; inotify through watchfiles would cost 18 ms of
CPU time at each start, and wake up fifty times a second."""
SETTLE_SECONDS = 0.2
"""How long new content must last: a program that writes a file empties it first."""


log = logging.getLogger("knft")


def wait_for_change(path: str, known_content: bytes, stop: threading.Event) -> None:
    """Return when ``stop`` is set; raise ConfigurationChangedError when the file's content changes.

    ``known_content`` is the content that the process has loaded. A missing or unreadable file is not a change; it is
    logged once, and again when the file is readable.
    """
    seen_signature: Signature | None = None
    is_unreadable = False
    for _ in _checks(stop):
        now = file_signature(Path(path))
        if now is not None and now == seen_signature and not is_unreadable:
            continue
        found = _read(path)
        if is_unreadable and isinstance(found, bytes):
            log.info("%s: readable again", format_path(path))
            is_unreadable = False
        if found == known_content:
            seen_signature = now
        elif not stop.wait(SETTLE_SECONDS):
            later = _read(path)
            if isinstance(found, bytes) and isinstance(later, bytes) and later != known_content:
                msg = f"{format_path(path)}: the content changed; exiting, to be restarted with the new configuration"
                raise ConfigurationChangedError(msg)
            if not isinstance(found, bytes) and not isinstance(later, bytes) and not is_unreadable:
                log.warning(
                    "%s; knft keeps its configuration and cannot notice changes until the file is readable again", later
                )
                is_unreadable = True


def _read(path: str) -> bytes | ConfigurationError:
    try:
        return read_configuration(path)
    except ConfigurationError as error:
        return error


def _checks(stop: threading.Event) -> Iterator[None]:
    """Yield at once, then every ``CHECK_SECONDS``, until ``stop`` is set."""
    yield
    while not stop.wait(CHECK_SECONDS):
        yield
