"""Reads the manifests at given paths once: files, directories, pipes and standard input."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from knft.errors import SourceError
from knft.model.objects import KubeObject
from knft.source.catalogue import Catalogue
from knft.source.decode import KINDS, decode
from knft.source.files import Signature, error_reason, file_signature, format_path, read_manifest, read_named_file
from knft.source.scan_result import MAX_CONFLICTS, ScanBuilder, ScanResult, is_manifest, no_manifests_message


def read_paths(
    paths: Iterable[str],
    standard_input: bytes | None,
    kinds: Mapping[tuple[str, str], type[KubeObject]] = KINDS,
) -> ScanResult:
    """Read files, directories, and standard input for ``-``; raise SourceError if one cannot be read."""
    catalogue, builder = Catalogue(), ScanBuilder()
    for path, is_explicit in _files(paths, builder):
        try:
            read = read_named_file if is_explicit else read_manifest
            decoded = decode((standard_input or b"") if path == "-" else read(Path(path)), kinds)
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
            files += sorted(item for item in path.iterdir() if is_manifest(item.name)) if path.is_dir() else [path]
        except OSError:
            files.append(path)
    return tuple((str(path), file_signature(path)) for path in files)


def _files(paths: Iterable[str], builder: ScanBuilder) -> Iterator[tuple[str, bool]]:
    """Yield every path, and whether the user named it or it is in a named directory."""
    for path in paths:
        if path == "-" or not Path(path).is_dir():
            yield path, True
            continue
        try:
            files = sorted(item for item in Path(path).iterdir() if is_manifest(item.name))
        except OSError as error:
            msg = f"{format_path(path)}: cannot read the manifest directory: {error.strerror}"
            raise SourceError(msg) from error
        if not files:
            builder.problems.append(f"{no_manifests_message(Path(path))}; nothing is served")
        yield from ((str(item), False) for item in files)
