"""The configuration file, watched: other content ends the process, for whoever started it to start it again (I.4).

kube-proxy ends at every write to the file; knft compares, so that touching it, or writing the same again, does nothing.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

from knft.configuration.content import read_configuration
from knft.errors import ConfigurationChangedError, ConfigurationError
from knft.source.files import Signature, signature

TICK_MS = 1000
"""How often the file is looked at where no event tells of it: links above it, NFS."""
SETTLED_SECONDS = 0.2
"""How long other content has to last: who writes a file empties it first."""
CHANGED = "content of the proxy server's configuration file was updated"


def wait_for_change(path: str, known: bytes, stop: threading.Event) -> None:
    """Return when ``stop`` is set; raise ConfigurationChangedError when the file holds anything but ``known``.

    A file that is gone, or cannot be read, is not other content.
    """
    seen: Signature | None = None
    for _ in _looks(Path(path), stop):
        now = signature(Path(path))
        if now is None or now == seen:
            continue
        if not _differs(path, known):
            seen = now
        elif not stop.wait(SETTLED_SECONDS) and _differs(path, known):
            raise ConfigurationChangedError(CHANGED)


def _differs(path: str, known: bytes) -> bool:
    try:
        return read_configuration(path) != known
    except ConfigurationError:
        return False


def _looks(path: Path, stop: threading.Event) -> Iterator[None]:
    """Yield at once, then whenever something happens where the file is, and once a tick, until ``stop`` is set."""
    from watchfiles import watch  # noqa: PLC0415 - a native library that only a watched file needs

    yield
    while not stop.is_set():
        # A mounted ConfigMap swaps a link beside the file; what the link leads to may lie elsewhere.
        folders = {str(path.absolute().parent), str(path.resolve().parent)}
        watched = [folder for folder in folders if Path(folder).is_dir()]
        if not watched:
            stop.wait(TICK_MS / 1000)
            yield
            continue
        try:
            for _ in watch(
                *watched,
                watch_filter=None,
                stop_event=stop,
                debounce=100,
                step=20,
                rust_timeout=TICK_MS,
                yield_on_timeout=True,
                recursive=False,
            ):
                yield
                if str(path.resolve().parent) not in folders:
                    break
        except (OSError, RuntimeError):  # What was watched is gone, or there are no more watches to be had.
            stop.wait(TICK_MS / 1000)
            yield
