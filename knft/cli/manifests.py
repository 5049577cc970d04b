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


def differences(before: tuple[Change, ...], after: tuple[Change, ...]) -> tuple[Change, ...]:
    """Return what leads from the objects of one reading to those of another."""
    old = {(type(change.current), change.current.key): change.current for change in before if change.current}
    new = {(type(change.current), change.current.key): change.current for change in after if change.current}
    return tuple(
        Change(old.get(key), new.get(key)) for key in sorted(old | new, key=str) if old.get(key) != new.get(key)
    )
