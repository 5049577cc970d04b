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
from knft.model.objects import ObjectChange
from knft.source.catalogue import Catalogue
from knft.source.decode import DecodedManifest, decode
from knft.source.file_watch import watch_folders
from knft.source.files import Signature, error_reason, file_signature, format_path, read_manifest

SUFFIXES = frozenset({".yaml", ".yml", ".json"})
POLLS_PER_SCAN = 5
"""All files are checked every so many ticks, for changes without an inotify event (links to other places, NFS)."""
DEBOUNCE_MS = 200

MAX_CONFLICTS = 10
"""How many objects that stand elsewhere too are told of one file."""


class ScanResult(Struct, frozen=True):
    """What a look at the directory found new: changed objects, and sentences for the log."""

    changes: tuple[ObjectChange, ...]
    problems: tuple[str, ...]
    notices: tuple[str, ...] = ()


class _Found:
    """What a scan has found so far."""

    def __init__(self) -> None:
        self.changes: list[ObjectChange] = []
        self.problems: list[str] = []
        self.remarks: list[str] = []

    def take(self, catalogue: Catalogue, name: str, path: str, decoded: DecodedManifest) -> None:
        """Note what a file holds now; it is ``name`` in the catalogue."""
        self.changes += catalogue.put(name, decoded)
        self.problems += [f"{path}: {problem}" for problem in decoded.problems]
        self.remarks += [f"{path}: {kind} skipped ({count})" for kind, count in decoded.skipped]

    def scan(self) -> ScanResult:
        return ScanResult(tuple(self.changes), tuple(self.problems), tuple(self.remarks))


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

    def scan(self) -> ScanResult:
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

    def _directory_lost(self, error: OSError) -> ScanResult:
        sentence = f"{format_path(self._path)}: cannot be read as a directory of manifests: {error.strerror}"
        if self._names is None:
            raise SourceError(sentence) from error
        if self._lost:
            return ScanResult((), ())
        self._lost = True
        return ScanResult((), (f"{sentence}; the last good state stays",))

    def _forget(self, name: str, found: _Found) -> None:
        self._signatures.pop(name, None)
        self._broken.pop(name, None)
        if name in self._good:
            self._good.remove(name)
            found.changes += self._catalogue.remove(name)

    def _look_at(self, name: str, found: _Found) -> None:
        path = self._path / name
        signed = file_signature(path)
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
            found.take(self._catalogue, name, format_path(path), decoded)
            conflicts = self._catalogue.conflicts(name)[:MAX_CONFLICTS]
            found.problems += [f"{format_path(self._path / item.ignored.path)}: {item}" for item in conflicts]

    def _note_broken(self, name: str, error: Exception, found: _Found) -> None:
        end = "its last good objects stay" if name in self._good else "nothing of it is served"
        sentence = f"{format_path(self._path / name)}: {error_reason(error)}; {end}"
        if self._broken.get(name) != sentence:
            self._broken[name] = sentence
            found.problems.append(sentence)

    def watch(self, stop: threading.Event) -> Iterator[None]:
        """Yield whenever a scan may find something new, until ``stop`` is set."""
        real = os.path.realpath(self._path)
        for polls, paths in enumerate(watch_folders(self._watched_folders, stop, DEBOUNCE_MS), start=1):
            now = os.path.realpath(self._path)
            has_event = paths is None or any(self._concerns(path, real) for path in paths)
            # A symlink above the directory that is replaced causes no event in it.
            if has_event or now != real or polls % POLLS_PER_SCAN == 0:
                yield
            real = now

    def _watched_folders(self) -> set[str]:
        """Return the directory that the path leads to, and its parent, in which the directory may be replaced."""
        folders = {os.path.realpath(self._path), str(self._path.absolute().parent)}
        return {folder for folder in folders if Path(folder).is_dir()}

    def _concerns(self, path: str, real: str) -> bool:
        """Tell whether an event is about the directory or what is in it: its parent is watched for renames alone."""
        return path in {real, str(self._path.absolute())} or str(Path(path).parent) == real


def _is_manifest(name: str) -> bool:
    return not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES


def _no_manifests(path: Path) -> str:
    return f"{format_path(path)}: holds no *.yaml, *.yml or *.json, so nothing is served"


def read_paths(paths: Iterable[str], standard_input: bytes | None) -> ScanResult:
    """Read files, directories, and standard input for ``-``; raise SourceError where one cannot be read."""
    catalogue, found = Catalogue(), _Found()
    for path, named in _files(paths, found):
        try:
            decoded = decode((standard_input or b"") if path == "-" else _read(Path(path), named=named))
        except (OSError, SourceError) as error:
            msg = f"{format_path(path)}: {error_reason(error)}"
            raise SourceError(msg) from error
        found.take(catalogue, path, format_path(path), decoded)
        conflicts = catalogue.conflicts(path)[:MAX_CONFLICTS]
        found.problems += [f"{format_path(item.ignored.path)}: {item}" for item in conflicts]
    return found.scan()


def manifests_signature(paths: Iterable[str]) -> tuple[tuple[str, Signature | None], ...]:
    """Return what changes when any of the files does that ``read_paths`` would read."""
    found: list[Path] = []
    for path in map(Path, paths):
        try:
            found += sorted(item for item in path.iterdir() if _is_manifest(item.name)) if path.is_dir() else [path]
        except OSError:
            found.append(path)
    return tuple((str(path), file_signature(path)) for path in found)


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
            msg = f"{format_path(path)}: cannot be read as a directory of manifests: {error.strerror}"
            raise SourceError(msg) from error
        if not files:
            found.problems.append(_no_manifests(Path(path)))
        yield from ((str(item), False) for item in files)
