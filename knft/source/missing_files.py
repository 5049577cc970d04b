"""MissingFiles: decides which objects go when files disappear. No I/O.

A user deletes a file, or a mount, a volume or a directory is gone: the directory alone does not tell. So the last
Service is never removed because of missing files, nor are the objects of a directory that another one has replaced.
"""

import enum
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from msgspec import Struct

from knft.source.directory_identity import DirectoryIdentity

SETTLE_SECONDS = 3.0
"""How long files must be missing before their objects are removed: a program may be replacing all files."""


class KeptReason(enum.Enum):
    """Why the objects of missing files are kept."""

    NO_SERVICE_LEFT = "no Service is left in the directory"
    REPLACED_DIRECTORY = "another directory was mounted or created at this path"


class Listing(Struct, frozen=True):
    """What a scan found: the directory, and the names of its files.

    ``target`` is the directory to which the path leads, without symbolic links. ``has_empty_list`` tells whether a
    file that is present contains an empty List.
    """

    target: str
    identity: DirectoryIdentity
    names: frozenset[str]
    has_empty_list: bool = False


class MissingFiles:
    """The files that were read and are missing now."""

    def __init__(self) -> None:
        """Start without files; the first listing only tells which directory it is."""
        self._missing_since: dict[str, float] = {}
        self._of_replaced: set[str] = set()
        self._directory: tuple[str, DirectoryIdentity] | None = None
        self.kept: dict[str, KeptReason] = {}
        """The files whose objects are kept until a user decides."""

    @property
    def is_settling(self) -> bool:
        """Whether objects will be removed soon, without another change of the directory."""
        return bool(self._missing_since.keys() - self.kept.keys())

    def update(self, known: Mapping[str, bool], listing: Listing, now: float) -> list[str]:
        """Return the files whose objects are to be removed; ``now`` is in seconds.

        ``known`` are the files that were read, present or missing, and whether they define a Service.
        """
        missing = known.keys() - listing.names
        self._note_directory(listing, missing)
        self.kept = {} if listing.has_empty_list else self._reasons_to_keep(known, missing)
        # The time starts again when the reason is gone: the user may be writing the files, one after the other.
        self._missing_since = {
            name: now if name in self.kept else self._missing_since.get(name, now) for name in missing
        }
        removed = sorted(
            name
            for name, since in self._missing_since.items()
            if name not in self.kept and now - since >= SETTLE_SECONDS
        )
        for name in removed:
            del self._missing_since[name]
        return removed

    def _note_directory(self, listing: Listing, missing: AbstractSet[str]) -> None:
        previous, self._directory = self._directory, (listing.target, listing.identity)
        # A symbolic link that leads to another directory is a deliberate, atomic change.
        is_replaced = previous is not None and previous[0] == listing.target and previous[1] != listing.identity
        self._of_replaced = set(missing) if is_replaced else self._of_replaced & missing

    def _reasons_to_keep(self, known: Mapping[str, bool], missing: AbstractSet[str]) -> dict[str, KeptReason]:
        kept = dict.fromkeys(self._of_replaced, KeptReason.REPLACED_DIRECTORY)
        loses_services = any(known[name] for name in missing)
        if loses_services and not any(has_services for name, has_services in known.items() if name not in missing):
            kept = dict.fromkeys(missing, KeptReason.NO_SERVICE_LEFT) | kept
        return kept
