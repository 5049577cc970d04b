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
from knft.source.catalogue import Catalogue
from knft.source.decode import Decoded, decode
from knft.source.files import Signature, read_manifest, reason, shown_path, signature

SUFFIXES = frozenset({".yaml", ".yml", ".json"})
TICK_MS = 1000
"""How often the directory's own path is looked at: a swapped symlink above it makes no event in it."""
TICKS_PER_SCAN = 5
"""Every so many ticks all files are looked at, for changes that no event told of (links to elsewhere, NFS)."""

MAX_CONFLICTS = 10
"""How many objects that stand elsewhere too are told of one file."""


class Scan(Struct, frozen=True):
    """What a look at the directory found new: changed objects, and sentences for the log."""

    changes: tuple[Change, ...]
    problems: tuple[str, ...]
    remarks: tuple[str, ...] = ()


class _Found:
    """What a scan has found so far."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.problems: list[str] = []
        self.remarks: list[str] = []

    def take(self, catalogue: Catalogue, name: str, path: str, decoded: Decoded) -> None:
        """Note what a file holds now; it is ``name`` in the catalogue."""
        self.changes += catalogue.put(name, decoded)
        self.problems += [f"{path}: {problem}" for problem in decoded.problems]
        self.remarks += [f"{path}: {kind} skipped ({count})" for kind, count in decoded.skipped]

    def scan(self) -> Scan:
        return Scan(tuple(self.changes), tuple(self.problems), tuple(self.remarks))


class DirectorySource:
    """The manifests in one directory."""

    def __init__(self, path: str) -> None:
        """``path`` is looked at by ``scan``, not before."""
        self._path = Path(path)
        self._catalogue = Catalogue()
        self._signatures: dict[str, Signature | None] = {}
        self._good: set[str] = set()
        self._broken: dict[str, str] = {}
        self._names: list[str] | None = None
        self._lost = False

    def scan(self) -> Scan:
        """Read what changed since the last scan; raise SourceError where the first finds no directory."""
        try:
            with os.scandir(self._path) as entries:
                names = sorted(entry.name for entry in entries if _is_manifest(entry.name))
        except OSError as error:
            return self._directory_lost(error)
        found = _Found()
        if not names and self._names != names:
            found.problems.append(_no_manifests(self._path))
        self._names, self._lost = names, False
        for name in sorted((self._signatures.keys() | self._good | self._broken.keys()) - set(names)):
            self._forget(name, found)
        for name in names:
            self._look_at(name, found)
        return found.scan()

    def _directory_lost(self, error: OSError) -> Scan:
        sentence = f"{shown_path(self._path)}: cannot be read as a directory of manifests: {error.strerror}"
        if self._names is None:
            raise SourceError(sentence) from error
        if self._lost:
            return Scan((), ())
        self._lost = True
        return Scan((), (f"{sentence}; the last good state stays",))

    def _forget(self, name: str, found: _Found) -> None:
        self._signatures.pop(name, None)
        self._broken.pop(name, None)
        if name in self._good:
            self._good.remove(name)
            found.changes += self._catalogue.remove(name)

    def _look_at(self, name: str, found: _Found) -> None:
        path = self._path / name
        signed = signature(path)
        if name in self._signatures and self._signatures[name] == signed:
            return
        try:
            decoded = decode(read_manifest(path))
        except SourceError as error:
            self._signatures[name] = signed
            self._broken.pop(name, None)
            self._note_broken(name, error, found)
        except OSError as error:
            # Without a signature it is tried again by every scan: no event may tell that it can be read now.
            self._signatures.pop(name, None)
            if os.path.lexists(path):
                self._note_broken(name, error, found)
        else:
            self._signatures[name] = signed
            self._broken.pop(name, None)
            self._good.add(name)
            found.take(self._catalogue, name, shown_path(path), decoded)
            conflicts = self._catalogue.conflicts(name)[:MAX_CONFLICTS]
            found.problems += [f"{shown_path(self._path / item.ignored.path)}: {item}" for item in conflicts]

    def _note_broken(self, name: str, error: Exception, found: _Found) -> None:
        end = "its last good objects stay" if name in self._good else "nothing of it is served"
        sentence = f"{shown_path(self._path / name)}: {reason(error)}; {end}"
        if self._broken.get(name) != sentence:
            self._broken[name] = sentence
            found.problems.append(sentence)

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
                real = os.path.realpath(self._path)
                continue
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
                    yield any(self._concerns(path, real) for _, path in events)
                    if os.path.realpath(self._path) != real or not Path(real).is_dir():
                        break
            except (OSError, RuntimeError):  # What was watched has just gone away.
                stop.wait(TICK_MS / 1000)
                yield True
            real = os.path.realpath(self._path)

    def _concerns(self, path: str, real: str) -> bool:
        """Tell whether an event is about the directory or what is in it: its parent is watched for renames alone."""
        return path in {real, str(self._path.absolute())} or str(Path(path).parent) == real


def _is_manifest(name: str) -> bool:
    return not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES


def _no_manifests(path: Path) -> str:
    return f"{shown_path(path)}: holds no *.yaml, *.yml or *.json, so nothing is served"


def read_paths(paths: Iterable[str], standard_input: bytes | None) -> Scan:
    """Read files, directories, and standard input for ``-``; raise SourceError where one cannot be read."""
    catalogue, found = Catalogue(), _Found()
    for path, named in _files(paths, found):
        try:
            decoded = decode((standard_input or b"") if path == "-" else _read(Path(path), named=named))
        except (OSError, SourceError) as error:
            msg = f"{shown_path(path)}: {reason(error)}"
            raise SourceError(msg) from error
        found.take(catalogue, path, shown_path(path), decoded)
        conflicts = catalogue.conflicts(path)[:MAX_CONFLICTS]
        found.problems += [f"{shown_path(item.ignored.path)}: {item}" for item in conflicts]
    return found.scan()


def manifests_signature(paths: Iterable[str]) -> tuple[tuple[str, Signature | None], ...]:
    """Return what changes when any of the files does that ``read_paths`` would read."""
    found: list[Path] = []
    for path in map(Path, paths):
        try:
            found += sorted(item for item in path.iterdir() if _is_manifest(item.name)) if path.is_dir() else [path]
        except OSError:
            found.append(path)
    return tuple((str(path), signature(path)) for path in found)


def _read(path: Path, *, named: bool) -> bytes:
    """Read a file; also a pipe, if the user named it: a shell's ``<(command)``."""
    return path.read_bytes() if named and (path.is_fifo() or path.is_char_device()) else read_manifest(path)


def _files(paths: Iterable[str], found: _Found) -> Iterator[tuple[str, bool]]:
    """Yield every path, and whether it was named or only lies in a directory that was."""
    for path in paths:
        if path == "-" or not Path(path).is_dir():
            yield path, True
            continue
        try:
            files = sorted(item for item in Path(path).iterdir() if _is_manifest(item.name))
        except OSError as error:
            msg = f"{shown_path(path)}: cannot be read as a directory of manifests: {error.strerror}"
            raise SourceError(msg) from error
        if not files:
            found.problems.append(_no_manifests(Path(path)))
        yield from ((str(item), False) for item in files)
