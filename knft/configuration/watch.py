"""The configuration file, watched: other content ends the process, for whoever started it to start it again (I.4).

kube-proxy ends at every write to the file; knft compares, so that touching it, or writing the same again, does nothing.
"""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

from knft.configuration.content import read_configuration
from knft.errors import ConfigurationChangedError, ConfigurationError
from knft.source.files import Signature, shown_path, signature

TICK_MS = 1000
"""How often the file is looked at where no event tells of it: links above it, NFS."""
SETTLED_SECONDS = 0.2
"""How long other content has to last: who writes a file empties it first."""
CHANGED = "content of the proxy server's configuration file was updated"


log = logging.getLogger("knft")


def wait_for_change(path: str, known: bytes, stop: threading.Event) -> None:
    """Return when ``stop`` is set; raise ConfigurationChangedError when the file holds anything but ``known``.

    A file that is gone, or cannot be read, is not other content; it is said when that begins, and when it is over.
    """
    seen: Signature | None = None
    is_missed = False
    for _ in _looks(Path(path), stop):
        now = signature(Path(path))
        if now is not None and now == seen and not is_missed:
            continue
        found = _read(path)
        if is_missed and isinstance(found, bytes):
            log.info("%s: it can be read again", shown_path(path))
            is_missed = False
        if found == known:
            seen = now
        elif not stop.wait(SETTLED_SECONDS):
            later = _read(path)
            if isinstance(found, bytes) and isinstance(later, bytes) and later != known:
                raise ConfigurationChangedError(CHANGED)
            if not isinstance(found, bytes) and not isinstance(later, bytes) and not is_missed:
                log.warning(
                    "%s; knft goes on with what it was told, and hears of no change until it can read it again", later
                )
                is_missed = True


def _read(path: str) -> bytes | ConfigurationError:
    try:
        return read_configuration(path)
    except ConfigurationError as error:
        return error


def _looks(path: Path, stop: threading.Event) -> Iterator[None]:
    """Yield at once, then whenever something happens where the file is, and once a tick, until ``stop`` is set."""
    from watchfiles import watch  # noqa: PLC0415 - a native library that only a watched file needs

    yield
    while not stop.is_set():
        try:
            folders = _folders(path)
            for _ in watch(
                *folders,
                watch_filter=None,
                stop_event=stop,
                debounce=100,
                step=20,
                rust_timeout=TICK_MS,
                yield_on_timeout=True,
                recursive=False,
            ):
                yield
                if _folders(path) != folders:
                    break
        except (OSError, RuntimeError):  # What was watched is gone, or there are no more watches to be had.
            stop.wait(TICK_MS / 1000)
            yield


def _folders(path: Path) -> set[Path]:
    """Return where to watch: a mounted ConfigMap swaps a link beside the file, and what it leads to may lie elsewhere.

    Raise OSError where there is nothing, or where a link becomes another right now.
    """
    found = {folder for folder in (path.absolute().parent, path.resolve().parent) if folder.is_dir()}
    if not found:
        msg = f"{path}: its folder is gone"
        raise FileNotFoundError(msg)
    return found
