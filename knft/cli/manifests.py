"""Reads the manifests that -f names."""

import sys

import click

from knft.errors import SourceError
from knft.model.objects import ObjectChange
from knft.source.decode import KINDS
from knft.source.described_kinds import DESCRIBED_KINDS
from knft.source.files import error_reason, read_stream
from knft.source.paths import read_paths


def read_manifests(paths: tuple[str, ...], *, described: bool = False) -> tuple[ObjectChange, ...]:
    """Return the objects as additions, and print problems to standard error; raise SourceError.

    ``described`` EndpointSlices have the pods and zones of their endpoints.
    """
    standard_input = _read_standard_input() if "-" in paths else None
    scan = read_paths(paths, standard_input, DESCRIBED_KINDS if described else KINDS)
    for message in (*scan.problems, *scan.notices):
        click.echo(f"knft: {message}", err=True)
    return scan.changes


def _read_standard_input() -> bytes:
    if sys.stdin is None:
        msg = "-: standard input is closed"
        raise SourceError(msg)
    try:
        return read_stream(sys.stdin.buffer)
    except (OSError, SourceError) as error:
        msg = f"-: {error_reason(error)}"
        raise SourceError(msg) from error
