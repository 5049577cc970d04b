"""Reads the manifests that -f names."""

import sys

import click

from knft.model.objects import ObjectChange
from knft.source.directory import read_paths


def read_manifests(paths: tuple[str, ...]) -> tuple[ObjectChange, ...]:
    """Return the objects as additions, and print problems to standard error; raise SourceError."""
    standard_input = sys.stdin.buffer.read() if "-" in paths else None
    scan = read_paths(paths, standard_input)
    for message in (*scan.problems, *scan.notices):
        click.echo(f"knft: {message}", err=True)
    return scan.changes
