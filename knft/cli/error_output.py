"""Prints errors to standard error, in the form that its reader expects."""

import logging
import os
import sys

import click


def print_error(message: str) -> None:
    """Print an error to standard error, as JSON if the log is JSON."""
    logs = sys.modules.get("knft.cli.logs")
    if logs is None or not logs.print_error(message):
        text = f"knft: {message if logs is None else logs.hide_credentials(message)}"
        click.echo(_with_priority(text), err=True)


def _with_priority(text: str) -> str:
    """Return the text of an error, with its priority if systemd's journal reads it."""
    if not writes_to_journal():
        return text
    from knft.cli.journal import add_priority  # noqa: PLC0415 - for systemd alone

    return add_priority(logging.ERROR, text)


def writes_to_journal() -> bool:
    """Return whether systemd's journal reads standard error."""
    if "JOURNAL_STREAM" not in os.environ:
        return False
    from knft.cli.journal import is_journal  # noqa: PLC0415 - for systemd alone

    return is_journal(sys.stderr.fileno(), os.environ)
