"""A directory of manifests as a source of objects.

Reads every ``*.yaml``, ``*.yml`` and ``*.json`` directly in it, as ``kubectl apply -f DIR`` does. If a file becomes
unreadable, its last valid objects stay until it is repaired or removed. If the directory disappears, all objects stay.
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
"""All files are checked once in this many polls, for changes without an inotify event (links to other folders, NFS)."""
DEBOUNCE_MS = 200

MAX_CONFLICTS = 10
"""How many conflicts with other documents are reported for one file."""


class ScanResult(Struct, frozen=True):
    """The changed objects since the last scan, and messages: problems, and notices about skipped kinds."""

    changes: tuple[ObjectChange, ...]
    problems: tuple[str, ...]
    notices: tuple[str, ...] = ()


class _ScanBuilder:
    """Collects the result of a scan."""

    def __init__(self) -> None:
        self.changes: list[ObjectChange] = []
        self.problems: list[str] = []
        self.notices: list[str] = []

    def add_file(self, catalogue: Catalogue, name: str, path: str, decoded: DecodedManifest) -> None:
        """Add the content of a file, which is ``name`` in the catalogue."""
        self.changes += catalogue.put(name, decoded)
        self.problems += [f"{path}: {problem}" for problem in decoded.problems]
        self.notices += [f"{path}: {kind} skipped ({count})" for kind, count in decoded.skipped]

    def result(self) -> ScanResult:
        return ScanResult(tuple(self.changes), tuple(self.problems), tuple(self.notices))


class DirectorySource:
    """The manifests in one directory."""

    def __init__(self, path: str) -> None:
        """Do not read ``path`` yet; ``scan`` reads it."""
        self._path = Path(path)
        self._catalogue = Catalogue()
        self._signatures: dict[str, Signature | None] = {}
        self._readable: set[str] = set()
        self._broken: dict[str, str] = {}
        self._names: list[str] | None = None
        self._is_gone = False

    def scan(self) -> ScanResult:
        """Read the files that changed since the last scan; raise SourceError if the first scan finds no directory."""
        try:
            with os.scandir(self._path) as entries:
                names = sorted(entry.name for entry in entries if _is_manifest(entry.name))
        except OSError as error:
            return self._report_missing_directory(error)
        builder = _ScanBuilder()
        if not names and self._names != names:
            builder.problems.append(_no_manifests_message(self._path))
        self._names, self._is_gone = names, False
        for name in sorted((self._signatures.keys() | self._readable | self._broken.keys()) - set(names)):
            self._remove_file(name, builder)
        for name in names:
            self._scan_file(name, builder)
        return builder.result()

    def _report_missing_directory(self, error: OSError) -> ScanResult:
        message = f"{format_path(self._path)}: cannot read the manifest directory: {error.strerror}"
        if self._names is None:
            raise SourceError(message) from error
        if self._is_gone:
            return ScanResult((), ())
        self._is_gone = True
        return ScanResult((), (f"{message}; keeping the last valid objects",))

    def _remove_file(self, name: str, builder: _ScanBuilder) -> None:
        self._signatures.pop(name, None)
        self._broken.pop(name, None)
        if name in self._readable:
            self._readable.remove(name)
            builder.changes += self._catalogue.remove(name)

    def _scan_file(self, name: str, builder: _ScanBuilder) -> None:
        path = self._path / name
        signature = file_signature(path)
        if name in self._signatures and self._signatures[name] == signature:
            return
        try:
            decoded = decode(read_manifest(path))
        except SourceError as error:
            self._signatures[name] = signature
            self._broken.pop(name, None)
            self._report_broken(name, error, builder)
        except OSError as error:
            # Without a signature every scan retries it: a change of permissions may cause no event.
            self._signatures.pop(name, None)
            if os.path.lexists(path):
                self._report_broken(name, error, builder)
        else:
            self._signatures[name] = signature
            self._broken.pop(name, None)
            self._readable.add(name)
            builder.add_file(self._catalogue, name, format_path(path), decoded)
            conflicts = self._catalogue.conflicts(name)[:MAX_CONFLICTS]
            builder.problems += [f"{format_path(self._path / item.ignored.path)}: {item}" for item in conflicts]

    def _report_broken(self, name: str, error: Exception, builder: _ScanBuilder) -> None:
        consequence = "keeping its last valid objects" if name in self._readable else "the file is ignored"
        message = f"{format_path(self._path / name)}: {error_reason(error)}; {consequence}"
        if self._broken.get(name) != message:
            self._broken[name] = message
            builder.problems.append(message)

    def watch(self, stop: threading.Event) -> Iterator[None]:
        """Yield whenever files may have changed, until ``stop`` is set."""
        previous = os.path.realpath(self._path)
        for polls, paths in enumerate(watch_folders(self._watched_folders, stop, DEBOUNCE_MS), start=1):
            current = os.path.realpath(self._path)
            has_event = paths is None or any(self._is_relevant(path, previous) for path in paths)
            # A symlink above the directory that is replaced causes no event in it.
            if has_event or current != previous or polls % POLLS_PER_SCAN == 0:
                yield
            previous = current

    def _watched_folders(self) -> set[str]:
        """Return the directory that the path leads to, and its parent, in which the directory may be replaced."""
        folders = {os.path.realpath(self._path), str(self._path.absolute().parent)}
        return {folder for folder in folders if Path(folder).is_dir()}

    def _is_relevant(self, path: str, real: str) -> bool:
        """Tell whether an event concerns the directory or its files. Its parent is watched only for renames."""
        return path in {real, str(self._path.absolute())} or str(Path(path).parent) == real


def _is_manifest(name: str) -> bool:
    return not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES


def _no_manifests_message(path: Path) -> str:
    return f"{format_path(path)}: contains no *.yaml, *.yml or *.json files; nothing is served"


def read_paths(paths: Iterable[str], standard_input: bytes | None) -> ScanResult:
    """Read files, directories, and standard input for ``-``; raise SourceError if one cannot be read."""
    catalogue, builder = Catalogue(), _ScanBuilder()
    for path, is_explicit in _files(paths, builder):
        try:
            decoded = decode((standard_input or b"") if path == "-" else _read(Path(path), is_explicit=is_explicit))
        except (OSError, SourceError) as error:
            msg = f"{format_path(path)}: {error_reason(error)}"
            raise SourceError(msg) from error
        builder.add_file(catalogue, path, format_path(path), decoded)
        conflicts = catalogue.conflicts(path)[:MAX_CONFLICTS]
        builder.problems += [f"{format_path(item.ignored.path)}: {item}" for item in conflicts]
    return builder.result()


def manifests_signature(paths: Iterable[str]) -> tuple[tuple[str, Signature | None], ...]:
    """Return a value that changes if any file changes that ``read_paths`` would read."""
    files: list[Path] = []
    for path in map(Path, paths):
        try:
            files += sorted(item for item in path.iterdir() if _is_manifest(item.name)) if path.is_dir() else [path]
        except OSError:
            files.append(path)
    return tuple((str(path), file_signature(path)) for path in files)


def _read(path: Path, *, is_explicit: bool) -> bytes:
    """Read a file. If the user named it, it may be a pipe, such as a shell's ``<(command)``."""
    return path.read_bytes() if is_explicit and (path.is_fifo() or path.is_char_device()) else read_manifest(path)


def _files(paths: Iterable[str], builder: _ScanBuilder) -> Iterator[tuple[str, bool]]:
    """Yield every path, and whether the user named it or it is in a named directory."""
    for path in paths:
        if path == "-" or not Path(path).is_dir():
            yield path, True
            continue
        try:
            files = sorted(item for item in Path(path).iterdir() if _is_manifest(item.name))
        except OSError as error:
            msg = f"{format_path(path)}: cannot read the manifest directory: {error.strerror}"
            raise SourceError(msg) from error
        if not files:
            builder.problems.append(_no_manifests_message(Path(path)))
        yield from ((str(item), False) for item in files)
