"""What one reading of manifests found, and which files of a directory are manifests."""

from pathlib import Path

from msgspec import Struct

from knft.model.objects import ObjectChange
from knft.source.catalogue import Catalogue
from knft.source.decode import DecodedManifest
from knft.source.files import format_path

SUFFIXES = frozenset({".yaml", ".yml", ".json"})
MAX_CONFLICTS = 10
"""How many conflicts with other documents are reported for one file."""


class ScanResult(Struct, frozen=True):
    """The changed objects since the last scan, and messages: problems, and notices about skipped kinds."""

    changes: tuple[ObjectChange, ...] = ()
    problems: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    """Problems of objects that no longer exist."""


class ScanBuilder:
    """Collects the result of a scan."""

    def __init__(self) -> None:
        """Start empty."""
        self.changes: list[ObjectChange] = []
        self.problems: list[str] = []
        self.notices: list[str] = []
        self.ended: list[str] = []

    def add_file(
        self, catalogue: Catalogue, name: str, path: str, decoded: DecodedManifest, known: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """Add the content of a file, which is ``name`` in the catalogue; return its problems.

        ``known`` are the problems of its last content.
        """
        self.changes += catalogue.put(name, decoded)
        self.notices += [f"{path}: {kind} skipped ({count})" for kind, count in decoded.skipped]
        found = dict.fromkeys(f"{path}: {problem}" for problem in decoded.problems)
        self.problems += [problem for problem in found if problem not in known]
        self.ended += [problem for problem in known if problem not in found]
        return tuple(found)

    def result(self) -> ScanResult:
        """Return what was collected."""
        return ScanResult(tuple(self.changes), tuple(self.problems), tuple(self.notices), tuple(self.ended))


def is_manifest(name: str) -> bool:
    """Tell whether a file of a directory is read, by its name."""
    return not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES


def no_manifests_message(path: Path) -> str:
    """Return the message about a directory in which no file is read."""
    return f"{format_path(path)}: contains no *.yaml, *.yml or *.json files"
