"""A directory of manifests as a source of objects.

Reads every ``*.yaml``, ``*.yml`` and ``*.json`` directly in it, as ``kubectl apply -f DIR`` does, if no process has it
open for writing. If a file becomes unreadable, its last valid objects stay until it is repaired or removed. If the
directory disappears, or another one takes its place, all objects stay (docs/behaviour/manifests.md).
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from knft.errors import SourceError
from knft.model.unknown import ANYTHING, NOTHING_UNKNOWN, UnknownObjects
from knft.source.catalogue import Catalogue, object_keys
from knft.source.decode import DecodedManifest, decode
from knft.source.directory_identity import DirectoryIdentity, directory_identity
from knft.source.file_watch import watch_folders
from knft.source.files import (
    SettledContent,
    Signature,
    UnsettledFileError,
    changed_at,
    error_reason,
    file_signature,
    format_path,
    is_same_inode,
    read_settled_manifest,
)
from knft.source.missing_files import SETTLE_SECONDS, KeptReason, Listing, MissingFiles
from knft.source.scan_result import MAX_CONFLICTS, ScanBuilder, ScanResult, is_manifest, no_manifests_message

POLLS_PER_SCAN = 5
"""All files are checked once in this many polls, for changes without an inotify event (links to other folders, NFS)."""
DEBOUNCE_MS = 200
TRUNCATED_SECONDS = 10.0
"""How long a file without a newline at its end must not change, if the kernel does not tell whether it has a writer."""

EMPTY_LIST_HINT = "to remove them, add a file with an empty List (apiVersion: v1, kind: List, items: [])"


class DirectoryStatus(Struct, frozen=True):
    """The state of the directory after a scan.

    ``read`` counts the files whose current content is in use, ``unreadable`` those with errors, ``unsettled`` those
    that another process writes or has just written, and ``missing`` those that are gone and whose objects knft keeps.
    ``conditions`` are the messages of problems that last. ``incomplete_reason`` tells why the objects that were read
    may not be all, and ``unknown`` which ones may be missing; it is "" once every file was read without error and there
    was a Service or an empty List.
    """

    read: int = 0
    unreadable: int = 0
    unsettled: int = 0
    missing: int = 0
    conditions: tuple[str, ...] = ()
    incomplete_reason: str = ""
    unknown: UnknownObjects = NOTHING_UNKNOWN
    is_read: bool = True
    """Whether every file was read without error, at this scan or before."""


class _File:
    """What is known of one file."""

    def __init__(self) -> None:
        self.checked: Signature | None = None
        """The signature of the last content that was read, successfully or not; None if it must be read again."""
        self.used: Signature | None = None
        """The signature of the content whose objects are in use; None if there are none."""
        self.seen: tuple[Signature | None, float] = (None, 0.0)
        """The last signature, and when it was seen first, in seconds."""
        self.error = ""
        """Why the current content is not in use."""
        self.unsettled = ""
        """Why the current content is not read yet."""
        self.incomplete_reason = ""
        """Why the objects in use are not all of the file; "" if they are."""
        self.unknown = ANYTHING
        """Which objects the file may contain in addition to those in use, unless it is complete."""
        self.problems: tuple[str, ...] = ()
        """The problems of the objects in the content that is in use."""
        self.is_complete = False
        self.has_empty_list = False


class DirectorySource:
    """The manifests in one directory."""

    def __init__(
        self,
        path: str,
        monotonic: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Do not read ``path`` yet; ``scan`` reads it. Both clocks return seconds."""
        self._path = Path(path)
        self._monotonic = monotonic
        self._wall_clock = wall_clock
        self._catalogue = Catalogue()
        self._files: dict[str, _File] = {}
        self._missing = MissingFiles()
        self._names: list[str] | None = None
        self._directory_problems: dict[str, None] = {}
        self._is_complete = False
        self.status = DirectoryStatus()

    def check_readable(self) -> None:
        """Raise SourceError if the directory cannot be listed; read no file."""
        try:
            _list_directory(self._path)
        except OSError as error:
            raise SourceError(self._unreadable_message(error)) from error

    def _unreadable_message(self, error: OSError) -> str:
        return f"{format_path(self._path)}: cannot read the manifest directory: {error.strerror}"

    def scan(self) -> ScanResult:
        """Read the files that changed since the last scan; raise SourceError if the first scan finds no directory."""
        builder = ScanBuilder()
        is_gone = False
        try:
            target, identity, names = _list_directory(self._path)
        except OSError as error:
            is_gone = True
            message = self._unreadable_message(error)
            if self._names is None:
                raise SourceError(message) from error
            self._report_directory([f"{message}; keeping the last valid objects"], builder)
        else:
            self._names = names
            for name in names:
                self._scan_file(name, builder)
            self._handle_missing_files(
                Listing(target, identity, frozenset(names), self._has_empty_list(names)), builder
            )
        self.status = self._current_status(is_gone=is_gone)
        return builder.result()

    @property
    def is_settling(self) -> bool:
        """Whether the next scan may find changes though no file changes."""
        return self._missing.is_settling or bool(self.status.unsettled)

    def _has_empty_list(self, names: Iterable[str]) -> bool:
        return any(self._files[name].has_empty_list for name in names if name in self._files)

    def _handle_missing_files(self, listing: Listing, builder: ScanBuilder) -> None:
        known = {
            name: self._catalogue.has_services(name) for name, file in self._files.items() if file.used is not None
        }
        for name in [name for name in self._files if name not in listing.names and name not in known]:
            del self._files[name]
        for name in self._missing.update(known, listing, self._monotonic()):
            builder.ended += self._files.pop(name).problems
            builder.changes += self._catalogue.remove(name)
        is_empty = not listing.names and not self._missing.kept
        messages = [no_manifests_message(self._path)] if is_empty else []
        for reason in KeptReason:
            kept = sorted(name for name, why in self._missing.kept.items() if why is reason)
            if kept:
                messages.append(
                    f"{format_path(self._path)}: {_describe_files(kept)} missing, and {reason.value}; keeping the "
                    f"objects; {EMPTY_LIST_HINT}"
                )
        self._report_directory(messages, builder)

    def _report_directory(self, messages: Iterable[str], builder: ScanBuilder) -> None:
        previous, self._directory_problems = self._directory_problems, dict.fromkeys(messages)
        builder.problems += [message for message in self._directory_problems if message not in previous]

    def _scan_file(self, name: str, builder: ScanBuilder) -> None:
        path, file = self._path / name, self._files.setdefault(name, _File())
        signature = file_signature(path)
        if signature != file.seen[0]:
            file.seen = (signature, self._monotonic())
        if file.checked is not None and file.checked == signature:
            return
        try:
            content = read_settled_manifest(path, lambda signature: self._is_quiet(file, signature))
            signature = content.signature
            decoded = decode(content.data)
            self._check_complete(name, file, decoded, content)
        except UnsettledFileError as error:
            file.unsettled = f"{format_path(path)}: {error}; knft reads it when it is complete"
        except SourceError as error:
            file.checked, file.unsettled = signature, ""
            self._report_error(name, file, error, builder)
        except OSError as error:
            # Without a signature every scan retries it: a change of permissions may cause no event.
            file.checked, file.unsettled = None, ""
            if os.path.lexists(path):
                self._report_error(name, file, error, builder)
        else:
            self._use(name, file, decoded, signature, builder)

    def _is_quiet(self, file: _File, signature: Signature, seconds: float = SETTLE_SECONDS) -> bool:
        seen, since = file.seen
        unchanged = self._monotonic() - since if seen == signature else 0.0
        return max(unchanged, self._wall_clock() - changed_at(signature)) >= seconds

    def _check_complete(self, name: str, file: _File, decoded: DecodedManifest, content: SettledContent) -> None:
        """Raise an error if the content may not be complete, and its use may remove rules."""
        lost = self._catalogue.keys(name) - object_keys(decoded.objects)
        if (lost or not self._is_complete) and self._may_be_truncated(file, decoded, content):
            msg = "no newline at the end of the file; it may be truncated"
            raise UnsettledFileError(msg)
        if lost:
            self._check_loss(file, decoded, content.signature)

    def _may_be_truncated(self, file: _File, decoded: DecodedManifest, content: SettledContent) -> bool:
        if content.has_no_writer or not decoded.may_be_truncated:
            return False
        return not self._is_quiet(file, content.signature, TRUNCATED_SECONDS)

    def _check_loss(self, file: _File, decoded: DecodedManifest, signature: Signature) -> None:
        """Raise an error if the content, which lacks objects that are in use, may not be complete."""
        if not (decoded.objects or decoded.has_empty_list or decoded.invalid or decoded.skipped):
            msg = "it contains no objects, and no empty List"
            raise SourceError(msg)
        # Programs that append to a file may close it after each part.
        if file.used is not None and is_same_inode(file.used, signature) and not self._is_quiet(file, signature):
            msg = "it has just changed, and has fewer objects than before"
            raise UnsettledFileError(msg)

    def _use(
        self, name: str, file: _File, decoded: DecodedManifest, signature: Signature, builder: ScanBuilder
    ) -> None:
        """Use the objects of a file."""
        path = format_path(self._path / name)
        file.checked = file.used = signature
        file.error = file.unsettled = ""
        file.has_empty_list = decoded.has_empty_list
        file.incomplete_reason, file.unknown = "", decoded.unknown
        if decoded.invalid:
            file.incomplete_reason = f"{path}: invalid objects were skipped ({decoded.invalid})"
        file.is_complete |= not file.incomplete_reason
        file.problems = builder.add_file(self._catalogue, name, path, decoded, file.problems)
        conflicts = self._catalogue.conflicts(name)[:MAX_CONFLICTS]
        builder.problems += [f"{format_path(self._path / item.ignored.path)}: {item}" for item in conflicts]

    def _report_error(self, name: str, file: _File, error: Exception, builder: ScanBuilder) -> None:
        consequence = "keeping its last valid objects" if file.used is not None else "the file is ignored"
        message = f"{format_path(self._path / name)}: {error_reason(error)}; {consequence}"
        if file.error != message:
            file.error = message
            builder.problems.append(message)

    def _current_status(self, *, is_gone: bool) -> DirectoryStatus:
        present = {name: file for name, file in self._files.items() if name in (self._names or ())}
        # Missing files whose objects are kept count too: another program may be replacing them.
        reason = "" if self._is_complete else self._incomplete_reason()
        self._is_complete = not reason
        files = () if is_gone else tuple(present.values())
        errors = [file.error for file in files if file.error and not file.unsettled]
        unsettled = [file.unsettled for file in files if file.unsettled]
        return DirectoryStatus(
            read=len(files) - len(errors) - len(unsettled),
            unreadable=len(errors),
            unsettled=len(unsettled),
            missing=len(self._files) if is_gone else len(self._missing.kept),
            conditions=(*self._directory_problems, *errors, *unsettled),
            incomplete_reason=reason,
            unknown=self._unknown_objects() if reason else NOTHING_UNKNOWN,
            is_read=all(file.is_complete for file in present.values()),
        )

    def _unknown_objects(self) -> UnknownObjects:
        """Return which objects may be missing."""
        if not self._has_services_or_empty_list():
            return ANYTHING
        return UnknownObjects.merged(file.unknown for file in self._files.values() if not file.is_complete)

    def _incomplete_reason(self) -> str:
        """Return why the objects may not be all; "" if every file was read without error, at this scan or before."""
        for name, file in self._files.items():
            if not file.is_complete:
                return (
                    file.unsettled
                    or file.error
                    or file.incomplete_reason
                    or f"{format_path(self._path / name)}: it was not read"
                )
        if not self._has_services_or_empty_list():
            return f"{format_path(self._path)}: no file contains a Service or an empty List"
        return ""

    def _has_services_or_empty_list(self) -> bool:
        return any(self._catalogue.has_services(name) or file.has_empty_list for name, file in self._files.items())

    def watch(self, stop: threading.Event) -> Iterator[None]:
        """Yield whenever files may have changed, and when watching begins, until ``stop`` is set."""
        previous = os.path.realpath(self._path)
        for polls, paths in enumerate(watch_folders(self._watched_folders, stop, DEBOUNCE_MS), start=1):
            current = os.path.realpath(self._path)
            has_event = paths is None or any(self._is_relevant(path, previous) for path in paths)
            # A symlink above the directory that is replaced causes no event in it.
            if has_event or current != previous or self.is_settling or polls % POLLS_PER_SCAN == 0:
                yield
            previous = current

    def _watched_folders(self) -> set[str]:
        """Return the directory that the path leads to, and its parent, in which the directory may be replaced."""
        folders = {os.path.realpath(self._path), str(self._path.absolute().parent)}
        return {folder for folder in folders if Path(folder).is_dir()}

    def _is_relevant(self, path: str, real: str) -> bool:
        """Tell whether an event concerns the directory or its files. Its parent is watched only for renames."""
        return path in {real, str(self._path.absolute())} or str(Path(path).parent) == real


def _list_directory(path: Path) -> tuple[str, DirectoryIdentity, list[str]]:
    """Return the target of a directory's path, its identity, and the names of its manifests; raise OSError."""
    target = os.path.realpath(path)
    descriptor = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with os.scandir(descriptor) as entries:
            names = sorted(entry.name for entry in entries if is_manifest(entry.name))
        return target, directory_identity(descriptor), names
    finally:
        os.close(descriptor)


def _describe_files(names: list[str]) -> str:
    first = format_path(names[0])
    return f"{first} is" if len(names) == 1 else f"{len(names)} files, such as {first}, are"
