"""A directory of manifests as a source of objects.

Every ``*.yaml``, ``*.yml`` and ``*.json`` directly in it is read, as ``kubectl apply -f DIR`` does. A file that becomes
unreadable keeps its last good objects until it is mended or removed; a directory that disappears keeps all of them.
"""

import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from knft.errors import SourceError
from knft.model.objects import Change
from knft.source.catalogue import Catalogue, Conflict
from knft.source.decode import Decoded, decode

SUFFIXES = frozenset({".yaml", ".yml", ".json"})
TICK_MS = 1000
"""How often the directory's own path is looked at: a swapped symlink above it makes no event in it."""
TICKS_PER_SCAN = 5
"""Every so many ticks all files are looked at, for changes that no event told of (links to elsewhere, NFS)."""

_Signature = tuple[int, int, int, int]


class Scan(Struct, frozen=True):
    """What a look at the directory found new: changed objects, and sentences for the log."""

    changes: tuple[Change, ...]
    problems: tuple[str, ...]
    remarks: tuple[str, ...] = ()


class DirectorySource:
    """The manifests in one directory."""

    def __init__(self, path: str) -> None:
        """``path`` is looked at by ``scan``, not before."""
        self._path = Path(path)
        self._catalogue = Catalogue()
        self._signatures: dict[str, _Signature | None] = {}
        self._lost = False

    def scan(self) -> Scan:
        """Read what changed since the last scan; raise SourceError where the first finds no directory."""
        try:
            names = sorted(entry.name for entry in os.scandir(self._path) if _is_manifest(entry.name))
        except OSError as error:
            return self._directory_lost(error)
        self._lost = False
        changes: list[Change] = []
        problems: list[str] = []
        remarks: list[str] = []
        for name in sorted(self._signatures.keys() - set(names)):
            del self._signatures[name]
            changes += self._catalogue.remove(name)
        for name in names:
            self._look_at(name, changes, problems, remarks)
        return Scan(tuple(changes), tuple(problems), tuple(remarks))

    def _directory_lost(self, error: OSError) -> Scan:
        sentence = f"{self._path}: cannot be read as a directory of manifests: {error.strerror}"
        if not self._signatures and not self._lost:
            raise SourceError(sentence) from error
        if self._lost:
            return Scan((), ())
        self._lost = True
        return Scan((), (f"{sentence}; the last good state stays",))

    def _look_at(self, name: str, changes: list[Change], problems: list[str], remarks: list[str]) -> None:
        path = self._path / name
        signature = _signature(path)
        known = name in self._signatures
        if known and self._signatures[name] == signature:
            return
        self._signatures[name] = signature
        try:
            decoded = decode(path.read_bytes())
        except (OSError, SourceError) as error:
            if not known:
                self._catalogue.put(name, ())
            problems.append(f"{path}: {_reason(error)}; its last good objects stay")
            return
        changes += self._catalogue.put(name, decoded.objects)
        problems += [f"{path}: {problem}" for problem in decoded.problems]
        problems += self._conflicts(name)
        remarks += _skipped(path, decoded)

    def _conflicts(self, name: str) -> Iterable[str]:
        return [self._conflict(conflict) for conflict in self._catalogue.conflicts(name)]

    def _conflict(self, conflict: Conflict) -> str:
        used, ignored = conflict.used, conflict.ignored
        return (
            f"{self._path / ignored.path}: {conflict.key} stands in {used.path} too and says something else there; "
            f"{used.path} counts"
        )

    def watch(self, stop: threading.Event) -> Iterator[None]:
        """Yield whenever a scan may find something new, until ``stop`` is set."""
        real = os.path.realpath(self._path)
        for ticks, events in enumerate(self._events(real, stop), start=1):
            now = os.path.realpath(self._path)
            if events or now != real or ticks % TICKS_PER_SCAN == 0:
                yield
            real = now

    def _events(self, real: str, stop: threading.Event) -> Iterator[bool]:
        """Yield whether anything happened, at least once a tick; watch anew where the path leads elsewhere."""
        from watchfiles import watch  # noqa: PLC0415 - a native library that only `run` needs

        while not stop.is_set():
            parents = {real, str(self._path.absolute().parent)}
            watched = [path for path in parents if Path(path).is_dir()]
            if not watched:
                stop.wait(TICK_MS / 1000)
                yield False
            try:
                for events in watch(
                    *watched,
                    watch_filter=None,
                    stop_event=stop,
                    debounce=200,
                    step=20,
                    rust_timeout=TICK_MS,
                    yield_on_timeout=True,
                    recursive=False,
                ):
                    yield bool(events)
                    if os.path.realpath(self._path) != real or not Path(real).is_dir():
                        break
            except (OSError, RuntimeError):  # What was watched has just gone away.
                stop.wait(TICK_MS / 1000)
                yield True
            real = os.path.realpath(self._path)


def _is_manifest(name: str) -> bool:
    return not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES


def _signature(path: Path) -> _Signature | None:
    """Return what changes when a file does, or None where there is no file behind the name."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _skipped(path: Path, decoded: Decoded) -> list[str]:
    return [f"{path}: {kind} skipped ({count})" for kind, count in decoded.skipped]


def read_paths(paths: Iterable[str], standard_input: bytes | None) -> Scan:
    """Read files, directories, and standard input for ``-``; raise SourceError where one cannot be read."""
    catalogue = Catalogue()
    problems: list[str] = []
    remarks: list[str] = []
    changes: list[Change] = []
    for path in _files(paths):
        try:
            data = (standard_input or b"") if path == "-" else Path(path).read_bytes()
            decoded = decode(data)
        except (OSError, SourceError) as error:
            msg = f"{path}: {_reason(error)}"
            raise SourceError(msg) from error
        changes += catalogue.put(path, decoded.objects)
        problems += [f"{path}: {problem}" for problem in decoded.problems]
        problems += [
            f"{conflict.ignored.path}: {conflict.key} stands in {conflict.used.path} too and says something else there"
            for conflict in catalogue.conflicts(path)
        ]
        remarks += _skipped(Path(path), decoded)
    return Scan(tuple(changes), tuple(problems), tuple(remarks))


def _files(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        if path != "-" and Path(path).is_dir():
            yield from (str(item) for item in sorted(Path(path).iterdir()) if _is_manifest(item.name))
        else:
            yield path
