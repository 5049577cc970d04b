"""Manifests that are named on the command line."""

import sys

import click

from knft.model.objects import Change
from knft.source.directory import read_paths


def read_manifests(paths: tuple[str, ...]) -> tuple[Change, ...]:
    """Return what manifests hold, as changes from nothing; say what is wrong with some of it. Raises SourceError."""
    standard_input = sys.stdin.buffer.read() if "-" in paths else None
    scan = read_paths(paths, standard_input)
    for sentence in (*scan.problems, *scan.remarks):
        click.echo(f"knft: {sentence}", err=True)
    return scan.changes
