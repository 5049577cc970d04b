"""Reads the manifests that -f names."""

import sys
from collections.abc import Iterable, Mapping

import click

from knft.errors import SourceError
from knft.model.objects import KubeObject, ObjectChange
from knft.source.decode import KINDS
from knft.source.described_kinds import DESCRIBED_KINDS
from knft.source.files import error_reason, read_stream
from knft.source.paths import read_paths
from knft.source.scan_result import ScanResult


def read_manifests(paths: tuple[str, ...], *, described: bool = False) -> tuple[ObjectChange, ...]:
    """Return the objects as additions, and print problems to standard error; raise SourceError.

    ``described`` EndpointSlices have the pods and zones of their endpoints.
    """
    scan = scan_manifests(paths, DESCRIBED_KINDS if described else KINDS)
    print_messages((*scan.problems, *scan.notices))
    return scan.changes


def scan_manifests(paths: tuple[str, ...], kinds: Mapping[tuple[str, str], type[KubeObject]]) -> ScanResult:
    """Return the objects as additions, and problems; raise SourceError."""
    return read_paths(paths, _read_standard_input() if "-" in paths else None, kinds)


def print_messages(messages: Iterable[str]) -> None:
    """Print messages of the reader to standard error."""
    for message in messages:
        click.echo(f"knft: {message}", err=True)


def _read_standard_input() -> bytes:
    if sys.stdin is None:
        msg = "-: standard input is closed"
        raise SourceError(msg)
    try:
        return read_stream(sys.stdin.buffer)
    except (OSError, SourceError) as error:
        msg = f"-: {error_reason(error)}"
        raise SourceError(msg) from error
